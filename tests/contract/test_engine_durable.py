"""What the local engine relies on after a crash of the machine is on the disk before it counts.

A real engine, agent and supervisor run under strace: what they sync is seen, and in which order.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
STORY = """
from pathlib import Path
from tests.contract.engines import local, opened, order

# No argument of strace may name the folder: all that name it are killed in the end.
with opened(local, Path.cwd() / "rig") as rig:
    rig.engine.start_gang(order("j1", "exit 3"))
    assert rig.end_of("j1").code == 3
    rig.engine.start_gang(order("j2", "echo up; while true; do sleep 0.05 || true; done"))
    rig.says("j2", "up")
    rig.engine.stop("j2", 1, 0.0)
    rig.end_of("j2")
"""
CALLS = "trace=fsync,fdatasync,rename,renameat,renameat2,execve,sendto,exit_group"

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """What all processes asked of the kernel, in order: (process, call)."""
    folder = tmp_path_factory.mktemp("traced")
    tracing = ["strace", "-f", "-y", "-s", "200", "-o", "trace", "-e", CALLS]
    subprocess.run(
        [*tracing, sys.executable, "-c", STORY],
        cwd=folder,
        env={"PYTHONPATH": f"{REPO}:{REPO / 'src'}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        timeout=300,
        check=True,
    )
    trace = (folder / "trace").read_text(errors="replace")
    lines = (line.partition(" ") for line in trace.splitlines())
    return [(pid, call.strip()) for pid, _, call in lines if "resumed>" not in call]


def order_of(calls: list[tuple[str, str]], *patterns: str) -> list[int]:
    """Where each pattern is found first behind the one before; each has to be there."""
    places: list[int] = []
    for pattern in patterns:
        after = places[-1] + 1 if places else 0
        found = [n for n in range(after, len(calls)) if re.search(pattern, calls[n][1])]
        assert found, f"no {pattern} behind {patterns[: len(places)]}"
        places.append(found[0])
    return places


def by(calls: list[tuple[str, str]], pid: str) -> list[tuple[str, str]]:
    """What one process asked."""
    return [call for call in calls if call[0] == pid]


def test_a_claim_is_on_the_disk_before_the_script_runs(calls: list[tuple[str, str]]) -> None:
    """Content and name: after a crash, whoever finds no claim may start the task."""
    (script,) = [n for n, (_, call) in enumerate(calls) if re.match(r"execve.*j1\.1/run\.0", call)]
    claim, folder = order_of(calls, r"^fsync\(\d+<.*/tasks/j1\.1\.0>", r"^fsync\(\d+</[^>]*/tasks>")
    assert claim < folder < script
    assert calls[claim][0] == calls[folder][0]


def test_an_end_is_on_the_disk_before_the_supervisor_leaves(calls: list[tuple[str, str]]) -> None:
    """With the lock goes the last sign that the task may live: the record must be there for good."""
    rename = order_of(calls, r"^rename.*j1\.1\.0\.end\"")[0]
    supervisor = by(calls, calls[rename][0])
    order_of(
        supervisor,
        r"^fsync\(\d+<.*/tasks/\.j1\.1\.0\.end\.\d+>",
        r"^rename.*j1\.1\.0\.end\"",
        r"^fsync\(\d+</[^>]*/tasks>",
        r"^exit_group",
    )


def test_an_order_to_stop_is_on_the_disk_before_anyone_hears_of_it(
    calls: list[tuple[str, str]],
) -> None:
    """Nothing of the attempt starts afterwards, whatever crashes."""
    rename = order_of(calls, r"^rename.*j2\.1/stop\.json\"")[0]
    engine = by(calls, calls[rename][0])
    order_of(
        engine,
        r"^fsync\(\d+<.*j2\.1/\.stop\.json\.\d+>",
        r"^rename.*j2\.1/stop\.json\"",
        r"^fsync\(\d+<[^>]*/attempts/j2\.1>",
        r"^sendto.*poke.*j2\.1",
    )
