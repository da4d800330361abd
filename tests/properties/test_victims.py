"""Victims are the set of least cost: compared with every set and every seating, on small random regions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations, combinations_with_replacement

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.support.build import ask, job, needs, profile
from tests.support.crowd import all_seated, attempt_of, crowded_columns, run_jobs
from tests.support.strategies import bounded
from topmast.fast.region.inventory.allocation import Allocation
from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.inventory.overlay import Overlay
from topmast.fast.region.preemption.price import cost_gpu_s, eligible_victims
from topmast.fast.region.preemption.search import PreemptiveSearch
from topmast.fast.region.search.scoring import choices_of, score_terms, total
from topmast.fast.region.search.search import fewest_gpus_milli
from topmast.model.fleet import ClusterSpec, HostSpec, RegionSpec
from topmast.model.job import Band, Level, Topology
from topmast.model.plan import PlacementRequest, Plan, Preempt, Seat
from topmast.policies.options import ScoreWeights

NOW = 1_000.0
WEIGHTS = ScoreWeights(preemption=50.0, locality=0.7, fragmentation=0.3)
OPTIONS = profile(score=WEIGHTS, restart_cost_s=20.0, min_runtime_s=100.0)
YOUNG_TOO = replace(OPTIONS, min_runtime_s=0.0)


def _question(rng: random.Random) -> PlacementRequest:
    task = needs(rng.choice((1, 1, 2, 4)), "H100", cpus=rng.choice((0.0, 0.0, 1.0, 3.0)))
    spec = job(
        count=rng.randint(1, 3), resources=task, band=rng.choice((Band.LOW, Band.HIGH)),
        topology=Topology(rng.choice((None, None, *Level)), rng.choice((None, *Level))),
    )  # fmt: skip
    return ask(spec, preempt=True)


def _every_score(
    columns: Columns, held: dict[str, Allocation], question: PlacementRequest
) -> Iterator[tuple[float, int]]:
    """The score of every way to seat the gang without any set of those who may be stopped."""
    eligible = eligible_victims(held, question, OPTIONS, NOW)
    for size in range(len(eligible) + 1):
        for gone in combinations(eligible, size):
            overlay = Overlay(columns)
            for attempt in gone:
                overlay.give_back(attempt.plan.seats, attempt.needs())
            lost = sum(cost_gpu_s(a, OPTIONS, NOW) for a in gone)
            clusters = {a.plan.cluster for a in gone}
            for name in sorted(columns.clusters):
                if clusters <= {name}:
                    for score in _seatings(columns, overlay, question, name, lost):
                        yield score, size


def _seatings(
    columns: Columns, overlay: Overlay, question: PlacementRequest, cluster: str, lost: float
) -> Iterator[float]:
    (group,) = question.groups
    rows = [r for r in columns.clusters[cluster].tolist() if columns.available[r]]
    for spread in combinations_with_replacement(rows, group.count):
        seats = all_seated(columns, overlay, spread, group)
        if seats is None:
            continue
        level = next(
            lv for lv in Level if len({int(columns.domain[lv][row]) for row in spread}) == 1
        )
        required = question.topology.required
        if required is None or level <= required:
            for choice in choices_of(question):
                yield total(score_terms(question, WEIGHTS, overlay, seats, level, choice, lost))


@bounded(1_500)
@given(st.integers(0, 2**32 - 1))
def test_no_set_of_victims_scores_lower(seed: int) -> None:
    """Single tasks and gangs, whole GPUs and shares in their way, CPUs, bands, ages and topology."""
    rng = random.Random(seed)
    columns = crowded_columns(rng)
    held = run_jobs(rng, columns)
    question = _question(rng)
    found = PreemptiveSearch("east", columns, held, OPTIONS, 0, NOW).best(question)
    best = min(_every_score(columns, held, question), default=None)
    event("none" if best is None else f"{best[1]} victims")
    assert (found is None) == (best is None)
    if found is not None and best is not None:
        assert found.score == pytest.approx(best[0], abs=1e-6)
        _holds_what_it_may(columns, held, question, found)


@bounded(400)
@given(st.integers(0, 2**32 - 1))
def test_no_hosts_cost_less_where_all_on_them_stop(seed: int) -> None:
    """Tasks of a whole host each: up to ten hosts in racks, attempts on up to five of them."""
    rng = random.Random(seed)
    racks = [f"r{rng.randint(0, 2)}" for _ in range(rng.randint(3, 10))]
    hosts = [
        HostSpec(f"h{i}", "H100", 4, cpus=8.0, datacenter="d", pod="p", rack=rack)
        for i, rack in enumerate(racks)
    ]
    columns = Columns(RegionSpec("east", (ClusterSpec("c", tuple(hosts)),)))
    held = _wide_attempts(rng, columns)
    spec = job(
        count=rng.randint(2, 4), resources=needs(4, cpus=rng.choice((0.0, 6.0))), band=Band.CRITICAL,
        topology=Topology(rng.choice((None, Level.RACK)), Level.RACK),
    )  # fmt: skip
    question = ask(spec, preempt=True)
    found = PreemptiveSearch("east", columns, held, YOUNG_TOO, 0, NOW).best(question)
    may = {a.job for a in eligible_victims(held, question, YOUNG_TOO, NOW)}
    on = [[a.job for a in held.values() if host.name in a.plan.hosts] for host in hosts]
    lost_gpu_s = {job: cost_gpu_s(held[job], YOUNG_TOO, NOW) for job in may}
    costs = list[float]()
    for chosen in combinations(range(len(hosts)), spec.groups[0].count):
        gone = {job for n in chosen for job in on[n]}
        together = len({racks[n] for n in chosen}) == 1
        if gone <= may and (together or spec.topology.required is None):
            lost = sum(lost_gpu_s[job] for job in gone)
            apart = 0.0 if together else WEIGHTS.locality
            costs.append(WEIGHTS.preemption * lost / 3600.0 + apart)
    event("none" if found is None else f"{len(found.victims)} victims")
    assert (found is None) == (not costs)
    if found is not None:
        cost = found.terms["preemption"] + found.terms["locality"]
        assert cost == pytest.approx(min(costs), abs=1e-6)


def _wide_attempts(rng: random.Random, columns: Columns) -> dict[str, Allocation]:
    """Attempts on one to five hosts, until the hosts are full or 25 have come."""
    held: dict[str, Allocation] = {}
    columns.allocations = held
    free = dict.fromkeys(range(len(columns.hosts)), 4)
    for number in range(25):
        gpus, width = rng.choice((1, 2, 4)), rng.choice((1, 1, 2, 3, 5))
        rows = [row for row, left in free.items() if left >= gpus]
        if len(rows) < width:
            continue
        seats = list[Seat]()
        for row in rng.sample(rows, width):
            first = 4 - free[row]
            slots = tuple(range(first, first + gpus))
            seats.append(Seat("main", len(seats), columns.hosts[row].name, slots))
            free[row] -= gpus
        attempt = attempt_of(rng, f"a{number}", "c", needs(gpus), tuple(seats))
        held[attempt.job] = attempt
        columns.hold(attempt)
    return held


def _holds_what_it_may(
    columns: Columns, held: dict[str, Allocation], question: PlacementRequest, plan: Plan
) -> None:
    """Without its victims, there is room for the plan; and each of them might be stopped."""
    overlay = Overlay(columns)
    may = {a.job for a in eligible_victims(held, question, OPTIONS, NOW)}
    for victim in plan.victims:
        assert victim.job in may
        assert victim.lost_gpu_s == pytest.approx(cost_gpu_s(held[victim.job], OPTIONS, NOW))
        overlay.give_back(held[victim.job].plan.seats, held[victim.job].needs())
    needed = {g.name: g.resources for g in question.groups}
    overlay.take(plan.seats, needed)
    assert not any(overlay.overdrawn(seat, needed[seat.group]) for seat in plan.seats)
    assert len(plan.seats) == sum(g.count for g in question.groups)


@bounded(500)
@given(st.integers(0, 2**32 - 1))
def test_fewer_gpus_than_the_gang_needs_are_never_enough(seed: int) -> None:
    """Where stopping named jobs makes room, what is free and what these hold is enough.

    So no search is needed where it is not.
    """
    rng = random.Random(seed)
    columns = crowded_columns(rng)
    held = run_jobs(rng, columns)
    named = tuple(job for job in held if rng.random() < 0.7)
    question = replace(_question(rng), mode=Preempt(named))
    search = PreemptiveSearch("east", columns, held, OPTIONS, 0, NOW)
    gains_milli = search.gains_milli(held[job] for job in named)
    free_milli = int(columns.free_by_host().sum())
    enough = free_milli + sum(gains_milli.values()) >= fewest_gpus_milli(question)
    search.allocations = {job: held[job] for job in named}
    found = search.best(question)
    event(f"enough: {enough}, found: {found is not None}")
    assert enough or found is None
    eligible = eligible_victims(held, question, OPTIONS, NOW)
    assert {job for job, milli in gains_milli.items() if milli} <= {a.job for a in eligible}
