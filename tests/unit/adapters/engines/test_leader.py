"""Leaders that a later one has replaced."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from topmast.adapters.engines import leader
from topmast.adapters.engines.leader import LeaderFence
from topmast.model.errors import Unavailable


def test_a_replaced_leader_orders_nothing_any_more(tmp_path: Path) -> None:
    fence = LeaderFence(tmp_path / "engine")
    assert fence.admits(0)
    assert fence.admits(2)
    assert not fence.admits(1)
    assert not fence.admits(0)
    assert fence.admits(2)


def test_the_highest_leader_is_known_after_a_restart(tmp_path: Path) -> None:
    assert LeaderFence(tmp_path).admits(7)
    assert not LeaderFence(tmp_path).admits(6)
    assert LeaderFence(tmp_path).admits(7)


def test_another_process_hears_of_a_new_leader(tmp_path: Path) -> None:
    """It has the folder open, and lost the leadership without knowing it."""
    old, new = LeaderFence(tmp_path), LeaderFence(tmp_path)
    assert old.admits(1)
    assert new.admits(2)
    assert not old.admits(1)


def test_a_spoiled_record_does_not_stop_the_leader_that_is_known(tmp_path: Path) -> None:
    fence = LeaderFence(tmp_path)
    assert fence.admits(3)
    (tmp_path / "leader").write_bytes(b"\xff nonsense")
    assert fence.admits(3)
    assert not fence.admits(2)


def test_a_leader_that_cannot_be_remembered_is_not_obeyed(tmp_path: Path) -> None:
    (tmp_path / "engine").write_bytes(b"not a folder")
    assert not LeaderFence(tmp_path / "engine").admits(1)


def test_what_was_admitted_is_not_carried_out_after_another_leader(tmp_path: Path) -> None:
    """It may have waited in a queue meanwhile."""
    old, new = LeaderFence(tmp_path), LeaderFence(tmp_path)
    assert old.admits(1)
    with old.held() as leads:
        assert leads
    assert new.admits(2)
    with old.held() as leads:
        assert not leads
    with new.held() as leads:
        assert leads


def test_a_leader_takes_over_before_its_first_order(tmp_path: Path) -> None:
    """What an earlier one did after the look at its folder would not be known."""
    old, new = LeaderFence(tmp_path), LeaderFence(tmp_path)
    old.take_over(1)
    assert old.leads()
    new.take_over(2)
    assert new.leads()
    assert not old.leads()
    with pytest.raises(Unavailable, match="the last one to order it is leader 2"):
        old.take_over(1)


def test_a_take_over_that_a_full_disk_stops_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line of a start names what is wrong, not the leader that there was."""

    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    LeaderFence(tmp_path).take_over(1)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unavailable, match="No space left on device; make room on its disk"):
        LeaderFence(tmp_path).take_over(2)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Unavailable, match="Not a directory; let this user write files there"):
        LeaderFence(tmp_path / "file").take_over(2)


HOLDER = """
import os, signal, sys, time
from pathlib import Path
from topmast.adapters.engines.leader import LeaderFence
fence = LeaderFence(Path(sys.argv[1]))
assert fence.admits(1)
with fence.held() as leads:
    print("holds", leads, flush=True)
    if sys.argv[2] == "halted":
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(float(sys.argv[2]))
print("done", flush=True)
"""


def holder(folder: Path, how: str) -> subprocess.Popen[str]:
    """A process that is in the middle of an order."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, folder, how], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "holds True\n"
    return process


def test_a_new_leader_waits_for_the_end_of_an_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own come after it, and not in the middle."""
    monkeypatch.setattr(leader, "PATIENCE_S", 60.0)
    with holder(tmp_path, "0.3") as process:
        assert LeaderFence(tmp_path).admits(2)
        assert process.stdout is not None
        assert process.stdout.read() == "done\n"
    assert process.returncode == 0


def test_a_process_that_was_halted_in_an_order_is_killed(tmp_path: Path) -> None:
    """It would carry the order out whenever it goes on."""
    with holder(tmp_path, "halted") as process:
        assert LeaderFence(tmp_path).admits(2)
        assert process.wait() == -signal.SIGKILL
