"""Moving running work: to make room for a gang that fits nowhere, and off hosts to be emptied.

An attempt that is moved stops as if preempted, with its checkpoint, and goes on at a place found
beforehand in the same region, on its GPU model. A move for a gang has to be worth it: its cost
(lost work, restarts, a worse place) against what room for the gang is worth (`Move`).

None is moved to where another that moves is now: a place is free already, or the mover's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from topmast.fast.preemption_cost import points
from topmast.fast.region.inventory.allocation import Allocation, AllocationPhase
from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.inventory.index import index_of
from topmast.fast.region.inventory.overlay import Overlay
from topmast.fast.region.preemption.plain import PlainPreemption
from topmast.fast.region.preemption.price import MOVE, STOP_OUTRANKED, cost_gpu_s, old_enough_s
from topmast.fast.region.preemption.search import PreemptiveSearch
from topmast.fast.region.search import compiled
from topmast.fast.region.search.scoring import score_terms, total
from topmast.model.job import MILLI, Accelerator, Resources, needs_of_engine
from topmast.model.plan import Free, GroupRequest, PlacementRequest, Plan, Preempt, Seat, needs_of
from topmast.policies.options import Profile

SETS_TRIED = 16
"""Sets of movers to seek places for, each the cheapest without those that found none before."""
SINGLES_TRIED = 64
"""Attempts of which each is tried as the only mover, the cheapest first."""


class Departure(Struct, frozen=True):
    """An attempt on a host that is drained: where it can go on, or why it does not leave now.

    ``cost_gpu_s``: what it would lose, its restart included, in GPU-seconds of whatever band.
    """

    job: str
    epoch: int
    hosts: tuple[str, ...]
    cost_gpu_s: float
    to: Plan | None = None
    why: str = ""
    may_stop: bool = False
    """Whether it could be stopped without having a place."""


# --- room for a gang ------------------------------------------------------------------------------


def room_for(search: PreemptiveSearch, ask: PlacementRequest, worth_gpu_s: float) -> Plan | None:
    """The plan of a gang that fits nowhere, with the attempts that move for it, if worth it.

    First sets: the victims of least score among all that may be moved, by the preemption search;
    then again without the one that found no place. Then each attempt alone.
    O((SETS_TRIED + SINGLES_TRIED) searches).
    """
    movable = {a.job: a for a in _movable(search, worth_gpu_s)}
    if not movable or search.best(msgspec.structs.replace(ask, mode=Free())) is not None:
        return None
    among = dict(movable)
    for _ in range(SETS_TRIED):
        plan, stuck = _moving(search, ask, among, worth_gpu_s)
        if plan is not None or stuck is None:
            break
        del among[stuck]
    if plan is not None:
        return plan
    singles = sorted(
        (cost_gpu_s(a, search.profile, search.now), job)
        for job, a in movable.items()
        if _may_make_room(search.columns, ask, a)
    )
    for _, job in singles[:SINGLES_TRIED]:
        plan, _ = _moving(search, ask, {job: movable[job]}, worth_gpu_s)
        if plan is not None:
            return plan
    return None


def is_worth(profile: Profile, plan: Plan, worth_gpu_s: float) -> bool:
    """Whether room for the gang is worth more than moving costs, times what the profile demands."""
    worth = points(worth_gpu_s, profile.score.preemption)
    return moving_cost(plan) * profile.defragment_gain < worth


def moving_cost(plan: Plan) -> float:
    """What moving others for this plan costs, in points of the score."""
    return plan.terms["preemption"] + plan.terms.get("migration", 0.0)


def _movable(search: PreemptiveSearch, worth_gpu_s: float) -> list[Allocation]:
    """Attempts that may move: of any band, old enough, of no more cost than worth. O(attempts)."""
    profile, now = search.profile, search.now
    return [
        a
        for a in search.allocations.values()
        if a.may_stop
        and old_enough_s(a, profile) <= now
        and cost_gpu_s(a, profile, now) * profile.defragment_gain < worth_gpu_s
        and is_whole(search.columns, a)
    ]


def is_whole(columns: Columns, allocation: Allocation) -> bool:
    """Whether all that an attempt holds is still there: a new configuration may have taken some."""
    rows = [(columns.find(s.host, allocation.plan.in_slice), s) for s in allocation.plan.seats]
    return all(
        row is not None and all(slot < columns.gpus[row] for slot in seat.slots)
        for row, seat in rows
    )


def _may_make_room(columns: Columns, ask: PlacementRequest, allocation: Allocation) -> bool:
    """Whether a host of an attempt could take more tasks without it: a must for a single mover."""
    needs = ask.groups[0].resources
    if not compiled.is_plain(ask) or needs.cpus > 0 or needs.memory_bytes > 0:
        return True
    overlay, plan = Overlay(columns, [allocation]), allocation.plan
    for host in plan.hosts:
        row = columns.row(host, plan.in_slice)
        before = int((columns.slots(row) == MILLI).sum())
        after = int((overlay.slots(row) == MILLI).sum())
        sizes = (a.gpus_milli // MILLI for a in needs.accelerators)
        if any(after // gpus > before // gpus for gpus in sizes):
            return True
    return False


def _moving(
    search: PreemptiveSearch,
    ask: PlacementRequest,
    among: Mapping[str, Allocation],
    worth_gpu_s: float,
) -> tuple[Plan | None, str | None]:
    """The cheapest plan that moves some of these; or, without one, the job to keep, if any."""
    cleared = _cleared(search, ask, among)
    if cleared is None or not cleared.victims:
        return None, None
    plan, stuck = _with_places(search, ask, cleared)
    if plan is None:
        return None, stuck
    if is_worth(search.profile, plan, worth_gpu_s):
        return plan, None
    return None, max(plan.victims, key=lambda v: (v.lost_gpu_s, v.job)).job


def _cleared(
    search: PreemptiveSearch, ask: PlacementRequest, among: Mapping[str, Allocation]
) -> Plan | None:
    """The plan of least score that stops some of these, whatever their bands."""
    columns, profile = search.columns, search.profile
    known = columns.watched and columns.allocations is search.allocations
    stopping = msgspec.structs.replace(ask, mode=Preempt(tuple(among)))
    if not (compiled.applies(ask, profile.score) and known):
        apart = PreemptiveSearch(search.region, columns, among, profile, search.version, search.now)
        return apart.best(stopping)
    index, weights = index_of(columns), profile.score
    costs = compiled.costs_of(index, {search.region: ask.terms}, weights, profile.slices.price)
    found = PlainPreemption(index, stopping, profile, weights, costs, search.now, MOVE).best()
    return None if found is None else search.plan_of(ask, index, found)


def _with_places(
    search: PreemptiveSearch, ask: PlacementRequest, cleared: Plan
) -> tuple[Plan | None, str | None]:
    """The plan with a place for each that moves, the largest first; or the job that finds none."""
    profile, now = search.profile, search.now
    trial = search.columns.trial()
    trial.take(cleared.seats, needs_of(ask.groups), cleared.in_slice)
    moves, change = [], 0.0
    for victim in sorted(cleared.victims, key=lambda v: size_of(search.allocations[v.job])):
        allocation = search.allocations[victim.job]
        to = place_for(search, trial, allocation)
        if to is None:
            return None, victim.job
        trial.take(to.seats, allocation.needs(), to.in_slice)
        change += to.score - _score_now(search, allocation)
        lost_gpu_s = cost_gpu_s(allocation, profile, now)
        moves.append(msgspec.structs.replace(victim, lost_gpu_s=lost_gpu_s, to=to))
    lost = sum(move.lost_gpu_s for move in moves)
    terms = {
        **cleared.terms,
        "preemption": points(lost, profile.score.preemption),
        "migration": change,
    }
    moves.sort(key=lambda move: move.job)
    plan = msgspec.structs.replace(cleared, victims=tuple(moves), terms=terms, score=total(terms))
    return plan, None


def size_of(allocation: Allocation) -> tuple[int, int, str]:
    """The order in which places are sought: the largest first."""
    return (-allocation.plan.gpus_milli, -len(allocation.plan.seats), allocation.job)


# --- a place for one attempt ----------------------------------------------------------------------


def place_for(search: PreemptiveSearch, trial: Columns, allocation: Allocation) -> Plan | None:
    """The best place for a running attempt in ``trial``, where it may sit on what it holds itself.

    Its own seats count as taken again afterwards. O(a search).
    """
    needs, plan = allocation.needs(), allocation.plan
    trial.give_back(plan.seats, needs, plan.in_slice)
    there = PreemptiveSearch(search.region, trial, {}, search.profile, search.version, search.now)
    found = there.best(as_it_runs(search.columns, allocation))
    trial.take(plan.seats, needs, plan.in_slice)
    return found


def as_it_runs(columns: Columns, allocation: Allocation) -> PlacementRequest:
    """The question about a place like an attempt's: on its GPU model, for as many tasks."""
    first: dict[str, Seat] = {}
    for seat in allocation.plan.seats:
        first.setdefault(seat.group, seat)
    groups = tuple(
        GroupRequest(
            g.name,
            allocation.plan.tasks_of(g.name) if g.is_elastic else g.count,
            _held(columns, allocation, g.resources, first[g.name]),
        )
        for g in allocation.spec.groups
    )
    spec = allocation.spec
    return PlacementRequest(
        allocation.job, groups, spec.topology, allocation.band, needs=needs_of_engine(spec)
    )


def _held(columns: Columns, allocation: Allocation, needs: Resources, seat: Seat) -> Resources:
    """What a task needs, with the accelerator that it was given."""
    if not seat.slots:
        return needs
    row = columns.index.get(seat.host)
    model = allocation.plan.model if row is None else str(columns.models[row])
    own = Accelerator(model, len(seat.slots) * seat.slot_milli)
    return msgspec.structs.replace(needs, accelerators=(own,))


def _score_now(search: PreemptiveSearch, allocation: Allocation) -> float:
    """The score of the place that an attempt has, as `place_for` would see it."""
    there = Overlay(search.columns, [allocation])
    ask, plan = as_it_runs(search.columns, allocation), allocation.plan
    weights, level, at = search.profile.score, plan.level, plan.in_slice
    terms = score_terms(ask, weights, there, plan.seats, level, 0, 0.0, at)
    return total(terms)


# --- hosts that are to be empty -------------------------------------------------------------------


def departures(search: PreemptiveSearch, hosts: Iterable[str]) -> tuple[Departure, ...]:
    """What becomes of each attempt on hosts that are drained, the largest first.

    Age and worth do not matter: an operator decides. O(attempts + region + movable x search).
    """
    emptied = set(hosts)
    gone = search.columns.rows_of(sorted(emptied))
    here = [a for a in search.allocations.values() if not emptied.isdisjoint(a.plan.hosts)]
    trial: Columns | None = None
    found = []
    for allocation in sorted(here, key=size_of):
        why = _stays(allocation)
        to = None
        if not why:
            trial = trial or search.columns.trial().avoiding(gone)
            to = place_for(search, trial, allocation)
            if to is None:
                why = f"no other hosts in region {search.region} have room for it now"
            else:
                trial.take(to.seats, allocation.needs(), to.in_slice)
        found.append(
            Departure(
                job=allocation.job,
                epoch=allocation.epoch,
                hosts=allocation.plan.hosts,
                cost_gpu_s=cost_gpu_s(allocation, search.profile, search.now, STOP_OUTRANKED),
                to=to,
                why=why,
                may_stop=allocation.may_stop,
            )
        )
    return tuple(found)


def _stays(allocation: Allocation) -> str:
    """Why an attempt is never moved, as a clause about the job; empty if it may be."""
    if allocation.hold is AllocationPhase.STOPPING:
        return "it is already stopping"
    if not allocation.spec.preemptible:
        return "it may not be preempted, so it runs to its end"
    if allocation.hold is AllocationPhase.CLAIMED:
        return "it has not started, so it goes back to the queue"
    return ""
