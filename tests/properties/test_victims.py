"""Victims are the set of least cost: compared with every set and every seating, on small random regions."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import combinations, combinations_with_replacement

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.support.build import ask, job, needs, profile
from tests.support.strategies import bounded
from topmast.fast.placement.allocation import Allocation, Hold
from topmast.fast.placement.columns import Columns
from topmast.fast.placement.overlay import Overlay
from topmast.fast.placement.preemption import cost_gpu_s, eligible_victims
from topmast.fast.placement.scoring import score_terms, total
from topmast.fast.placement.search import Search, choices_of
from topmast.model.fleet import ClusterSpec, HostSpec, RegionSpec
from topmast.model.job import MILLI, Accelerator, Band, Level, Resources, Topology
from topmast.model.plan import Ask, GroupAsk, Plan, Seat
from topmast.model.states import HostState
from topmast.policies.base import ScoreWeights

NOW = 1_000.0
WEIGHTS = ScoreWeights(preemption=50.0, locality=0.7, fragmentation=0.3)
OPTIONS = profile(score=WEIGHTS, restart_cost_s=20.0, min_runtime_s=100.0)
BANDS = (Band.OPPORTUNISTIC, Band.LOW, Band.NORMAL, Band.HIGH)


def _columns(rng: random.Random) -> Columns:
    """One or two clusters with a few hosts in racks, some out of service, some short of CPUs."""
    clusters = []
    for c in range(rng.randint(1, 2)):
        hosts = tuple(
            HostSpec(
                f"c{c}-{i}", "H100", rng.choice((2, 4, 4, 8)), cpus=rng.choice((0.0, 0.0, 6.0)),
                rack=f"r{rng.randint(0, 1)}",
            )
            for i in range(rng.randint(1, 3))
        )  # fmt: skip
        clusters.append(ClusterSpec(f"c{c}", hosts))
    columns = Columns(RegionSpec("east", tuple(clusters)))
    if rng.random() < 0.5:
        columns.lookup  # noqa: B018  what comes now is entered one by one
    return columns


def _run_jobs(rng: random.Random, columns: Columns) -> dict[str, Allocation]:
    """Up to seven attempts that hold GPUs, shares of them, or CPUs alone, on one host or several."""
    held: dict[str, Allocation] = {}
    columns.allocations = held
    for number in range(rng.randint(2, 7)):
        cluster = rng.choice(sorted(columns.clusters))
        rows = columns.clusters[cluster].tolist()
        size = rng.choice((0, 300, 500, 1000, 1000, 2000, 2000, 4000))
        resources = Resources(
            (Accelerator("H100", size),) if size else (), cpus=rng.choice((0.0, 0.0, 2.0))
        )
        seats: list[Seat] = []
        overlay = Overlay(columns)
        for row in rng.sample(rows, rng.randint(1, min(2, len(rows)))):
            seat = _seat(overlay, columns, row, resources, len(seats))
            if seat is not None:
                overlay.take([seat], {"main": resources})
                if overlay.overdrawn(seat, resources):
                    break
                seats.append(seat)
        if seats:
            attempt = _attempt(rng, f"j{number + 10}", cluster, resources, tuple(seats))
            held[attempt.job] = attempt
            columns.hold(attempt)
            if rng.random() < 0.2:
                attempt.hold = rng.choice((Hold.STOPPING, Hold.RUNNING))
                columns.note(attempt)
    for host in columns.hosts:
        if rng.random() < 0.1:
            columns.set_state(host.name, HostState.CORDONED)
    return held


def _seat(
    overlay: Overlay, columns: Columns, row: int, resources: Resources, rank: int
) -> Seat | None:
    milli = resources.accelerators[0].gpus_milli if resources.accelerators else 0
    free = overlay.slots(row)
    if milli >= MILLI:
        slots = [s for s, left in enumerate(free) if left == MILLI][: milli // MILLI]
        if len(slots) * MILLI < milli:
            return None
    else:
        slots = [s for s, left in enumerate(free) if milli and left >= milli][:1]
        if milli and not slots:
            return None
    return Seat("main", rank, columns.hosts[row].name, tuple(slots), min(milli, MILLI) or MILLI)


def _attempt(
    rng: random.Random, name: str, cluster: str, resources: Resources, seats: tuple[Seat, ...]
) -> Allocation:
    band = rng.choice(BANDS)
    spec = job(
        name, count=len(seats), resources=resources, band=band, preemptible=rng.random() < 0.9
    )
    milli = sum(len(s.slots) * s.slot_milli for s in seats)
    plan = Plan(name, "east", cluster, "H100", milli, seats, Level.CLUSTER, 0.0, {})
    started = rng.random() < 0.9
    return Allocation(
        plan, 1, spec, band, rng.choice((0.0, 500.0, 950.0)), None,
        Hold.RUNNING if started else Hold.STARTING, [],
        running_s=rng.choice((0.0, 500.0)) if started else None,
        kept_until_s=rng.choice((None, 700.0, 990.0)),
    )  # fmt: skip


def _question(rng: random.Random) -> Ask:
    task = needs(rng.choice((1, 1, 2, 4)), "H100", cpus=rng.choice((0.0, 0.0, 1.0, 3.0)))
    spec = job(
        count=rng.randint(1, 3), resources=task, band=rng.choice((Band.LOW, Band.HIGH)),
        topology=Topology(rng.choice((None, None, *Level)), rng.choice((None, *Level))),
    )  # fmt: skip
    return ask(spec, preempt=True)


def _every_score(
    columns: Columns, held: dict[str, Allocation], question: Ask
) -> Iterator[tuple[float, int]]:
    """The score of every way to seat the gang without any set of those who may be stopped."""
    eligible = eligible_victims(held, question.band, OPTIONS, NOW)
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
    columns: Columns, overlay: Overlay, question: Ask, cluster: str, lost: float
) -> Iterator[float]:
    (group,) = question.groups
    rows = [r for r in columns.clusters[cluster].tolist() if columns.available[r]]
    for spread in combinations_with_replacement(rows, group.count):
        seats = _all_seated(columns, overlay, spread, group)
        if seats is None:
            continue
        level = next(
            lv for lv in Level if len({int(columns.domain[lv][row]) for row in spread}) == 1
        )
        required = question.topology.required
        if required is None or level <= required:
            for choice in choices_of(question):
                yield total(score_terms(question, WEIGHTS, overlay, seats, level, choice, lost))


def _all_seated(
    columns: Columns, overlay: Overlay, spread: Sequence[int], group: GroupAsk
) -> tuple[Seat, ...] | None:
    """Seats on these hosts, if there is room; the overlay is left as it was."""
    seats: list[Seat] = []
    fits = True
    for row in spread:
        seat = _seat(overlay, columns, row, group.resources, len(seats))
        if seat is None:
            fits = False
            break
        overlay.take([seat], {"main": group.resources})
        seats.append(seat)
        if overlay.overdrawn(seat, group.resources):
            fits = False
            break
    overlay.give_back(seats, {"main": group.resources})
    return tuple(seats) if fits else None


@bounded(1_500)
@given(st.integers(0, 2**32 - 1))
def test_no_set_of_victims_scores_lower(seed: int) -> None:
    """Single tasks and gangs, whole GPUs and shares in their way, CPUs, bands, ages and topology."""
    rng = random.Random(seed)
    columns = _columns(rng)
    held = _run_jobs(rng, columns)
    question = _question(rng)
    found = Search("east", columns, held, OPTIONS, 0, NOW).best(question).plan
    best = min(_every_score(columns, held, question), default=None)
    event("none" if best is None else f"{best[1]} victims")
    assert (found is None) == (best is None)
    if found is not None and best is not None:
        assert found.score == pytest.approx(best[0], abs=1e-6)
        _holds_what_it_may(columns, held, question, found)


def _holds_what_it_may(
    columns: Columns, held: dict[str, Allocation], question: Ask, plan: Plan
) -> None:
    """Without its victims, there is room for the plan; and each of them might be stopped."""
    overlay = Overlay(columns)
    may = {a.job for a in eligible_victims(held, question.band, OPTIONS, NOW)}
    for victim in plan.victims:
        assert victim.job in may
        assert victim.lost_gpu_s == pytest.approx(cost_gpu_s(held[victim.job], OPTIONS, NOW))
        overlay.give_back(held[victim.job].plan.seats, held[victim.job].needs())
    needed = {g.name: g.resources for g in question.groups}
    overlay.take(plan.seats, needed)
    assert not any(overlay.overdrawn(seat, needed[seat.group]) for seat in plan.seats)
    assert len(plan.seats) == sum(g.count for g in question.groups)
