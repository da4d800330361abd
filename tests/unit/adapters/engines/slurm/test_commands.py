"""Slurm's commands: what refuses, what is silent, and what they are run with. Stand-ins play Slurm."""

import time
from pathlib import Path
from typing import Any

import pytest

from topmast.adapters.engines.far.launcher import Refused, Unreachable
from topmast.adapters.engines.far.slurm import SlurmOptions
from topmast.adapters.engines.far.slurm.commands import Commands

GOOD = "echo slurm-wlm 22.05.8"


def commands(folder: Path, squeue: str = "", sbatch: str = GOOD, **options: Any) -> Commands:
    for name, body in (("sbatch", sbatch), ("squeue", squeue)):
        if body:
            (folder / name).write_text(f"#!/bin/sh\n{body}\n")
            (folder / name).chmod(0o700)
    return Commands(SlurmOptions(bin=str(folder), **options))


def test_an_answer_is_what_the_command_prints(tmp_path: Path) -> None:
    """Given its arguments as they are, and what is to be read on stdin."""
    asked = commands(tmp_path, 'printf "%s|" "$@"; cat')
    assert asked.ask("squeue", "a b", "$(x)", "", text="script") == "a b|$(x)||script"


def test_nothing_of_our_environment_reaches_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job inherits it and shows it; and options for sbatch may hide in it."""
    monkeypatch.setenv("TOPMAST_SECRET", "x")
    monkeypatch.setenv("SBATCH_PARTITION", "x")
    asked = commands(tmp_path, "env", conf="/etc/s.conf")
    names = {line.partition("=")[0] for line in asked.ask("squeue").splitlines()}
    assert names <= {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "LC_ALL",
        "SLURM_TIME_FORMAT",
        "SLURM_CONF",
        "PWD",
        "_",
        "SHLVL",
    }
    assert "SLURM_CONF=/etc/s.conf" in asked.ask("squeue")


@pytest.mark.parametrize(
    "said",
    [
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received",
        "sinfo: error: Slurm backup controller in standby mode",
        "squeue: error: If munged is up, restart with --num-threads=10",
        "slurm_load_jobs error: Protocol authentication error",
        "sbatch: error: resolve_ctls_from_dns_srv: res_nsearch error: Unable to resolve",
        "sbatch: error: Batch job submission failed: Resource temporarily unavailable",
    ],
)
def test_silence(tmp_path: Path, said: str) -> None:
    """What was asked may have happened."""
    asked = commands(tmp_path, f"echo '{said}' >&2; exit 1")
    with pytest.raises(Unreachable, match="squeue: "):
        asked.ask("squeue")


@pytest.mark.parametrize(
    ("said", "want"),
    [
        ("slurm_load_jobs error: Zero Bytes were transmitted or received", True),
        ("slurm_load_jobs error: Protocol authentication error", True),
        ("squeue: error: Munge encode failed: Failed to access", True),
        ("slurm_load_jobs error: Socket timed out on send/recv operation", False),
    ],
)
def test_credentials_that_are_not_taken_are_told_from_silence(
    tmp_path: Path, said: str, *, want: bool
) -> None:
    """Slurm says as little of a wrong key, or a wrong clock, as that nothing came back."""
    with pytest.raises(Unreachable) as error:
        commands(tmp_path, f"echo '{said}' >&2; exit 1").ask("squeue")
    assert ("munged here" in str(error.value)) is want


@pytest.mark.parametrize(
    ("said", "want"),
    [
        ("sbatch: error: Batch job submission failed: Invalid partition name specified", "option `partition`"),
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
         "account.TENANT"),
        ("sbatch: error: Batch job submission failed: Invalid qos specification", "qos.TENANT"),
        ("sbatch: error: Batch job submission failed: Invalid node name specified", "fleet discover slurm"),
        ("sbatch: error: Batch job submission failed: Access/permission denied", "right to submit"),
        ("sbatch: error: Batch job submission failed: Requested time limit is invalid", "less time"),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available", "`gpu.MODEL: TYPE`"),
        ("sbatch: error: Invalid --time specification",
         "give the job another `time_limit`, or, if it has none, set option `time_limit`"),
        ("sbatch: error: Invalid --mem specification",
         "less `memory` in the job, or, if it names none, set option `memory_mib_per_gpu`"),
        ("sbatch: error: two-factor authentication is needed beside 8 GPUs, try again\n"
         "sbatch: error: Batch job submission failed: Unspecified error", "two-factor"),
        ("sbatch: error: something new\nof two lines\x1b[31m", r"something new; of two lines\?\[31m$"),
        ("x" * 5000, "…$"),
    ],
)  # fmt: skip
def test_refusals(tmp_path: Path, said: str, want: str) -> None:
    """In Slurm's words, in one line, and with a remedy where one is known."""
    (tmp_path / "said").write_text(said)
    asked = commands(tmp_path, f"cat {tmp_path}/said >&2; exit 1")
    with pytest.raises(Refused, match=want):
        asked.ask("squeue")
    with pytest.raises(Unreachable, match=want):
        asked.look("squeue")


def test_a_command_that_hangs_is_ended(tmp_path: Path) -> None:
    """With all that it started; what it said last is told."""
    asked = commands(tmp_path, "echo retrying >&2; sleep 60 & sleep 60", command_s=0.5)
    begun_s = time.monotonic()
    with pytest.raises(Unreachable, match=r"did not answer within 0\.5 s: retrying"):
        asked.ask("squeue")
    assert time.monotonic() - begun_s < 30


def test_a_command_that_is_killed_gave_no_answer(tmp_path: Path) -> None:
    """What it had printed is not the whole."""
    with pytest.raises(Unreachable, match="status -9"):
        commands(tmp_path, "echo half; kill -9 $$").ask("squeue")


@pytest.mark.parametrize(
    ("sbatch", "want"),
    [
        ("echo slurm 20.02.7", "20.02 is too old: 20.11"),
        ("echo slurm 19.05.1", "too old"),
        ("echo Torque", "this is not Slurm"),
        ("", "No such file or directory.*option `bin`"),
    ],
)
def test_the_version_is_asked_before_anything_else(tmp_path: Path, sbatch: str, want: str) -> None:
    """An older Slurm might ignore what it does not know."""
    asked = commands(tmp_path, f"touch {tmp_path}/asked", sbatch=sbatch)
    with pytest.raises(Unreachable, match=want):
        asked.ask("squeue")
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize("said", ["slurm 20.11.0", "slurm 23.11.10-1", "slurm-wlm 24.05.0-0rc1"])
def test_versions_that_are_new_enough(tmp_path: Path, said: str) -> None:
    """Of Debian, of others, and of what comes."""
    assert commands(tmp_path, "echo yes", sbatch=f"echo {said}").ask("squeue") == "yes\n"


def over_ssh(folder: Path, monkeypatch: pytest.MonkeyPatch, ssh: str, **options: Any) -> Commands:
    (folder / "ssh").write_text(f"#!/bin/sh\n{ssh}\n")
    (folder / "ssh").chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_CONF", "/of/this/machine")
    return Commands(SlurmOptions(ssh="me@login", bin=str(folder), **options))


def test_commands_run_on_the_login_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one line for its shell, with the environment that they need, and stdin passed on."""
    commands(tmp_path, 'printf "%s|" "$SLURM_CONF" "$SLURM_TIME_FORMAT" "$@"; cat')
    ssh = f'printf "%s\\n" "$*" >> {tmp_path}/asked; shift 7; exec env -i sh -c "$1"'
    asked = over_ssh(tmp_path, monkeypatch, ssh, conf="/etc/s.conf", ssh_config="/etc/c")
    assert asked.ask("squeue", "a b", "$(x) 'q'", text="in") == "/etc/s.conf|%s|a b|$(x) 'q'|in"
    first, *_ = (tmp_path / "asked").read_text().splitlines()
    assert first.startswith("-F /etc/c -T -o BatchMode=yes -- me@login env LC_ALL=")


def test_a_login_node_that_is_not_reached_gives_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever ssh says of it; the configuration of Slurm here is not taken for the one there."""
    asked = over_ssh(tmp_path, monkeypatch, 'echo "Permission denied (publickey)." >&2; exit 255')
    with pytest.raises(Unreachable, match=r"sbatch: Permission denied \(publickey\)"):
        asked.ask("squeue")
    commands(tmp_path, 'echo "conf $SLURM_CONF"')
    asked = over_ssh(tmp_path, monkeypatch, 'shift 5; exec env -i sh -c "$1"')
    assert asked.ask("squeue") == "conf \n"
