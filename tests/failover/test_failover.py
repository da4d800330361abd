"""The judge of the failover test, and that the test notices what it is there for."""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.failover.load import TASK, stale_orders
from tests.failover.program import MUTANTS, NO_EPOCH, NO_FENCE, NO_HOLD
from tests.failover.run import CHAIN, failover_test, missed
from tests.support import postgresql

needs_cables = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None or postgresql.programs() is None,
    reason="cables that can be cut need root, ip and PostgreSQL",
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that other users reach, with a path that is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="tmf") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.mark.parametrize(
    ("orders", "want_stale"),
    [
        ("1 1 StartGang\n1 1 StopTasks\n2 2 StartGang\n", 0),
        ("1 1 StartGang\n2 2 StartGang\n1 1 StopTasks\n2 2 ListTasks\n", 1),
        ("1 1 StartGang\n2 1 StartGang\n", 1),
        ("1 1 StartGang\n1 3 StartGang\n2 2 StartGang\n", 1),
        ("", 0),
    ],
    ids=["in order", "an old epoch", "one epoch, two leaders", "the same process again", "none"],
)
def test_an_order_of_an_old_epoch_is_seen(tmp_path: Path, orders: str, want_stale: int) -> None:
    file = tmp_path / "orders"
    file.write_text(orders)
    assert len(stale_orders(file)) == want_stale


@pytest.mark.parametrize(
    ("before", "want_code", "want_said"),
    [
        ("", 0, ["start", "done"]),
        ("begun\n", 0, ["stopped", "start", "done"]),
        ("begun\ndone\n", 5, ["double"]),
    ],
    ids=["first", "was stopped", "was done"],
)
def test_a_task_tells_what_was_before(
    tmp_path: Path, before: str, want_code: int, want_said: list[str]
) -> None:
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "c0-1").write_text(before)
    assert _task(tmp_path).wait(20.0) == want_code
    proof = (tmp_path / "proof").read_text().splitlines()
    assert [line.split()[0] for line in proof] == want_said


def test_a_task_tells_that_it_runs_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    with (tmp_path / "locks" / "c0-1").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert _task(tmp_path).wait(20.0) == 5
    assert (tmp_path / "proof").read_text() == "double c0-1 j1 1\n"


def _task(folder: Path) -> subprocess.Popen[bytes]:
    """The task of a job, as its engine starts it."""
    words = [sys.executable, "-S", "-c", TASK, str(folder), "c0-1"]
    own = {"TOPMAST_JOB_ID": "j1", "TOPMAST_EPOCH": "1"}
    return subprocess.Popen(words, env={**os.environ, **own})


@pytest.mark.parametrize(
    ("acknowledged", "p99_s", "goal_s", "want"),
    [
        (900, 4.8, 5.0, ""),
        (900, 5.2, 5.0, "took 5.2 s"),
        (900, 5.2, None, ""),
        (900, None, 5.0, "in no round"),
        (900, None, None, ""),
        (0, 1.0, None, "no job was acknowledged"),
    ],
    ids=["in time", "too late", "not judged", "only cold", "only cold, not judged", "nothing done"],
)
def test_the_last_line_is_judged(
    acknowledged: int, p99_s: float | None, goal_s: float | None, want: str
) -> None:
    found = missed({"acknowledged": acknowledged, "failover_p99_s": p99_s}, goal_s)
    assert bool(found) == bool(want), found
    assert want in "".join(found)


@needs_cables
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_chain_of_leaders_is_lost_and_nothing_else(folder: Path) -> None:
    """Five in a row, each as soon as it leads."""
    line, verdict = failover_test(folder, rounds=1, seed=5, only=CHAIN)
    assert verdict.clean, verdict
    assert (line["rounds"], line["hot_rounds"]) == (1, 0)


@needs_cables
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_fault_is_survived(folder: Path) -> None:
    line, verdict = failover_test(folder, rounds=11, seed=5)
    assert verdict.clean, verdict
    assert line["acknowledged"]


@needs_cables
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("mutant", "only"),
    [*((mutant, "stall") for mutant in MUTANTS if mutant != NO_HOLD), (NO_HOLD, "hang"),
     (NO_FENCE, "send")],
)  # fmt: skip
def test_a_server_without_a_fence_is_caught(folder: Path, mutant: str, only: str) -> None:
    """Without the check, a higher epoch, or a hold, old orders are carried out.

    Orders that carry no epoch are carried out by nothing, once a leader has raised the fence as it took
    over: then the jobs that have tasks never run.
    """
    _, verdict = failover_test(folder, rounds=2, seed=5, mutant=mutant, only=only)
    assert verdict.lost if mutant == NO_EPOCH else verdict.stale_orders
