"""Who holds what, as compiled code counts it: books that are wrong are noticed before memory is."""

import pytest

from tests.support.build import cluster, job
from topmast.fast.region.inventory.allocation import Allocation, AllocationPhase
from topmast.fast.region.inventory.allocation_table import OVERDRAWN
from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.inventory.index import Pool, index_of
from topmast.model.fleet import RegionSpec
from topmast.model.job import Band, Level
from topmast.model.plan import Plan, Seat


def _attempt(name: str, hold: AllocationPhase, slots: tuple[int, ...]) -> Allocation:
    spec = job(name)
    seat = Seat(spec.groups[0].name, 0, "c-1-0", slots)
    plan = Plan(name, "east", "c-1", "H100", 1000 * len(slots), (seat,), Level.HOST, 1.0, {})
    return Allocation(plan, 1, spec, Band.LOW, 0.0, None, hold, [])


def _host() -> Columns:
    """One host of 4 GPUs, counted already."""
    columns = Columns(RegionSpec("east", (cluster("c-1", hosts=1, gpus=4),)))
    Pool().put(columns)
    assert index_of(columns).arrays.whole.tolist() == [4]
    return columns


def test_gpus_that_two_attempts_hold_are_refused() -> None:
    """Both could be stopped, and more GPUs would come free than there are: no count has room for that."""
    one, two = (_attempt(name, AllocationPhase.RUNNING, (0, 1, 2, 3)) for name in ("one", "two"))
    columns = _host()
    columns.hold(one)
    held = index_of(columns).holders.held
    before = held.cleared_hist.copy()
    with pytest.raises(RuntimeError, match=f"job two in region east: {OVERDRAWN}"):
        columns.hold(two)
    assert before.sum() > 0
    assert (held.cleared_hist <= before).all(), "nothing was counted where there is no place for it"


def test_a_claim_on_what_a_victim_still_holds_is_none_of_that() -> None:
    """The one who waits does not count as one who could be stopped, and the victim no longer does."""
    victim = _attempt("victim", AllocationPhase.STOPPING, (0, 1, 2, 3))
    waits = _attempt("waits", AllocationPhase.CLAIMED, (0, 1))
    columns = _host()
    held = index_of(columns).holders.held
    columns.hold(victim)
    columns.hold(waits)
    assert columns.slots(0).tolist() == [-1000, -1000, 0, 0]
    assert held.cleared.max() == 0
    columns.let_go(victim)
    waits.hold = AllocationPhase.RUNNING
    columns.note(waits)
    assert held.cleared.max() == 4
