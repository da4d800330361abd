"""What drives the protocol: facts first, and nothing that blocks the rest."""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.contract.engines import Rig, eventually, far, far_with, opened, order
from tests.support.processlauncher import ProcessEngine, ProcessLauncher
from topmast.adapters.engines.far import plan
from topmast.adapters.engines.far.launcher import Listed, Unreachable
from topmast.adapters.engines.far.store import FactLog
from topmast.adapters.engines.leader import LeaderFence
from topmast.model.engines import Capability
from topmast.model.errors import Unavailable
from topmast.model.messages import TaskExited, TaskList, TaskPreparing, TaskStarted


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """An open far engine with real runners."""
    with opened(far, tmp_path) as rig:
        yield rig


def test_nothing_happens_before_it_is_recorded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the disk is full no part is submitted; then all goes on."""
    real = os.fsync
    full = threading.Event()
    full.set()

    def fsync(fd: int) -> None:
        if full.is_set():
            raise OSError(28, "no space left")
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    rig.engine.start_gang(order("j1", "exit 3"))
    time.sleep(1.5)
    assert not list((rig.folder / "scheduler" / "parts").iterdir())
    full.clear()
    assert rig.end_of("j1").code == 3


def test_a_scheduler_that_hangs_holds_nothing_else_up(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs ends, and is stopped, while a listing does not come back."""
    rig.engine.start_gang(order("j1", "echo up; while true; do sleep 0.05; done"))
    rig.says("j1", "up")
    hangs = threading.Event()
    answers = threading.Event()
    real = ProcessLauncher.list

    def list_(launcher: ProcessLauncher) -> tuple[Listed, ...]:
        hangs.set()
        answers.wait(30)
        return real(launcher)

    monkeypatch.setattr(ProcessLauncher, "list", list_)
    assert hangs.wait(30)
    rig.engine.stop("j1", 1, 0.0)
    rig.end_of("j1")
    rig.engine.list_tasks()
    assert not rig.news.all(TaskList)
    answers.set()
    rig.news.wait(TaskList)


def test_a_submission_without_an_answer_is_looked_for(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made all the same: it is found, and not made again."""
    real = ProcessLauncher.submit
    calls = []

    def submit(launcher: ProcessLauncher, part: object) -> None:
        calls.append(part)
        real(launcher, part)  # type: ignore[arg-type]
        raise Unreachable("timed out")

    monkeypatch.setattr(ProcessLauncher, "submit", submit)
    rig.engine.start_gang(order("j1", "exit 3"))
    assert rig.end_of("j1").code == 3
    assert len(calls) == 1
    assert rig.news.wait(TaskPreparing, job="j1").why == "timed out"


def test_secrets_are_on_no_disk_for_others(rig: Rig) -> None:
    """Nor in the arguments of any process."""
    rig.engine.start_gang(order("j1", "tr '\\0' ' ' < /proc/$PPID/cmdline"))
    rig.end_of("j1")
    engine = rig.folder / "engine"
    token = rig.engine._identity.token(f"tm-{(engine / 'id').read_text().strip()}-j1-1-0")  # type: ignore[attr-defined]
    assert token not in rig.log("j1")
    readable = [file for file in engine.rglob("*") if file.stat().st_mode & 0o077]
    assert not readable


def test_a_folder_that_cannot_be_read_is_an_error_of_the_start(rig: Rig) -> None:
    """It is not taken for an empty one: attempts could start twice."""
    rig.engine.start_gang(order("j1", "true"))
    rig.end_of("j1")
    rig.engine.close()
    facts = rig.folder / "engine" / "facts"
    facts.write_bytes(b"garbage\n" + facts.read_bytes())
    with pytest.raises(Unavailable, match="line 1"):
        rig.open()


def test_output_of_forgotten_attempts_is_deleted(tmp_path: Path) -> None:
    """And none of them starts again."""
    with opened(forgetful, tmp_path) as rig:
        for job in ("j1", "j2", "j3"):
            rig.engine.start_gang(order(job, "echo ran"))
            rig.end_of(job)
        eventually(lambda: not rig.log("j1"), "its output is deleted")
        rig.engine.start_gang(order("j1", "echo ran"))
        assert "not run twice" in rig.lost("j1").error
        assert rig.engine.stored_epochs(tmp_path / "engine")["j1"] == 1
        assert rig.news.all(TaskExited, job="j1")


def forgetful(rig: Rig) -> ProcessEngine:
    return far_with(rig, lease_s=60.0, keep_attempts=1)


def test_an_order_that_waits_is_not_carried_out_after_another_leader(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the order and its record a process can be halted for as long as one likes."""
    real = plan.environment
    begun, goes_on = threading.Event(), threading.Event()

    def environment(*given: Any) -> Any:
        begun.set()
        goes_on.wait(30)
        return real(*given)

    monkeypatch.setattr(plan, "environment", environment)
    engine = rig.engine
    assert isinstance(engine, ProcessEngine)
    engine.order(order("j1", "exit 3"), leader=1)
    assert begun.wait(30)
    replaced(rig)
    goes_on.set()
    engine._pool.shutdown()
    eventually(engine._events.empty, "the order is taken")
    engine.close()
    assert not (rig.folder / "engine" / "facts").read_bytes()


def test_a_runner_is_granted_nothing_by_a_replaced_leader(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its successor has read the facts, and would not know of the claim."""
    release, drop = ProcessLauncher.release, ProcessEngine._drop
    asked = threading.Event()

    def late(launcher: ProcessLauncher, listed: Sequence[Listed]) -> None:
        replaced(rig)
        release(launcher, listed)

    def dropped(engine: ProcessEngine, batch: Any) -> None:
        if any(answer is not None for _, answer in batch):
            asked.set()
        drop(engine, batch)

    monkeypatch.setattr(ProcessLauncher, "release", late)
    monkeypatch.setattr(ProcessEngine, "_drop", dropped)
    rig.engine.order(order("j1", "exit 3"), leader=1)
    assert asked.wait(30)
    assert not rig.news.all(TaskStarted)
    rig.engine.close()
    rig.leader = 2
    rig.open()
    assert rig.end_of("j1").code == 3


def test_a_replaced_leader_asks_nothing_of_the_scheduler(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had decided before is left to its successor."""
    record, release, recorded = FactLog.append, ProcessEngine._release, threading.Event()

    def append(facts: FactLog, new: Any) -> None:
        record(facts, new)
        # As if it were halted here, and its lock were lost with its machine.
        (rig.folder / "engine" / "leader.lock").write_text(f"{2:>20}\n")
        recorded.set()

    done = threading.Event()

    def after(engine: ProcessEngine) -> None:
        release(engine)
        if recorded.is_set():
            done.set()

    monkeypatch.setattr(FactLog, "append", append)
    monkeypatch.setattr(ProcessEngine, "_release", after)
    engine = rig.engine
    assert isinstance(engine, ProcessEngine)
    rig.truth()  # after a look a part is submitted at once
    engine.order(order("j1", "exit 3"), leader=1)
    assert done.wait(30)
    engine._pool.shutdown()
    assert not list((rig.folder / "scheduler" / "parts").iterdir())


def replaced(rig: Rig) -> None:
    """Another process takes the engine's folder over."""
    fence = LeaderFence(rig.folder / "engine")
    fence.take_over(2)
    # Not closed: to close a file of this process is to let go of all its locks on it.


def test_what_an_engine_can_do_is_its_launchers() -> None:
    """Exact GPUs are those that a scheduler leaves to Topmast."""
    assert Capability.EXACT_SLOTS in ProcessEngine.capabilities
