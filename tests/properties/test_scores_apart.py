"""How well regions apart place a burst, against one process, by a score that is counted afresh.

What a plan says that it strands is what it strands: the places are taken once more, in the order of
the decisions, from hosts that are empty at first.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.properties.test_ahead import Late, Twin, plans_of
from tests.support.build import cluster, fleet, job, profile
from topmast.fast.region.search.scoring import stranded_table
from topmast.model.job import Band, JobSpec
from topmast.model.plan import Plan

REGIONS = ("east", "north", "south", "west")
JOBS = 400
MOST_LOSS = {8: 0.01, 64: 0.05}
"""By GPUs of a host. Each region has hosts of its own that it has begun: of 64 GPUs these are many of
the hosts of a burst as small as here. Of 10,000 jobs over 20 regions the loss is half a percent.
"""
SEEDS = range(3)
BANDS = (Band.CRITICAL, Band.HIGH, Band.NORMAL, Band.LOW)


def burst(rng: random.Random) -> list[JobSpec]:
    """70% of the jobs have one GPU, 20% have eight, 10% are gangs of 2 to 6 tasks of eight."""
    shapes = rng.choices(((1, 1), (8, 1), (8, 2)), (7, 2, 1), k=JOBS)
    return [
        job(gpus=gpus, count=count if count == 1 else rng.randint(2, 6), band=rng.choice(BANDS))
        for gpus, count in shapes
    ]


def placed(seed: int, gpus: int, *, apart: bool) -> tuple[Twin, list[Plan]]:
    """The plans of a burst on hosts with so many GPUs, of which some half stays free."""
    rng = random.Random(seed)
    jobs = burst(rng)
    hosts = 2 * sum(spec.groups[0].count * 8 for spec in jobs) // len(REGIONS) // gpus
    regions = fleet(*[cluster(f"{name}-1", hosts=hosts, gpus=gpus) for name in REGIONS])
    world = Late(regions, profile(), rng, in_bulk=True) if apart else Twin(regions, profile(), None)
    if isinstance(world, Late):
        world.delay_s, world.loss = 0.02, 0.0
    world.submit(*jobs)
    world.advance(30.0)
    plans = plans_of(world)
    assert len(plans) == len({plan.job for plan in plans}) == JOBS
    return world, plans


def stranded(world: Twin, plans: Sequence[Plan], gpus: int) -> list[float]:
    """What each of these costs by the GPUs that it strands, one after the other. No GPU twice."""
    table = stranded_table(world.queue.backlog.mix.current, gpus + 1)
    price = world.queue.profile.score.fragmentation
    taken: set[tuple[str, int]] = set()
    free: Counter[str] = Counter({host: gpus for plan in plans for host in plan.hosts})
    found = []
    for plan in plans:
        slots = {(seat.host, slot) for seat in plan.seats for slot in seat.slots}
        assert not taken & slots, "a GPU was given away twice"
        taken |= slots
        change = 0.0
        for host, count in Counter(host for host, _ in slots).items():
            change += float(table[free[host] - count] - table[free[host]])
            free[host] -= count
        found.append(price * change)
    return found


@pytest.mark.parametrize("gpus", [8, 64])
def test_a_burst_apart_is_placed_as_well_as_in_one_process(gpus: int) -> None:
    """What plans say that they strand is true, and the mean score is not much worse."""
    means = {}
    for apart in (False, True):
        scores: list[float] = []
        for seed in SEEDS:
            world, plans = placed(seed, gpus, apart=apart)
            counted = stranded(world, plans, gpus)
            assert [p.terms["fragmentation"] for p in plans] == pytest.approx(counted, abs=1e-9)
            scores += [plan.score for plan in plans]
        means[apart] = sum(scores) / len(scores)
    assert means[True] <= means[False] * (1.0 + MOST_LOSS[gpus])
    assert means[True] >= means[False] * (1.0 - MOST_LOSS[gpus]), "look at what is counted"
