"""Jobs from standard input, from the command line and from other jobs, and options that change them."""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.cli.conftest import Call, nothing_is_sent
from tests.unit.client.fake import Answer, FakeServer
from topmast.cli.documents import as_yaml
from topmast.cli.overrides import named_for
from topmast.model.act_views import JobFileView
from topmast.model.files.jobfile import parse_job
from topmast.model.views import Receipt

RECEIPT = Answer(Receipt("j7", "resnet", ()), 201)

Sent = Callable[..., dict[str, Any]]


@pytest.fixture
def sent(server: FakeServer, call: Call) -> Sent:
    """The job that a call of `launch` submits."""
    server.on("POST", "/jobs", RECEIPT)

    def launch(*arguments: object) -> dict[str, Any]:
        called = call("launch", *arguments)
        assert (called.code, called.out) == (0, "j7\n"), called.err
        document: dict[str, Any] = server.asked("POST", "/jobs")[-1].document["job"]
        parse_job(document)
        return document

    return launch


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Give the command something on standard input."""

    def give(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return give


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A job file with two groups."""
    path = tmp_path / "two.yaml"
    path.write_text(
        "resources: {accelerators: H100:8, cpus: 4}\nenvs: {LR: '0.1'}\ntime_limit: 2h\n"
        "groups:\n- {name: trainer, count: 2, run: train}\n- {name: reader, run: read}\n"
    )
    return path


def test_a_job_file_on_standard_input(sent: Sent, stdin: Callable[[bytes], None]) -> None:
    """With options that change it, as a file."""
    stdin(b"run: python train.py\nresources: {accelerators: H100:8}\n")
    job = sent("-", "--name", "a", "--set", "num_nodes=2")
    assert (job["name"], job["run"], job["num_nodes"]) == ("a", "python train.py", 2)


def test_errors_on_standard_input_have_lines(
    call: Call, stdin: Callable[[bytes], None], server: FakeServer
) -> None:
    """Before any server is asked."""
    stdin(b"run: x\nnum_node: 3\n")
    called = call("launch", "-")
    assert called.code == 2
    assert called.error.startswith("topmast: standard input:2: num_node: unknown field")
    assert nothing_is_sent(server)


def test_a_command_on_the_command_line(sent: Sent) -> None:
    """Words are one command, a single word is a script; no file is needed."""
    job = sent("--gpus", "H100:8", "-N", "2", "--cpus", "4", "--", "python", "train.py", "a b")
    assert job["run"] == "python train.py 'a b'"
    assert job["name"] == "train"
    assert job["num_nodes"] == 2
    assert job["resources"] == {"accelerators": "H100:8", "cpus": 4}
    job = sent("--time-limit", "90m", "--", "set -e; make && ./run --help")
    assert job["run"] == "set -e; make && ./run --help"
    assert job["time_limit"] == "90m"
    assert sent("--", "echo", "--json", "-h")["run"] == "echo --json -h"


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (["python", "-m", "train"], "train"),
        (["torchrun", "--nproc", "src/pre train.py"], "pre-train"),
        (["LR=3 bash run.sh | tee log"], "run"),
        (["it's"], "it-s"),
        (["--x"], "x"),
        (["/usr/bin/nvidia-smi"], "nvidia-smi"),
    ],
)
def test_a_command_names_its_job(words: list[str], want: str) -> None:
    """After what it runs."""
    assert named_for(words) == want


def test_fields_are_set_by_their_names(sent: Sent, file: Path) -> None:
    """Groups by name or number; what has no value is left out; variables stay as they are written."""
    job = sent(
        file, "--set", "resources.cpus=8", "--set", "groups.trainer.count=4", "--set",
        "groups[1].run=echo: x", "--set", "envs.LR=1.50e-3", "--set", "time_limit=",
        "--set", "topology={preferred: rack}", "--label", "example.com/team=a.b", "--set",
        "labels.x=1",
    )  # fmt: skip
    trainer, reader = job["groups"]
    assert (trainer["count"], reader["run"]) == (4, "echo: x")
    assert job["envs"] == {"LR": "1.50e-3"}
    assert job["labels"] == {"example.com/team": "a.b", "x": "1"}
    assert "time_limit" not in job
    assert job["topology"] == {"preferred": "rack"}


@pytest.mark.parametrize(
    ("change", "want"),
    [
        (["--set", "resources.acelerators=H100"], "command line: resources.acelerators: unknown"),
        (["--set", "groups.driver.count=1"], "groups.driver.count: there is no 'driver'"),
        (["--set", "groups[7].count=1"], "there is no 7"),
        (["--set", "name.x=1"], "name has no field 'x'"),
        (["--set", "a..b=1"], "'a..b' is not the name of a field"),
        (["--set", "=1"], "'=1' is not NAME=VALUE"),
        (["--set", "topology={"], "command line: topology: "),
        (["--set", "resources.cpus=nan"], "command line: resources.cpus: "),
        (["--secret", "KEY=hunter2"], "secrets.KEY: is not a reference to a secret"),
        (["--secret", "LR"], "secrets.LR: is in envs too"),
        (["--nodes", "3"], "command line: num_nodes: cannot stand beside groups"),
        (["--", "x"], "command line: run: cannot stand beside groups"),
        (["--like", "j7"], "a job file or --like JOB, not both"),
    ],
)
def test_what_options_say_is_checked(
    change: list[str], want: str, server: FakeServer, call: Call, file: Path
) -> None:
    """As the file is, before anything is sent; a value that may be a secret is not repeated."""
    called = call("launch", file, *change)
    assert called.code == 2
    assert want in called.error
    assert "hunter2" not in called.error
    assert nothing_is_sent(server)


def test_nothing_to_launch(call: Call) -> None:
    """The error says what there is."""
    called = call("launch", "--gpus", "H100")
    assert called.code == 2
    assert "--like JOB, or a command after --" in called.error


def test_variables_from_a_file(sent: Sent, call: Call, tmp_path: Path) -> None:
    """Options go before it; secrets are references."""
    env = tmp_path / "env"
    env.write_text("# ours\nexport A=1 # one\nB='x # y'\n\nC=\"\"\nLR=0.5\n")
    job = sent(
        "--env-file",
        env,
        "--env",
        "LR=0.2",
        "--secret",
        "HF_TOKEN",
        "--secret",
        "K=file:/k",
        "--",
        "x",
    )
    assert job["envs"] == {"A": "1", "B": "x # y", "C": "", "LR": "0.2"}
    assert job["secrets"] == {"HF_TOKEN": "env:HF_TOKEN", "K": "file:/k"}
    env.write_text("A=1\nthis\nthat\n")
    told = call("launch", "--env-file", env, "--", "x").err.splitlines()
    assert [line.split(" (")[0] for line in told] == [
        f"topmast: {env}:{number}: is not NAME=VALUE" for number in (2, 3)
    ]


def test_the_work_folder_of_a_command(server: FakeServer, sent: Sent, tmp_path: Path) -> None:
    """It is sent, and is no part of the job file."""
    (tmp_path / "x.py").write_text("x")
    from topmast.client import snapshot

    digest = snapshot(tmp_path).digest
    server.on("HEAD", f"/workdirs/{digest}", Answer(b"", 200))
    assert "workdir" not in sent("--workdir", tmp_path, "--", "python", "x.py")
    assert server.asked("POST", "/jobs")[-1].document["workdir"] == digest


SPEC = {
    "name": "resnet", "tenant": "vision", "priority": "normal", "envs": {"A": "1e3", "B": "no"},
    "workdir": "sha256:" + "0" * 64, "checkpoint": {"interval": 600.0, "grace": 30.0},
    "max_restarts": 3, "preemptible": True, "num_nodes": 1,
    "resources": {"accelerators": ["H100:8"]}, "run": "set -e\npython 'train.py' \\\n  --x\n",
}  # fmt: skip


def test_a_job_is_launched_again(server: FakeServer, sent: Sent) -> None:
    """With its work folder, and with changes."""
    server.on("GET", "/jobs/j3/spec", JobFileView("j3", "ada", dict(SPEC)))
    assert sent("--like", "j3") == SPEC
    job = sent("--like", "j3", "--set", "resources.accelerators=H100:4", "--", "python", "other.py")
    assert (job["run"], job["name"]) == ("python other.py", "resnet")
    assert job["resources"] == {"accelerators": "H100:4"}
    assert job["workdir"] == SPEC["workdir"]


def test_the_job_file_of_a_job(server: FakeServer, call: Call, sent: Sent, tmp_path: Path) -> None:
    """It reads back as what it was, also for a YAML 1.2 reader, and can be launched."""
    server.on("GET", "/jobs/j3/spec", JobFileView("j3", "ada", SPEC))
    shown = call("spec", "j3")
    assert yaml.safe_load(shown.out) == SPEC
    assert "run: |\n" in shown.out
    assert call("spec", "j3", "--json").document == {"id": "j3", "user": "ada", "job": SPEC}
    (tmp_path / "again.yaml").write_text(shown.out)
    again = sent(tmp_path / "again.yaml")
    assert parse_job(again) == parse_job(SPEC)


def test_yaml_that_two_versions_read_alike() -> None:
    """What either takes for something else than text is quoted."""
    text = as_yaml({"a": "1e3", "b": "yes", "c": "0o17", "d": "12:30", "e": "H100:8"})
    assert text.splitlines() == ["a: '1e3'", "b: 'yes'", "c: '0o17'", "d: '12:30'", "e: H100:8"]
