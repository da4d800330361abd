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
from topmast.fast.region.preemption.moving import GOING, as_it_runs, is_whole, size_of
from topmast.fast.region.preemption.price import cost_gpu_s
from topmast.fast.region.search.packing import gpus_of_task
from topmast.fast.region.search.scoring import total
from topmast.fast.region.search.search import Search, choices_of
from topmast.fast.region.search.sizes import largest
from topmast.model.bisection import fewest_with
from topmast.model.job import Band, TaskGroup, speed_of_size
from topmast.model.plan import Free, More, PlacementRequest, Plan, Victim
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
    lacking = _lacking_milli(search.columns, ask)
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


def _lacking_milli(columns: Columns, ask: PlacementRequest) -> int:
    """The gang's least need beyond all free GPUs, in thousandths. O(slots + choices x groups)."""
    wanted = [
        sum(group.count * gpus_of_task(group.resources, choice) for group in ask.groups)
        for choice in choices_of(ask)
    ]
    return min(wanted, default=0) - int(columns.free_by_host()[columns.available].sum())


def _spare_milli(allocation: Allocation, band: Band) -> int:
    """Thousandths of GPUs that an attempt may give to work of a band. O(seats)."""
    elastic, plan = allocation.spec.elastic, allocation.plan
    assert elastic is not None
    tasks = plan.tasks_of(elastic.name) - least_tasks(elastic, allocation.band, band)
    return tasks * plan.milli_per_task(elastic.name)


def least_tasks(group: TaskGroup, own: Band, other: Band) -> int:
    """How many tasks of an elastic group stay while work of band ``other`` waits.

    To work of a lower band it gives only what it has beyond its count.
    """
    return group.least if other >= own else group.count


def _may_shrink(search: Search, band: Band, allocation: Allocation) -> bool:
    elastic = allocation.spec.elastic
    if elastic is None or not allocation.spec.preemptible or allocation.hold not in GOING:
        return False
    tasks = allocation.plan.tasks_of(elastic.name)
    settled = allocation.start_s + search.profile.elastic.settle_s <= search.now
    spare = tasks > least_tasks(elastic, allocation.band, band)
    return settled and spare and is_whole(search.columns, allocation)


def _with_smaller(
    search: Search, ask: PlacementRequest, among: Sequence[Allocation]
) -> Plan | None:
    """The gang's best plan once these have given tasks away, each as few as need be, if any."""
    trial = search.columns.trial()
    for allocation in among:
        trial.give_back(allocation.plan.seats, allocation.needs(), allocation.plan.in_slice)
    there = Search(search.region, trial, {}, search.profile, search.version, search.now)
    found = there.best(replace(ask, mode=Free())).plan
    if found is None:
        return None
    needs = {group.name: group.resources for group in ask.groups}
    trial.take(found.seats, needs, found.in_slice)
    places: dict[str, Plan] = {}
    ordered = sorted(among, key=size_of)
    for allocation in ordered:
        place = there.best(_sized(search.columns, allocation, ask.band)).plan
        if place is None:
            return None
        trial.take(place.seats, allocation.needs(), place.in_slice)
        places[allocation.job] = place
    for allocation in ordered:
        place = places[allocation.job]
        trial.give_back(place.seats, allocation.needs(), place.in_slice)
        kept = _sized(search.columns, allocation, ask.band, up_to_now=True)
        place = largest(kept, lambda question: there.best(question).plan)
        assert place is not None, "what it sat on is free"
        trial.take(place.seats, allocation.needs(), place.in_slice)
        places[allocation.job] = place
    return _priced(search, found, among, places)


def _sized(
    columns: Columns, allocation: Allocation, band: Band, up_to_now: bool = False
) -> PlacementRequest:
    """The question about a place with an attempt's fewest tasks; ``up_to_now``: or with more."""
    ask, elastic = as_it_runs(columns, allocation), allocation.spec.elastic
    assert elastic is not None
    at = allocation.spec.groups.index(elastic)
    groups, tasks = list(ask.groups), ask.groups[at].count
    groups[at] = replace(groups[at], count=least_tasks(elastic, allocation.band, band))
    more = More(at, ((0, tasks),)) if up_to_now else None
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
    if not is_whole(search.columns, allocation):
        return None
    ask = as_it_runs(search.columns, allocation)
    at = allocation.spec.groups.index(elastic)
    groups, tasks = list(ask.groups), ask.groups[at].count
    if most <= tasks:
        return None
    groups[at] = replace(groups[at], count=tasks + 1)
    trial = search.columns.trial()
    trial.give_back(allocation.plan.seats, allocation.needs())
    there = Search(search.region, trial, {}, search.profile, search.version, search.now)
    larger = replace(ask, groups=tuple(groups), mode=Free(More(at, ((0, most),))))
    plan = largest(larger, lambda question: there.best(question).plan)
    if plan is None or not is_worth(search.profile, allocation, plan, search.now):
        return None
    return plan


def is_worth(profile: Profile, allocation: Allocation, to: Plan, now: float) -> bool:
    """Whether the time that more tasks save is worth the restart and the work that it loses."""
    elastic = allocation.spec.elastic
    assert elastic is not None
    efficiency = profile.elastic.efficiency
    before = speed_of_size(elastic, allocation.plan.tasks_of(elastic.name), efficiency)
    after = speed_of_size(elastic, to.tasks_of(elastic.name), efficiency)
    left_s = expected_end_s(allocation, profile.default_duration_s, now) - now
    kept_from_s = allocation.kept_from_s()
    lost_s = 0.0 if kept_from_s is None else max(0.0, now - kept_from_s)
    saved_s = left_s * (1.0 - before / after)
    return saved_s > profile.elastic.gain * (profile.restart_cost_s + lost_s)
