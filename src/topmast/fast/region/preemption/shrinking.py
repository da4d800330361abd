"""Elastic attempts in another size: smaller, to make room for a gang, or larger, on idle GPUs.

An attempt that changes its size stops as if preempted, with its checkpoint, and goes on at a place
kept for it, as in `moving`: on its GPU model, on seats that are free or its own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from msgspec.structs import replace

from topmast.fast.preemption_cost import points
from topmast.fast.region.inventory.allocation import Allocation, AllocationPhase, expected_end_s
from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.preemption.moving import as_it_runs, is_whole, size_of
from topmast.fast.region.preemption.price import cost_gpu_s
from topmast.fast.region.search.scoring import total
from topmast.fast.region.search.search import Search, fewest_gpus_milli
from topmast.fast.region.search.sizes import largest
from topmast.model.bisection import fewest_with
from topmast.model.job import Band, TaskGroup, speed_of_size
from topmast.model.plan import Free, More, PlacementRequest, Plan, Victim, needs_of
from topmast.policies.options import Profile

SINGLES_TRIED = 32
"""Attempts of which each is tried as the only one that gives way, the cheapest first."""


# --- smaller --------------------------------------------------------------------------------------


def room_by_shrinking(search: Search, ask: PlacementRequest) -> Plan | None:
    """The plan of a gang for which elastic attempts give tasks away; None if that makes no room.

    First each attempt alone, the cheapest first; then as few as will do, from the cheapest on:
    often not the set of least cost. Sets that leave too few GPUs in all are not tried.
    O((SINGLES_TRIED + log attempts) x attempts of the set x log tasks) searches.
    """
    able = sorted(
        (a for a in search.allocations.values() if _may_shrink(search, ask.band, a)),
        key=lambda a: (cost_gpu_s(a, search.profile, search.now), a.job),
    )
    free_milli = search.columns.free_by_host()[search.columns.available].sum()
    lacking = fewest_gpus_milli(ask) - int(free_milli)
    spare = [_spare_milli(allocation, ask.band) for allocation in able]
    alone = [a for a, milli in zip(able, spare, strict=True) if milli >= lacking]
    for allocation in alone[:SINGLES_TRIED]:
        plan = _with_smaller(search, ask, [allocation])
        if plan is not None:
            return plan
    # So many are not enough, and one more may well be.
    too_few = max(1, bisect_left(list(accumulate(spare)), lacking))
    found = fewest_with(
        lambda count: _with_smaller(search, ask, able[:count]), len(able), too_few, too_few + 1
    )
    return None if found is None else found[1]


def _spare_milli(allocation: Allocation, band: Band) -> int:
    """Thousandths of GPUs that an attempt may give to work of a band. O(seats)."""
    elastic = elastic_of(allocation)
    tasks = tasks_of(allocation) - least_tasks(elastic, allocation.band, band)
    return tasks * allocation.plan.milli_per_task(elastic.name)


def least_tasks(group: TaskGroup, own: Band, other: Band) -> int:
    """How many tasks of an elastic group stay while work of band ``other`` waits.

    To work of a lower band it gives only what it has beyond its count.
    """
    return group.least if other >= own else group.count


def _may_shrink(search: Search, band: Band, allocation: Allocation) -> bool:
    elastic = allocation.spec.elastic
    if elastic is None or not allocation.may_stop:
        return False
    settled = allocation.start_s + search.profile.elastic.settle_s <= search.now
    spare = tasks_of(allocation) > least_tasks(elastic, allocation.band, band)
    return settled and spare and is_whole(search.columns, allocation)


def _with_smaller(
    search: Search, ask: PlacementRequest, among: Sequence[Allocation]
) -> Plan | None:
    """The gang's best plan once these have given tasks away, each as few as need be, if any."""
    trial = search.columns.without(among)
    there = Search(search.region, trial, {}, search.profile, search.version, search.now)
    found = there.best(replace(ask, mode=Free()))
    if found is None:
        return None
    trial.take(found.seats, needs_of(ask.groups), found.in_slice)
    places: dict[str, Plan] = {}
    ordered = sorted(among, key=size_of)
    for allocation in ordered:
        least = least_tasks(elastic_of(allocation), allocation.band, ask.band)
        place = there.best(of_size(search.columns, allocation, least))
        if place is None:
            return None
        trial.take(place.seats, allocation.needs(), place.in_slice)
        places[allocation.job] = place
    for allocation in ordered:
        place = places[allocation.job]
        trial.give_back(place.seats, allocation.needs(), place.in_slice)
        least = least_tasks(elastic_of(allocation), allocation.band, ask.band)
        kept = of_size(search.columns, allocation, least, tasks_of(allocation))
        place = largest(kept, lambda question: there.best(question))
        assert place is not None, "what it sat on is free"
        trial.take(place.seats, allocation.needs(), place.in_slice)
        places[allocation.job] = place
    return _priced(search, found, among, places)


def of_size(
    columns: Columns, allocation: Allocation, fewest: int, most: int | None = None
) -> PlacementRequest:
    """The question about a place like an attempt's, with so many elastic tasks."""
    ask, elastic = as_it_runs(columns, allocation), allocation.spec.elastic
    assert elastic is not None, allocation.job
    at, groups = allocation.spec.groups.index(elastic), list(ask.groups)
    groups[at] = replace(groups[at], count=fewest)
    more = None if most is None else More(at, ((0, most),))
    return replace(ask, groups=tuple(groups), mode=Free(more))


def _priced(
    search: Search, found: Plan, among: Sequence[Allocation], places: dict[str, Plan]
) -> Plan:
    """The plan with the attempts that change their seats, and the cost in terms of preemption."""
    changed = [a for a in among if _where(places[a.job]) != _where(a.plan)]
    smaller = tuple(
        Victim(a.job, a.epoch, cost_gpu_s(a, search.profile, search.now), places[a.job])
        for a in sorted(changed, key=lambda a: a.job)
    )
    lost_gpu_s = sum(victim.lost_gpu_s for victim in smaller)
    price = points(lost_gpu_s, search.profile.score.preemption)
    terms = {**found.terms, "preemption": price}
    return replace(found, victims=smaller, terms=terms, score=total(terms))


def _where(plan: Plan) -> tuple[int, list[tuple[str, str, tuple[int, ...]]]]:
    return plan.in_slice, sorted((seat.group, seat.host, seat.slots) for seat in plan.seats)


# --- larger ---------------------------------------------------------------------------------------


def larger_place(search: Search, allocation: Allocation, most: int) -> Plan | None:
    """The place with the most tasks, up to ``most``, for a running attempt; None if not worth it.

    O(log tasks) searches.
    """
    elastic = allocation.spec.elastic
    if elastic is None or allocation.hold is not AllocationPhase.RUNNING:
        return None
    fewest = tasks_of(allocation) + 1
    if most < fewest or not is_whole(search.columns, allocation):
        return None
    trial = search.columns.without((allocation,))
    there = Search(search.region, trial, {}, search.profile, search.version, search.now)
    larger = of_size(search.columns, allocation, fewest, most)
    plan = largest(larger, lambda question: there.best(question))
    if plan is None or not is_worth(search.profile, allocation, plan, search.now):
        return None
    return plan


def is_worth(profile: Profile, allocation: Allocation, to: Plan, now: float) -> bool:
    """Whether the time that more tasks save is worth the restart and the work that it loses."""
    left_s = expected_end_s(allocation, profile.default_duration_s, now) - now
    saved_s = left_s * (1.0 - speed(profile, allocation) / speed(profile, allocation, to))
    return saved_s > profile.elastic.gain * (profile.restart_cost_s + allocation.lost_s(now))


def elastic_of(allocation: Allocation) -> TaskGroup:
    """The elastic group of an elastic gang."""
    elastic = allocation.spec.elastic
    assert elastic is not None, allocation.job
    return elastic


def tasks_of(allocation: Allocation) -> int:
    """How many elastic tasks a gang has."""
    return allocation.plan.tasks_of(elastic_of(allocation).name)


def speed(profile: Profile, allocation: Allocation, to: Plan | None = None) -> float:
    """The expected speed of a gang with its tasks, or with those of another plan."""
    elastic = elastic_of(allocation)
    tasks = (to or allocation.plan).tasks_of(elastic.name)
    return speed_of_size(elastic, tasks, profile.elastic.efficiency)
