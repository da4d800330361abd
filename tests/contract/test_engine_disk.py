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


def run_inside(folder: Path, *stories: str) -> str:
    """Run Python with `folder`/engine on a file system of 1 MiB; what it printed."""
    (folder / "engine").mkdir()
    mount = 'mount -t tmpfs -o size=1m,nr_inodes=500 none "$1/engine" && exec "$0" -c "$2" "$1"'
    code = "\n".join(textwrap.dedent(story) for story in (PROLOGUE, *stories))
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


FULL_AND_BACK = """
def shut():
    fill_up()

def give_back():
    fill.unlink()
"""
NO_INODES_AND_BACK = """
def shut():
    with contextlib.suppress(OSError):
        for number in range(100_000):
            (folder / "engine" / f"many.{number}").touch()

def give_back():
    for file in (folder / "engine").glob("many.*"):
        file.unlink()
"""


@pytest.mark.parametrize("way", [FULL_AND_BACK, NO_INODES_AND_BACK])
def test_hosts_are_closed_while_nothing_can_be_written(tmp_path: Path, way: str) -> None:
    """No host is blamed, it is logged once, and hosts are open again when there is room."""
    said = run_inside(
        tmp_path,
        way,
        """
        from structlog.testing import capture_logs
        from topmast.model.messages import HostClosed, HostOpened

        with opened(local, folder) as rig, capture_logs() as logs:
            rig.engine.start_gang(order("j1", "echo up; sleep 1000"))
            rig.says("j1", "up")
            shut()
            for number in range(5):
                rig.engine.start_gang(order(f"k{number}", "echo up"))
                assert rig.lost(f"k{number}").blameless is True
            closed = dict(rig.truth().closed_hosts)
            assert set(closed) == set(HOSTS) and "cannot be written" in closed["h0"], closed
            assert len(rig.news.all(HostClosed)) == 2
            time.sleep(2.5)
            give_back()
            rig.news.wait(HostOpened, 2)
            rig.engine.start_gang(order("k9", "exit 5"))
            print(rig.end_of("k9").code)
            assert [line["log_level"] for line in logs] == ["warning", "info"], logs
            rig.engine.stop("j1", 1, 0.5)
            rig.end_of("j1")
        """,
    )
    assert said == "5\n"


def test_orders_reach_tasks_while_the_disk_is_full(tmp_path: Path) -> None:
    """A stop at once, though it cannot be written; what is written later holds for good."""
    said = run_inside(
        tmp_path,
        """
        TOLD = "trap 'echo told; exit 0' TERM"

        def halted():
            return all(process.status() == "stopped" for process in scripts_of(folder / "engine"))

        with opened(local, folder) as rig:
            rig.engine.start_gang(order("j1", f"{TOLD}; echo up; sleep 1000 & wait"))
            rig.engine.start_gang(order("j2", "echo up; sleep 1000"))
            for job in ("j1", "j2"):
                rig.says(job, "up")
            fill_up()
            rig.engine.stop("j1", 1, 5.0)
            eventually(lambda: len(scripts_of(folder / "engine")) == 2, "j1 is told to end")
            rig.engine.suspend("j2", 1)
            time.sleep(0.5)
            fill.unlink()
            eventually(halted, "j2 is halted once that can be written")
            assert rig.end_of("j1").code == 0
            eventually((folder / "engine/attempts/j1.1/stop.json").exists, "no order to stop")
            rig.engine.stop("j2", 1, 0.5)
            print(rig.end_of("j2").code)
        """,
    )
    assert said.splitlines()[-1] == "143"


def test_a_command_beside_a_task_is_refused_while_the_disk_is_full(tmp_path: Path) -> None:
    """It ends with the reason, instead of waiting for what never begins."""
    said = run_inside(
        tmp_path,
        """
        from topmast.model.exec_views import ExecSpec

        with opened(local, folder) as rig:
            rig.engine.start_gang(order("j1", "echo up; sleep 1000"))
            rig.says("j1", "up")
            fill_up()
            made = rig.engine.execute(ExecSpec("j1", 1, 0, ("echo", "hello")))
            eventually(lambda: made.finished, "the command waits")
            print(made.page(0, 0, 100).error)
            fill.unlink()
            rig.engine.stop("j1", 1, 0.5)
            rig.end_of("j1")
        """,
    )
    assert "No space left" in said
