"""What a shell offers for the next word."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.cli.conftest import REPO, Call, program
from tests.unit.client.fake import Answer, FakeServer, Request, ended, page, running
from topmast.model.views import RegionView, TenantView


def offered(line: str, shell: str = "bash") -> list[str]:
    """What is offered at the end of ``line``."""
    words = line.split(" ")
    asked = {"_TOPMAST_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line}
    asked |= {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    asked |= {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    run = subprocess.run(
        program(), cwd=REPO, env=os.environ | asked, capture_output=True, text=True, timeout=30
    )
    assert run.stderr == ""
    return run.stdout.splitlines()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_commands_are_offered(shell: str) -> None:
    """In all three shells."""
    found = "\n".join(offered("topmast re", shell))
    assert "replay" in found
    assert "regions" in found
    assert "cancel" not in found


def test_options_are_offered() -> None:
    """Of the command that is being written."""
    assert "--dry-run" in offered("topmast launch --d")


def test_ids_are_offered(server: FakeServer) -> None:
    """Jobs that the server knows; nothing that a shell could take for a command."""
    server.on(
        "GET", "/jobs", page(running("j17", name="a`id`$(id)"), running("j2"), running("$(x)"))
    )
    assert offered("topmast status j1") == ["j17"]
    zsh = "\n".join(offered("topmast status ", "zsh"))
    assert "j17" in zsh
    assert "$" not in zsh
    assert "`" not in zsh
    server.on(
        "GET", "/regions", {"regions": [RegionView("east", 1, 1, 8, 8, 0, 0, 0, 0, 0, None, 1)]}
    )
    assert offered("topmast datasets drop imagenet e") == ["east"]


def test_without_a_server_nothing_is_offered() -> None:
    """And nothing is complained about."""
    assert [word for word in offered("topmast status ") if word] == []


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("topmast reproduce mast-b", ["mast-balance"]),
        ("topmast simulate --profile srt", ["srtf"]),
        ("topmast compare --profile srt", ["srtf"]),
        ("topmast up --profile srt", ["srtf"]),
    ],
)
def test_names_are_offered_that_need_no_server(line: str, wanted: list[str]) -> None:
    """Of experiments and profiles."""
    assert offered(line) == wanted


SHELLS = ["bash", "zsh", "fish"]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_printed(shell: str, call: Call) -> None:
    """For each shell, and as JSON if asked for."""
    script = call("completion", shell).out
    assert f"complete_{shell}" in script
    assert call("completion", shell, "--json").document == {
        "shell": shell, "script": script.rstrip("\n"),
    }  # fmt: skip


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_one_for_the_shell(shell: str, call: Call, tmp_path: Path) -> None:
    """The shell itself can read it."""
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"there is no {shell} here")
    script = tmp_path / "script"
    script.write_text(call("completion", shell).out)
    subprocess.run([found, "-n", str(script)], check=True, timeout=30)


@pytest.mark.parametrize(
    ("line", "want"),
    [
        pytest.param({"COMP_WORDS": "topmast", "COMP_CWORD": "x"}, ["COMP_CWORD is 'x'"], id="no number"),
        pytest.param({"COMP_WORDS": "topmast", "COMP_CWORD": "-1"}, ["COMP_CWORD is '-1'"], id="no place"),
        pytest.param({}, ["COMP_WORDS is not set", "COMP_CWORD is ''"], id="nothing at all"),
    ],
)  # fmt: skip
def test_a_line_that_no_shell_tells_is_refused(line: dict[str, str], want: list[str]) -> None:
    """With all that is wrong with it, and what to do."""
    asked = {"_TOPMAST_COMPLETE": "complete_bash", **line}
    known = {key: value for key, value in os.environ.items() if not key.startswith("COMP_")}
    run = subprocess.run(
        program(), cwd=REPO, env=known | asked, capture_output=True, text=True, timeout=30
    )
    assert (run.returncode, run.stdout) == (2, "")
    for part in (*want, "use `topmast completion bash`"):
        assert part in run.stderr


def test_bash_completes(call: Call, tmp_path: Path) -> None:
    """The function that the script defines finds commands through the program."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash here")
    script = tmp_path / "script"
    script.write_text(call("completion", "bash").out)
    wrapper = tmp_path / "topmast"
    wrapper.write_text(f'#!/bin/sh\ncd {REPO} && exec {" ".join(program())} "$@"\n')
    wrapper.chmod(0o755)
    ask = (
        f'source "{script}"; COMP_WORDS=(topmast datasets re); COMP_CWORD=2; '
        '_topmast_completion topmast; echo "${COMPREPLY[@]}"'
    )
    run = subprocess.run(
        [bash, "--norc", "-c", ask], capture_output=True, text=True, timeout=30, check=True,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert run.stdout == "replicate\n"


def test_jobs_that_go_on_are_offered_first(server: FakeServer) -> None:
    """As many as there are on a page; to stop or to wait for, no others."""

    def jobs(request: Request) -> Answer:
        if request.query.get("state") == "active":
            assert request.query["order"] == "queue"
            return Answer(page(*(running(f"j{number}") for number in range(100, 400))))
        return Answer(page(ended("j999"), running("j100")))

    server.on("GET", "/jobs", jobs)
    active = [f"j{number}" for number in range(100, 400)]
    assert offered("topmast cancel ") == active
    assert offered("topmast wait j21") == [f"j21{digit}" for digit in range(10)]
    assert offered("topmast status ") == [*active, "j999"]


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("topmast queue --tenant v", ["vision"]),
        ("topmast launch job.yaml --tenant s", ["speech"]),
        ("topmast queue --only P", ["PENDING", "PREEMPTING"]),
        ("topmast queue --only RUNNING,rec", ["RUNNING,recovering"]),
        ("topmast launch job.yaml --priority c", ["critical"]),
        ("topmast up --set min_run", ["min_runtime_s="]),
        ("topmast simulate --set score.da", ["score.data="]),
    ],
)
def test_values_of_options_are_offered(line: str, want: list[str], server: FakeServer) -> None:
    """Those that there are, and no names of files."""
    rows = [
        TenantView(name, model, 16, 20, 4, 0, 8, 1)
        for name in ("vision", "speech") for model in ("H100", "A100")
    ]  # fmt: skip
    server.on("GET", "/tenants", {"tenants": rows})
    assert offered(line) == want
