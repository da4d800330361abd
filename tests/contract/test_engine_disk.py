"""The local engine on a disk that is full: what ended then has ended, and is told when there is room.

Each test runs in a mount namespace of its own, with a small file system for the engine alone.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
INSIDE = ["unshare", "--user", "--map-root-user", "--mount"]


def can_mount() -> bool:
    """Whether this machine lets us have a file system of our own."""
    try:
        return subprocess.run([*INSIDE, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


pytestmark = pytest.mark.skipif(not can_mount(), reason="no mount namespaces here")

PROLOGUE = """
import os, sys, time
from pathlib import Path
from tests.contract.engines import *
from topmast.adapters.engines.local import files
from topmast.model.messages import HostDown, TaskExited, TaskLost

folder = Path(sys.argv[1])
fill = folder / "engine" / "fill"
FULL = f"cat /dev/zero > {fill} || true"

def fill_up():
    with contextlib.suppress(OSError), fill.open("ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))

def writes():
    try:
        files.write_file(folder / "engine" / "probe", bytes(4096))
    except OSError:
        return False
    return True
"""


def run_inside(folder: Path, story: str) -> str:
    """Run Python with `folder`/engine on a file system of 1 MiB; what it printed."""
    (folder / "engine").mkdir()
    mount = 'mount -t tmpfs -o size=1m none "$1/engine" && exec "$0" -c "$2" "$1"'
    code = PROLOGUE + textwrap.dedent(story)
    said = subprocess.run(
        [*INSIDE, "bash", "-c", mount, sys.executable, folder, code],
        cwd=REPO,
        env={"PYTHONPATH": f"{REPO}:{REPO / 'src'}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    return said.stdout


def test_a_task_that_ends_on_a_full_disk_has_ended_once_there_is_room(tmp_path: Path) -> None:
    """Its supervisor keeps the claim until the end is recorded; nothing calls the task lost."""
    said = run_inside(
        tmp_path,
        """
        with opened(local, folder) as rig:
            rig.engine.start_gang(order("j1", f"{FULL}; echo > /dev/null; exit 3"))
            eventually(lambda: not scripts_of(folder / "engine"), "the script ends")
            eventually(lambda: not writes(), "the disk is full")
            rig.reopen()
            time.sleep(1.5)
            assert [task.running for task in rig.truth().tasks] == [True]
            assert not rig.news.all(TaskExited) and not rig.news.all(TaskLost)
            fill.unlink()
            print(rig.end_of("j1").code)
        """,
    )
    assert said == "3\n"


def test_a_host_that_dies_while_the_disk_is_full_is_down(tmp_path: Path) -> None:
    """That its tasks are lost is told, though it cannot be recorded; the host returns."""
    said = run_inside(
        tmp_path,
        """
        with opened(local, folder) as rig:
            rig.engine.start_gang(order("j1", "echo up; sleep 1000"))
            rig.says("j1", "up")
            fill_up()
            kill(files.read_json(folder / "engine/hosts/h0/agent.json")["pid"])
            rig.news.wait(HostDown, host="h0")
            print(rig.lost("j1").error)
            assert not writes()
            assert not scripts_of(folder / "engine")
        """,
    )
    assert "its agent died" in said
