"""Running jobs in the order of the waiting ones."""

import pytest

from tests.support.build import job
from topmast.fast.queue.cycle.running_order import running_order
from topmast.fast.queue.jobs.record import JobRecord

RUNNING = [JobRecord(f"j{i}", i, job(), 0.0) for i in (1, 2, 3, 4)]
KEYS: list[tuple[float, ...]] = [(5.0, 1.0), (2.0, 2.0), (7.0, 3.0), (5.0, 4.0)]


@pytest.mark.parametrize(
    ("key", "want"),
    [
        ((0.0, 0.0), ("j3", "j4", "j1", "j2")),
        ((2.0, 2.0), ("j3", "j4", "j1")),
        ((5.0, 1.0), ("j3", "j4")),
        ((6.0, 0.0), ("j3",)),
        ((7.0, 3.0), ()),
    ],
)
def test_those_behind_a_key(key: tuple[float, ...], want: tuple[str, ...]) -> None:
    """The last comes first; one of the same rank is not behind."""
    assert running_order((0.0, 0, 0), KEYS, RUNNING).behind(key) == want
