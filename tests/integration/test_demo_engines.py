"""The demo on real engines: a Slurm cluster and SSH hosts that it starts, and ends, itself."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_demo import LIMIT_S, left_over
from topmast.demo import cast
from topmast.demo.lab import slurm, ssh

COMMAND = [sys.executable, "-m", "topmast.app", "demo", "--engines"]

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(LIMIT_S + 60.0)]


@pytest.fixture(autouse=True)
def there() -> None:
    if programs := slurm.lacking():
        pytest.skip(f"no Slurm: {', '.join(programs)} not found (run `make slurm-tools`)")


def play(state: Path, *before: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    done = subprocess.run(
        [*before, *COMMAND, "--json", "--keep", "--state", str(state)],
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    return done, json.loads(done.stdout or "{}")


@pytest.mark.skipif(bool(ssh.missing()), reason=f"no SSH hosts: {ssh.missing()}")
def test_the_same_happens_on_slurm_behind_ssh_and_on_processes(tmp_path: Path) -> None:
    """Status 0 says that each claim held; and nothing is left running."""
    done, document = play(tmp_path / "state")
    assert done.returncode == 0, done.stderr
    assert document["engines"] == {"east-1": "slurm", "east-2": "slurm", "north-1": "ssh"}
    assert (document["host_losses"], document["gave_up"]) == (1, "")
    where = {job["name"]: job["cluster"] for job in document["jobs"]}
    assert (where[cast.BORROWER], where[cast.STRUCK]) == ("east-1", "north-1")
    assert "is powered off" in done.stderr
    assert left_over(tmp_path / "state") == []


@pytest.mark.slow
def test_it_runs_as_the_user_that_it_runs_as(tmp_path: Path) -> None:
    """Slurm needs no root, but namespaces do: then the hosts behind SSH are local ones."""
    as_no_root = (
        () if os.geteuid() else ("unshare", "--user", "--map-user=daemon", "--map-group=daemon")
    )
    if as_no_root and subprocess.run([*as_no_root, "true"], check=False).returncode:
        pytest.skip("no user namespaces here")
    done, document = play(tmp_path / "state", *as_no_root)
    assert done.returncode == 0, done.stderr
    assert set(document["engines"].values()) == {"slurm"}
    assert "namespaces are made only by root" in done.stderr
    assert left_over(tmp_path / "state") == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_breaking_it_off_leaves_nothing(tmp_path: Path, number: int) -> None:
    """Ctrl-C while gangs run on every engine: no process, no network device, no file."""
    state, before = tmp_path / "state", devices()
    demo = subprocess.Popen([*COMMAND, "--state", str(state)], stderr=subprocess.PIPE, text=True)
    assert demo.stderr is not None
    while "cause: host" not in demo.stderr.readline():
        assert demo.poll() is None
    demo.send_signal(number)
    demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert left_over(state) == []
    assert devices() <= before
    assert not state.exists() or not list(state.iterdir())


def devices() -> set[str]:
    """The bridges and cables of hosts in namespaces."""
    if shutil.which("ip") is None:
        return set()
    said = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True)
    return {line.split()[1] for line in said.stdout.splitlines() if " tm" in line}
