"""The judge of the failover test, and that the test notices what it is there for."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.failover.load import stale_orders
from tests.failover.program import MUTANTS, NO_HOLD
from tests.failover.run import failover_test
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
    (tmp_path / "orders").write_text(orders)
    assert len(stale_orders(tmp_path)) == want_stale


@needs_cables
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_fault_is_survived(folder: Path) -> None:
    line, verdict = failover_test(folder, rounds=8, seed=5)
    assert verdict.clean, verdict
    assert line["acknowledged"]


@needs_cables
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_server_without_a_fence_is_caught(folder: Path, mutant: str) -> None:
    """Without the check, a higher epoch, orders that carry one, or a hold, old orders are carried out."""
    only = "hang" if mutant == NO_HOLD else "stall"
    _, verdict = failover_test(folder, rounds=2, seed=5, mutant=mutant, only=only)
    assert verdict.stale_orders
