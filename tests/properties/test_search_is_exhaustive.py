"""The search finds the best plan there is: compared with every plan, on small random regions."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from tests.support.build import profile
from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.preemption.search import PreemptiveSearch
from topmast.fast.region.search.scoring import accelerators_of, score_terms, total
from topmast.model.fleet import ClusterSpec, HostSpec, RegionSpec
from topmast.model.job import MILLI, Accelerator, Band, Level, Resources, Topology
from topmast.model.plan import GroupRequest, PlacementRequest, RegionTerms, Seat
from topmast.model.states import HostState
from topmast.policies.options import ScoreWeights

MODELS = ("H100", "A100")
WEIGHTS = ScoreWeights(speed=2.0, locality=0.7, fragmentation=0.3)
BALANCED = replace(WEIGHTS, allocated_cpus=0.7, allocated_memory=2.0)
MOST_HOSTS = 7
EXAMPLES = 1200


def random_region(rng: random.Random) -> RegionSpec:
    """One or two clusters of a few hosts, scattered over datacenters, pods and racks."""
    clusters = []
    for c in range(rng.randint(1, 2)):
        hosts = tuple(
            HostSpec(
                f"c{c}-{i}",
                rng.choice(MODELS),
                rng.choice((0, 2, 4, 8, 8)),
                cpus=rng.choice((0.0, 4.0, 8.0)),
                memory_bytes=rng.choice((0, 0, 64)),
                datacenter=f"d{rng.randint(0, 1)}",
                pod=f"p{rng.randint(0, 1)}",
                rack=f"r{rng.randint(0, 2)}",
            )
            for i in range(rng.randint(1, MOST_HOSTS // 2 + 1))
        )
        clusters.append(ClusterSpec(f"c{c}", hosts))
    return RegionSpec("here", tuple(clusters))


def _columns(rng: random.Random, region: RegionSpec) -> Columns:
    """Some GPUs taken, some hosts out of service."""
    columns = Columns(region)
    for host in columns.hosts:
        taken = tuple(slot for slot in range(host.gpus) if rng.random() < 0.4)
        columns.take(
            [Seat("g", 0, host.name, taken)], {"g": Resources(cpus=rng.choice((0.0, 1.0)))}
        )
        if rng.random() < 0.1:
            columns.set_state(host.name, HostState.CORDONED)
    return columns


def random_ask(rng: random.Random, hosts: Sequence[str]) -> PlacementRequest:
    """A gang of one group with whole GPUs, often limited by more than those."""
    listed = tuple(
        Accelerator(model, rng.choice((1, 1, 2, 4, 8)) * MILLI, rng.choice((1.0, 0.5)))
        for model in rng.sample((*MODELS, None), rng.randint(1, 2))
    )
    limited = rng.random() < 0.5
    resources = Resources(
        listed,
        cpus=rng.choice((0.0, 1.0, 2.5)) if limited else 0.0,
        memory_bytes=rng.choice((0, 16)) if limited else 0,
    )
    avoided = [host for host in hosts if limited and rng.random() < 0.1]
    return PlacementRequest(
        job="j1",
        groups=(GroupRequest("g", rng.randint(1, 4), resources),),
        topology=Topology(rng.choice((None, *Level)), rng.choice((None, *Level))),
        band=Band.NORMAL,
        models=rng.choice((None, (0,))),
        avoid_hosts=tuple(avoided),
        terms=RegionTerms(data_s=rng.choice((0.0, 60.0)), balance=rng.random()),
        scarcity=rng.choice((UNSET, UNSET, (), ((rng.choice(MODELS), rng.random()),))),
    )


def _every_score(columns: Columns, ask: PlacementRequest, weights: ScoreWeights) -> Iterator[float]:
    """The score of every plan: each choice, each way to spread the tasks over hosts."""
    group = ask.groups[0]
    for choice, wanted in enumerate(accelerators_of(ask)):
        if ask.models is not None and choice not in ask.models:
            continue
        for cluster in columns.clusters:
            for model in (wanted.model,) if wanted.model else MODELS:
                rows = [
                    r for r in columns.clusters[cluster].tolist() if _usable(columns, ask, r, model)
                ]
                for spread in combinations_with_replacement(rows, group.count):
                    seats = _seats(columns, spread, wanted.gpus_milli // MILLI)
                    if seats is not None and _fits(columns, seats, group.resources):
                        level = _level(columns, spread)
                        if ask.topology.required is None or level <= ask.topology.required:
                            terms = score_terms(ask, weights, columns, seats, level, choice, 0.0)
                            yield total(terms)


def _usable(columns: Columns, ask: PlacementRequest, row: int, model: str) -> bool:
    host = columns.hosts[row]
    return bool(
        host.gpus and host.model == model and columns.available[row]
        and host.name not in ask.avoid_hosts
    )  # fmt: skip


def _seats(columns: Columns, spread: tuple[int, ...], gpus: int) -> tuple[Seat, ...] | None:
    seats: list[Seat] = []
    used: dict[int, int] = {}
    for row in spread:
        free = [s for s, milli in enumerate(columns.slots(row)) if milli == MILLI]
        start = used.get(row, 0)
        slots = tuple(free[start : start + gpus])
        if len(slots) < gpus:
            return None
        used[row] = start + gpus
        seats.append(Seat("g", len(seats), columns.hosts[row].name, slots))
    return tuple(seats)


def _fits(columns: Columns, seats: tuple[Seat, ...], needs: Resources) -> bool:
    trial = columns.trial()
    trial.take(seats, {"g": needs})
    return not any(trial.overdrawn(seat, needs) for seat in seats)


def _level(columns: Columns, spread: tuple[int, ...]) -> Level:
    return next(
        level for level in Level if len({int(columns.domain[level][row]) for row in spread}) == 1
    )


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.sampled_from([WEIGHTS, BALANCED]))
def test_no_plan_scores_lower_than_the_one_found(seed: int, weights: ScoreWeights) -> None:
    """Single tasks and gangs of one group, limited by GPUs, CPUs, memory, topology and hosts."""
    rng = random.Random(seed)
    columns = _columns(rng, random_region(rng))
    ask = random_ask(rng, [h.name for h in columns.hosts])
    found = PreemptiveSearch("here", columns, {}, profile(score=weights), 0, 0.0).best(ask)
    best = min(_every_score(columns, ask, weights), default=None)
    if best is None:
        assert found is None
        return
    assert found is not None
    assert found.score == pytest.approx(best, abs=1e-9)
    trial = columns.trial()
    trial.take(found.seats, {"g": ask.groups[0].resources})
    assert not any(trial.overdrawn(seat, ask.groups[0].resources) for seat in found.seats)
    assert len(found.seats) == ask.groups[0].count
