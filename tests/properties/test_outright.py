"""Candidates that are refused without a request: the same decisions as when regions are asked."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from hypothesis import event, given
from hypothesis import strategies as st

from tests.support.build import cluster, dataset, fleet, tenant
from tests.support.simulated import FREE, Run, run
from tests.support.strategies import bounded
from topmast.fast.queue import GlobalQueue
from topmast.fast.queue.cycle import cycle, outright
from topmast.model.fleet import Fleet
from topmast.policies.registry import load_profile
from topmast.sim.settings import Settings
from topmast.traces.trace import Trace, trace_of

BY_RANK = ("srtf", "srsf", "tiresias-las", "tiresias-gittins")
PROFILES = (*BY_RANK, "fifo-skip", "sjf", "fifo", "easy", "mast")


def random_fleet(rng: random.Random) -> Fleet:
    """A pool, or hosts in one region or two, with quotas that some jobs exceed."""
    quota = tenant("a", H100=8) if rng.random() < 0.3 else tenant("a")
    return rng.choice((
        fleet(cluster("one-1", hosts=1, gpus=16)),
        fleet(cluster("one-1", hosts=4, gpus=4), tenants=(quota, tenant("b"))),
        fleet(
            cluster("east-1", hosts=2, gpus=4),
            cluster("east-2", hosts=1, gpus=8, model="A100"),
            cluster("west-1", hosts=1, gpus=8),
            tenants=(quota, tenant("b", borrow=4, H100=8, A100=8)),
            datasets=(dataset("here", "east"),),
        ),
    ))  # fmt: skip


def random_trace(rng: random.Random, world: Fleet) -> Trace:
    """More jobs than there is room for, many of which come or end at the same moments."""
    count, has_data = rng.randint(12, 30), bool(world.datasets)
    pick = rng.choice
    sizes = ((1, 1), (1, 1), (2, 1), (4, 1), (4, 2), (0.5, 1), (8, 1))
    shapes = [pick(sizes) for _ in range(count)]
    return trace_of(
        "full",
        submit_s=sorted(float(rng.randint(0, 30) * 100) for _ in range(count)),
        duration_s=[float(rng.randint(1, 40) * 100) for _ in range(count)],
        gpus=[gpus for gpus, _ in shapes],
        tasks=[tasks for _, tasks in shapes],
        band=[pick((400, 300, 200, 200, 100)) for _ in range(count)],
        tenant=[pick("ab") for _ in range(count)],
        preemptible=[rng.random() < 0.9 for _ in range(count)],
        datasets=[pick(("", "", "here")) if has_data else "" for _ in range(count)],
    )


@contextmanager
def refusals() -> Iterator[list[str]]:
    """The jobs that are refused without a request, as they are."""
    seen: list[str] = []
    inner = outright.refused_outright

    def watched(queue, record, decision):  # type: ignore[no-untyped-def]
        bids = inner(queue, record, decision)
        if bids is not None:
            seen.append(record.id)
        return bids

    with patch.object(cycle, "refused_outright", watched):
        yield seen


def simulated(seed: int, profile: str) -> Run:
    """One run of a world, a trace and options drawn by the seed."""
    rng = random.Random(seed)
    world = random_fleet(rng)
    options = {"default_duration_s": "600"}
    if profile in BY_RANK:
        options["min_runtime_s"] = rng.choice(("0", "300"))
        if rng.random() < 0.2:
            options["rounds_s"] = "300"
    made = load_profile(profile, options)
    return run(random_trace(rng, world), world, made, rng.choice((FREE, Settings())))


@bounded(40)
@given(st.integers(0, 2**32 - 1), st.sampled_from(PROFILES))
def test_the_same_as_by_requests(seed: int, profile: str) -> None:
    """Every row of every table, and every figure, whatever stops jobs and whatever they wait for."""
    with refusals() as seen:
        found = simulated(seed, profile)
    with patch.object(GlobalQueue, "look_around"):
        wanted = simulated(seed, profile)
    event(f"{'some' if seen else 'none'} were refused outright")
    assert (found.jobs, found.allocations) == (wanted.jobs, wanted.allocations)
    assert (found.timeline, found.copies) == (wanted.timeline, wanted.copies)
    assert found.result.summary == wanted.result.summary


def test_most_are_refused_outright_by_rank() -> None:
    """So that the property above is about something: half of all refusals need no request."""
    with refusals() as seen:
        simulated(1, "srtf")
    assert len(seen) > 20
