"""`import`."""

import os
from pathlib import Path

import pytest
import yaml

from tests.unit.cli.conftest import Call
from topmast.importers import IMPORTERS


def test_a_file_is_imported(call: Call, tmp_path: Path) -> None:
    """The job file on stdout, and what is lost on stderr."""
    script = tmp_path / "a.sbatch"
    script.write_text("#!/bin/sh\n#SBATCH -p gpu --gpus=2\nsrun echo a\n")
    called = call("import", "sbatch", script)
    assert called.code == 0
    assert yaml.safe_load(called.out)["resources"] == {"accelerators": 2}
    assert called.error.startswith(f"{script}:2: --partition: is left out")
    assert call("import", "sbatch", script, "--strict").code == 1
    document = call("import", "sbatch", script, "--json").document
    assert [note["field"] for note in document["notes"]] == ["--partition"]


def test_a_pipeline_can_be_launched_as_it_is_printed(call: Call, tmp_path: Path) -> None:
    """Its jobs stand between lines of three dashes."""
    file = tmp_path / "p.yaml"
    file.write_text("name: a\nrun: x\n---\nname: b\nrun: y\n")
    printed = call("import", "skypilot", file).out
    (first, second) = yaml.safe_load_all(printed)
    assert (first["name"], second["depends_on"]) == ("a", ["a"])
    document = call("import", "skypilot", file, "--json").document
    assert [job["name"] for job in (document["job"], *document["more"])] == ["a", "b"]


def test_what_cannot_be_a_job_is_an_error(call: Call, tmp_path: Path) -> None:
    """After what was found of it."""
    file = tmp_path / "task.yaml"
    file.write_text("num_nodes: 0\nservice: {}\n")
    called = call("import", "skypilot", file)
    assert (called.code, called.out) == (2, "")
    assert called.err.splitlines()[0].startswith(f"{file}:2: service: is left out")
    assert f"the job file of {file}: num_nodes: 0 is out of range" in called.err.replace(
        "the number ", ""
    )
    assert "run: missing" in called.err


@pytest.mark.parametrize("name", list(IMPORTERS))
def test_what_is_no_file_of_a_kind_is_called_what_it_is(
    name: str, call: Call, tmp_path: Path
) -> None:
    """A folder, a pipe that no program fills, and a file that no one wrote, however large."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "core").write_bytes(b"\x7fELF\0" + bytes(3 << 20))
    what = IMPORTERS[name].what
    for file, want in (
        ("", f"is a folder (give the path of {what})"),
        ("pipe", f"is a pipe (give the path of {what})"),
        ("core", "this is a binary file, "),
    ):
        called = call("import", name, tmp_path / file)
        assert (called.code, called.out) == (2, "")
        assert called.error.startswith(f"topmast: {tmp_path / file}: {want}")
        assert ("YAML" in called.error) <= (file == "core")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("#!/bin/bash\n#SBATCH -N 2\nsrun x\n", "sbatch"),
        ("\n#SBATCH --wrap=x\n", "sbatch"),
        ("apiVersion: batch/v1\nkind: Job\nspec: {}\n", "kubernetes"),
        ('{"apiVersion": "batch/v1",\n "kind": "Job", "spec": {}}\n', "kubernetes"),
        ("apiVersion: batch/v1\nkind: Job\nresources: {}\n", "kubernetes"),
        ("name: t\nresources:\n  accelerators: A100:1\nrun: x\n", "skypilot"),
        ("---\nname: a\nrun: x\n---\nname: b\nrun: y\n", "skypilot"),
        ('{"run": "x", "resources": {"accelerators": "A100:1"}}\n', "skypilot"),
        ("run: |\n  cat <<END | kubectl apply -f -\n  apiVersion: v1\n  kind: Job\n", "skypilot"),
        ("#!/bin/sh\ncat <<END >task.yaml\nrun: x\nEND\n", "sbatch"),
        ("#!/bin/sh\ncat <<END | kubectl apply -f -\napiVersion: v1\nkind: Job\nEND\n", "sbatch"),
    ],
)
def test_a_file_of_another_kind_is_recognised(
    text: str, kind: str, call: Call, tmp_path: Path
) -> None:
    """And the command for it is named."""
    file = tmp_path / "it"
    file.write_text(text)
    for name in IMPORTERS:
        told = f"this looks like {IMPORTERS[kind].what} (topmast import {kind}"
        assert (told in call("import", name, file).err) == (name != kind)


@pytest.mark.parametrize("name", list(IMPORTERS))
def test_each_kind_has_a_command(name: str, call: Call, tmp_path: Path) -> None:
    """With a help that says what it is."""
    assert IMPORTERS[name].what in call("import", name, "--help").out
    assert call("import", name, tmp_path / "none").code == 2
