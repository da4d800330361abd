"""What a move promises, on small random regions: room for the gang, a place for each, and a gain."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations_with_replacement

import msgspec
from hypothesis import event, given
from hypothesis import strategies as st

from tests.support.build import ask, gang, job, needs, profile
from tests.support.crowd import all_seated, crowded_columns, run_jobs
from tests.support.strategies import bounded
from topmast.fast.region.inventory.allocation import GOING, Allocation
from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.inventory.overlay import Overlay
from topmast.fast.region.preemption.moving import (
    as_it_runs,
    departures,
    is_worth,
    moving_cost,
    room_for,
)
from topmast.fast.region.preemption.price import cost_gpu_s
from topmast.fast.region.preemption.search import PreemptiveSearch
from topmast.model.job import Band, Level, Resources, Topology
from topmast.model.plan import Move, PlacementRequest, Plan, Seat
from topmast.policies.options import ScoreWeights

NOW = 1_000.0
WEIGHTS = ScoreWeights(preemption=50.0, locality=0.7, fragmentation=0.3)
OPTIONS = profile(score=WEIGHTS, restart_cost_s=20.0, min_runtime_s=100.0, defragment_gain=1.5)


def _question(rng: random.Random) -> PlacementRequest:
    task = needs(rng.choice((1, 2, 4, 4, 8)), "H100", cpus=rng.choice((0.0, 0.0, 1.0, 3.0)))
    spec = job(
        count=rng.randint(1, 3), resources=task, band=rng.choice((Band.LOW, Band.HIGH)),
        topology=Topology(rng.choice((None, None, *Level)), rng.choice((None, *Level))),
    )  # fmt: skip
    return ask(spec, mode=Move(rng.choice((500.0, 5_000.0, 1e5))))


def _odd_question(rng: random.Random) -> PlacementRequest:
    """A gang of two groups, or of shares: those that no kernel searches."""
    shares = needs(rng.choice((0.5, 0.7)), "H100")
    two = {"main": (1, needs(rng.choice((2, 4)))), "more": (rng.randint(1, 2), needs(1, cpus=1.0))}
    spec = job(count=rng.randint(1, 4), resources=shares) if rng.random() < 0.4 else gang(two)
    return ask(spec, mode=Move(rng.choice((5_000.0, 1e5))))


def _region(rng: random.Random) -> PreemptiveSearch:
    columns = crowded_columns(rng)
    held = run_jobs(rng, columns)
    return PreemptiveSearch("east", columns, held, OPTIONS, 0, NOW)


def worth(question: PlacementRequest) -> float:
    """What room is worth, by the request."""
    assert isinstance(question.mode, Move)
    return question.mode.worth_gpu_s


def _case(seed: int) -> tuple[PreemptiveSearch, PlacementRequest]:
    rng = random.Random(seed)
    return _region(rng), _question(rng)


@bounded(300)
@given(st.integers(0, 2**32 - 1))
def test_odd_gangs_get_moves_that_can_be_carried_out(seed: int) -> None:
    """Gangs that are searched domain by domain: the same promises."""
    rng = random.Random(seed)
    search, question = _region(rng), _odd_question(rng)
    _can_be_carried_out(search, question, room_for(search, question, worth(question)))


@bounded(1_500)
@given(st.integers(0, 2**32 - 1))
def test_a_move_that_is_proposed_can_be_carried_out(seed: int) -> None:
    """All movers and the gang have seats beside all others; each mover keeps its terms; it pays."""
    search, question = _case(seed)
    columns = search.columns
    before = [columns.free_milli.copy(), columns.free_cpus.copy(), columns.available.copy()]
    plan = room_for(search, question, worth(question))
    event("none" if plan is None else f"{len(plan.victims)} movers")
    after = [columns.free_milli, columns.free_cpus, columns.available]
    assert all((a == b).all() for a, b in zip(before, after, strict=True))
    _can_be_carried_out(search, question, plan)


def _can_be_carried_out(
    search: PreemptiveSearch, question: PlacementRequest, plan: Plan | None
) -> None:
    if plan is None:
        return
    held, columns = search.allocations, search.columns
    assert search.best(question) is None, "it fits without"
    assert plan.victims
    assert moving_cost(plan) * 1.5 < WEIGHTS.preemption * worth(question) / 3600.0
    assert is_worth(OPTIONS, plan, worth(question))
    stays = Overlay(columns)
    for move in plan.victims:
        assert move.to is not None
        mover = held[move.job]
        assert mover.spec.preemptible
        assert mover.hold in GOING
        assert mover.start_s + OPTIONS.min_runtime_s <= NOW
        _suits(columns, mover, move.to)
        stays.give_back(mover.plan.seats, mover.needs())
    _has_room(stays, plan, {g.name: g.resources for g in question.groups})
    for move in plan.victims:
        assert move.to is not None
        _has_room(stays, move.to, held[move.job].needs())


def _has_room(overlay: Overlay, plan: Plan, needed: dict[str, Resources]) -> None:
    """Take the seats; nothing of them is overdrawn, and their hosts take work."""
    overlay.take(plan.seats, needed)
    for seat in plan.seats:
        assert not overlay.overdrawn(seat, needed[seat.group])
        assert overlay.columns.take_work((seat.host,))


def _suits(columns: Columns, mover: Allocation, to: Plan) -> None:
    """As many tasks as before, on as many GPUs, as near as required, and nobody else's old seats."""
    assert [(s.group, len(s.slots), s.slot_milli) for s in to.seats] == [
        (s.group, len(s.slots), s.slot_milli) for s in mover.plan.seats
    ]
    required = mover.spec.topology.required
    assert required is None or to.level <= required
    free = Overlay(columns)
    free.give_back(mover.plan.seats, mover.needs())
    free.take(to.seats, mover.needs())
    assert not any(free.overdrawn(s, mover.needs()[s.group]) for s in to.seats)


def _seatings(
    columns: Columns, overlay: Overlay, question: PlacementRequest
) -> Iterator[tuple[Seat, ...]]:
    """Every way to seat a gang of one group, by the hosts used."""
    (group,) = question.groups
    for name in sorted(columns.clusters):
        rows = [r for r in columns.clusters[name].tolist() if columns.available[r]]
        for spread in combinations_with_replacement(rows, group.count):
            level = next(
                lv for lv in Level if len({int(columns.domain[lv][row]) for row in spread}) == 1
            )
            required = question.topology.required
            if required is None or level <= required:
                seats = all_seated(columns, overlay, spread, group)
                if seats is not None:
                    yield seats


def _single_movers(search: PreemptiveSearch, question: PlacementRequest) -> list[str]:
    """The attempts each of which, moved alone, makes room for the gang in some way."""
    columns, found = search.columns, []
    resources = {g.name: g.resources for g in question.groups}
    for name, mover in search.allocations.items():
        may = mover.start_s + OPTIONS.min_runtime_s <= NOW and mover.spec.preemptible
        cost = cost_gpu_s(mover, OPTIONS, NOW) * OPTIONS.defragment_gain
        if not may or mover.hold not in GOING or cost >= worth(question):
            continue
        overlay = Overlay(columns)
        overlay.give_back(mover.plan.seats, mover.needs())
        own = as_it_runs(columns, mover)
        for seats in list(_seatings(columns, overlay, question)):
            overlay.take(seats, resources)
            fits = next(_seatings(columns, overlay, own), None) is not None
            overlay.give_back(seats, resources)
            if fits:
                found.append(name)
                break
    return found


@bounded(1_500)
@given(st.integers(0, 2**32 - 1))
def test_if_one_mover_makes_room_something_is_proposed(seed: int) -> None:
    """Compared with every seating of the gang and of each mover, where no cost stands in the way."""
    search, question = _case(seed)
    question = msgspec.structs.replace(question, mode=Move(1e6))
    if search.best(question) is not None:
        event("fits")
        return
    movers = _single_movers(search, question)
    event(f"{len(movers)} might move")
    if movers:
        assert room_for(search, question, worth(question)) is not None


@bounded(300)
@given(st.integers(0, 2**32 - 1))
def test_who_leaves_a_drained_host_has_a_place_elsewhere(seed: int) -> None:
    """All at once, beside all that stay; and each that has none is told why."""
    rng = random.Random(seed)
    search = _region(rng)
    columns, held = search.columns, search.allocations
    host = rng.choice(columns.hosts).name
    leaving = departures(search, (host,))
    assert {d.job for d in leaving} == {a.job for a in held.values() if host in a.plan.hosts}
    overlay = Overlay(columns)
    for departure in leaving:
        attempt = held[departure.job]
        assert (departure.to is None) == bool(departure.why)
        if departure.to is not None:
            assert attempt.spec.preemptible
            assert attempt.hold in GOING
            assert host not in departure.to.hosts
            _suits(columns, attempt, departure.to)
            overlay.give_back(attempt.plan.seats, attempt.needs())
    for departure in leaving:
        if departure.to is not None:
            _has_room(overlay, departure.to, held[departure.job].needs())
    event(f"{sum(d.to is not None for d in leaving)} of {len(leaving)} leave")
