"""Compiles the kernels, or loads what an earlier run compiled, so that no decision waits for it."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from topmast import jit
from topmast.fast.region.inventory.allocation import Allocation, AllocationPhase
from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.inventory.index import index_of
from topmast.fast.region.preemption.search import PreemptiveSearch
from topmast.fast.region.reservation.earliest import bounds_s
from topmast.fast.region.search import without_gpus
from topmast.fast.region.search.blocked_index import (
    FREE_ONLY,
    BlockedIndex,
    Needs,
    regions_with_room,
)
from topmast.fast.region.search.compiled import choices_in, costs_of
from topmast.fast.region.search.many import Supply, plans_of
from topmast.model.fleet import ClusterSpec, HostSpec, RegionSpec
from topmast.model.job import (
    MILLI,
    Accelerator,
    Band,
    JobSpec,
    Resources,
    TaskGroup,
    Topology,
)
from topmast.model.plan import Free, GroupRequest, PlacementRequest, Preempt, TaskShape
from topmast.model.states import HostState
from topmast.policies.options import Profile, ScoreWeights


def warm_up() -> None:
    """Ask one question of every kind about a region of two hosts."""
    load_one_group()
    load_mixed()


def is_compiled() -> bool:
    """Whether an earlier run compiled the kernels and left them beside the code."""
    return jit.are_kept("fast")


def load_one_group() -> None:
    """Gangs of one group with whole GPUs, where there is room, and where others have to go."""
    _load_free()
    _load_victims()


def _load_free() -> None:
    columns, held, search = _region()
    for cpus in (0.0, 1.0):
        attempt = _hold(columns, held, search, cpus, preempt=False)
        columns.let_go(held.pop(attempt.plan.job))
    shapes = (TaskShape(MILLI, 1.0, 0, (), 1.0),)
    profile = Profile("warm-up", score=ScoreWeights(shapes=True))
    shaped = PreemptiveSearch("r", columns, held, profile, 0, 0.0)
    share = GroupRequest("e", 1, Resources((Accelerator("G", MILLI // 2),)))
    for ask in (_ask(1.0, preempt=False), replace(_ask(0.0, preempt=False), groups=(share,))):
        assert shaped.best(replace(ask, shapes=shapes)) is not None
    _load_without_gpus(columns, replace(_ask(1.0, preempt=False), shapes=shapes))
    columns.watched = False
    columns.hold(attempt)
    columns.let_go(attempt)
    _load_many(columns, attempt)


def _load_without_gpus(columns: Columns, ask: PlacementRequest) -> None:
    """A task that may sit on hosts without GPUs."""
    index, weights = index_of(columns), ScoreWeights(shapes=True)
    ask = replace(ask, groups=(GroupRequest("r", 1, Resources(cpus=1.0)),))
    terms = {columns.region: ask.terms}
    costs = costs_of(index, terms, weights)
    assert without_gpus.best(index, ask, weights, terms, costs) is not None


def _load_many(columns: Columns, attempt: Allocation) -> None:
    """Gangs that come together."""
    index, ask = index_of(columns), _ask(0.0, preempt=False)
    terms, supply = {columns.region: ask.terms}, Supply({}, {})
    versions, weights = {columns.region: 0}, ScoreWeights()
    found = plans_of(index, [ask], ["j"], [0], terms, supply, weights, versions)
    together = replace(attempt, plan=found.plans[0])
    columns.watched = True
    columns.hold_each(found.seats, [together])
    columns.let_go(together)


def _load_victims() -> None:
    columns, held, search = _region()
    for cpus in (0.0, 1.0):
        for preempt in (False, True):
            attempt = _hold(columns, held, search, cpus, preempt)
            assert search.best(_ask(cpus, preempt=True)) is not None
            columns.let_go(held.pop(attempt.plan.job))
    _load_what_seldom_happens(columns, held, search)


def _load_what_seldom_happens(
    columns: Columns, held: dict[str, Allocation], search: PreemptiveSearch
) -> None:
    """Victims of one host, and a host that fails and returns."""
    attempt = _hold(columns, held, search, 0.0, preempt=False)
    single = PlacementRequest(
        "", (GroupRequest("g", 1, _needs(0.0)),), Topology(), Band.NORMAL, Preempt()
    )
    assert search.best(single) is not None
    for state in (HostState.DOWN, HostState.HEALTHY):
        columns.set_state(columns.hosts[0].name, state)
    columns.let_go(held.pop(attempt.plan.job))


def load_mixed() -> None:
    """Gangs of several groups and of shares, without and with victims, and gangs that have to wait.

    In this order, for the other process meanwhile compiles what room for a victim needs.
    """
    columns, held, search = _region()
    assert search.best(_mixed_ask(preempt=False)) is not None
    attempt = _hold(columns, held, search, 0.0, preempt=False)
    columns.note(attempt)
    assert search.best(_mixed_ask(preempt=True)) is not None
    columns.let_go(held.pop(attempt.plan.job))
    _look_for_room(columns, _ask(0.0, preempt=False))


def _region() -> tuple[Columns, dict[str, Allocation], PreemptiveSearch]:
    hosts = tuple(HostSpec(f"h{i}", "G", 2, cpus=2.0, rack="r") for i in range(2))
    columns = Columns(RegionSpec("r", (ClusterSpec("c", hosts),)))
    held: dict[str, Allocation] = {}
    columns.allocations = held
    profile = Profile("warm-up", min_runtime_s=0.0, score=ScoreWeights(allocated_cpus=1.0))
    return columns, held, PreemptiveSearch("r", columns, held, profile, 0, 0.0)


def _hold(
    columns: Columns,
    held: dict[str, Allocation],
    search: PreemptiveSearch,
    cpus: float,
    preempt: bool,
) -> Allocation:
    """All of the region, for an opportunistic gang."""
    plan = search.best(_ask(cpus, preempt))
    assert plan is not None
    spec = JobSpec("", (TaskGroup("g", 2, _needs(cpus), "true"),), band=Band.OPPORTUNISTIC)
    attempt = Allocation(plan, 1, spec, Band.OPPORTUNISTIC, 0.0, None, AllocationPhase.RUNNING, [])
    held[plan.job] = attempt
    columns.hold(attempt)
    return attempt


def _look_for_room(columns: Columns, ask: PlacementRequest) -> None:
    """When there will be room, and the jobs that room may help."""
    index = index_of(columns)
    assert bounds_s(index, ask, ["r"], 0.0, 0.0) == {}  # no attempt is there to go
    index.holders.refresh_each(np.zeros(1, np.int64))
    index.old_enough_at_s(ask.band, 0.0, 0.0)
    blocked = BlockedIndex()
    needs = Needs(1, FREE_ONLY, choices_in(index, ask))
    blocked.block(0, None, needs)
    assert blocked.take_helped(index, [0]) == (0,)
    assert regions_with_room(index, needs)


def _needs(cpus: float) -> Resources:
    return Resources((Accelerator("G", 2 * MILLI),), cpus)


def _mixed_ask(preempt: bool) -> PlacementRequest:
    """Two groups and a share: trainers, a reader without GPUs, an evaluation."""
    share = Resources((Accelerator("G", MILLI // 2),))
    groups = (
        GroupRequest("g", 1, Resources((Accelerator("G", 2 * MILLI),))),
        GroupRequest("r", 1, Resources(cpus=1.0)),
        GroupRequest("e", 1, share),
    )
    return PlacementRequest("", groups, Topology(), Band.NORMAL, Preempt() if preempt else Free())


def _ask(cpus: float, preempt: bool) -> PlacementRequest:
    mode = Preempt() if preempt else Free()
    return PlacementRequest(
        "", (GroupRequest("g", 2, _needs(cpus)),), Topology(), Band.NORMAL, mode
    )
