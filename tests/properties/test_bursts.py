"""Jobs that come together are asked about together, and placed as if they were asked about one by one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from tests.support.build import cluster, dataset, fleet, job, needs, profile, tenant
from tests.support.older import in_older_form
from tests.support.strategies import bounded
from tests.support.world import World
from topmast.fast.queue.cycle.foreseen import LEAST
from topmast.fast.queue.facts import AllPlanned
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.fleet import Fleet, TenantSpec
from topmast.model.job import Band, JobSpec, Level, Topology
from topmast.model.states import HostState, JobState
from topmast.policies.options import Preemption, Profile, ScoreWeights, WhenBlocked
from topmast.runtime.codec import decode_event


def random_fleet(rng: random.Random) -> Fleet:
    """Two regions with clusters of two models; quotas that some jobs exceed."""
    quota = rng.choice((None, 8, 40))
    first = TenantSpec("a") if quota is None else tenant("a", H100=quota, A100=8)
    return fleet(
        cluster("east-1", hosts=rng.randint(1, 6), gpus=8),
        cluster("east-2", hosts=rng.randint(1, 4), gpus=4, model="A100"),
        cluster("west-1", hosts=rng.randint(1, 6), gpus=8),
        tenants=(first, tenant("b", borrow=rng.choice((0, 8)), H100=16, A100=8)),
        datasets=(dataset("here", "east"),),
    )


def random_profile(rng: random.Random) -> Profile:
    """Whether jobs stop others, reserve room, may not overtake, or spare models that others need."""
    return profile(
        preemption=rng.choice((Preemption.NONE, Preemption.BAND)),
        when_blocked=rng.choice(list(WhenBlocked)),
        reserve_after_s=rng.choice((None, 0.0)),
        score=ScoreWeights(shapes=rng.random() < 0.5),
    )


def random_job(rng: random.Random) -> JobSpec:
    """Most jobs are alike; some are limited by CPUs, have data, accept two models, or fit nowhere."""
    kind, more = rng.random(), dict[str, Any]()
    if kind < 0.05:
        more["datasets"] = ("here",)
    elif kind < 0.1:
        more["resources"] = needs(1, "H100", cpus=2)
    elif kind < 0.2:
        more["resources"] = needs(2, *rng.choice((("A100", "H100"), (None,))))
    elif kind < 0.3:
        more["topology"] = Topology(required=rng.choice((Level.RACK, Level.POD)))
    gpus, count = rng.choice(((1, 1), (1, 1), (1, 1), (2, 1), (8, 1), (4, 2), (8, 3), (9, 1)))
    band = rng.choice(list(Band))
    name = rng.choice(("one", "other-1", "other-2"))
    return job(name, gpus, count, band=band, tenant=rng.choice("ab"), **more)


def kinds_of(specs: Sequence[JobSpec]) -> tuple[int, ...]:
    """For each job the place of the first that is like it but for its name."""
    alike = [replace(spec, name="") for spec in specs]
    return tuple(alike.index(spec) for spec in alike)


def run(seed: int, *, together: bool, kinds: bool = False) -> tuple[World, list[Any]]:
    """Three bursts, between which some jobs end; what became of every job after each.

    Hosts are drained; tasks may need time to start and stop, and the process may be killed meanwhile.
    ``kinds``: the queue is told which jobs of a burst are alike.
    """
    rng = random.Random(seed)
    world = World(random_fleet(rng), random_profile(rng), obedient=rng.random() < 0.6)
    hosts = [h.name for r in world.fleet.regions for c in r.clusters for h in c.hosts]
    if not together:
        world.queue.cycle.foreseen.most = 0
    seen = []
    for _ in range(3):
        specs = tuple(random_job(rng) for _ in range(rng.randint(LEAST, 5 * LEAST)))
        if rng.random() < 0.2:
            paused = bool(world.queue.tenancy.paused)
            world.tell(ids.QUEUE, m.ResumeTenant("b") if paused else m.PauseTenant("b"))
        world.tell(ids.QUEUE, m.SubmitJobs(specs, kinds=kinds_of(specs) if kinds else UNSET))
        seen.append({
            name: (record.state, record.plan, record.over_quota, world.queue.verdict_on(record))
            for name, record in world.jobs.items()
        })  # fmt: skip
        for name in [name for name, r in world.jobs.items() if r.state is JobState.STARTING]:
            world.start(name)
        running = [name for name, r in world.jobs.items() if r.state is JobState.RUNNING]
        for name in rng.sample(running, len(running) // 2):
            world.finish(name)
        for host in rng.sample(hosts, 2):
            if rng.random() < 0.5:
                world.set_host(host, rng.choice((HostState.DRAINING, HostState.HEALTHY)))
        if rng.random() < 0.3:
            restart(world, together=together)
    return world, seen


def test_a_job_that_moves_is_asked_about_by_itself_after_a_restart() -> None:
    """Jobs of another kind, which are asked about together, come before it."""

    def states(*, restarts: bool) -> dict[str, JobState]:
        regions = fleet(cluster("east-1", hosts=2, gpus=2), cluster("east-2", hosts=1, gpus=8))
        world = World(regions, obedient=False)
        world.submit(job("full", 8, preemptible=False))
        world.start("j1")
        world.submit(job("mover", 2, band=Band.LOW))
        world.start("j2")
        world.set_host(world.jobs["j2"].hosts[0], HostState.DRAINING)
        assert world.jobs["j2"].moves
        world.submit(*(job(f"small-{number}") for number in range(5 * LEAST)))
        if restarts:
            world.crash()
            world.recover()
        world.finish("j2")
        return {name: record.state for name, record in world.jobs.items()}

    assert states(restarts=True) == states(restarts=False)


def restart(world: World, *, together: bool) -> None:
    """Kill the process; the next one asks about jobs together or not, as this one did."""
    world.crash()
    if not together:
        world.queue.cycle.foreseen.most = 0
    world.recover()
    world.settle()


def ranked(world: World) -> list[tuple[Any, str]]:
    """Waiting jobs in their order, with their keys but for the row that each is in."""
    return [(key[:-1], job) for key, job in world.queue.backlog.ranking.in_order()]


def tallied(world: World) -> dict[Any, tuple[int, int, list[int]]]:
    """Sums over jobs, and those that wait."""
    kinds = world.queue.jobs.tallies.kinds
    return {kind: (t.jobs, t.asked_milli, sorted(t.numbers)) for kind, t in kinds.items()}


@bounded(60)
@given(st.integers(0, 2**32 - 1))
def test_jobs_known_to_be_alike_are_admitted_as_one_by_one(seed: int) -> None:
    """The same order, plans and reasons to wait, the same memory of jobs, and the same from the journal."""
    told, seen = run(seed, together=True, kinds=True)
    alone, wanted = run(seed, together=True)
    assert seen == wanted
    assert told.blobs() == alone.blobs()
    assert ranked(told) == ranked(alone)
    assert tallied(told) == tallied(alone)
    assert rebuilt(told) == told.blobs()
    classes = told.queue.backlog.job_classes.values()
    event("alike ones wait" if any(one.size > 1 for one in classes) else "none wait alike")


def rebuilt(world: World) -> dict[str, bytes]:
    """The state of all machines by the journal alone."""
    return {address: machine.snapshot() for address, machine in world.rebuilt().addressed()}


@bounded(60)
@given(st.integers(0, 2**32 - 1))
def test_a_burst_is_placed_as_its_jobs_one_by_one(seed: int) -> None:
    """The same plans with the same scores, and the same reasons to wait, whatever stops a batch.

    The journal leads to the same state, also as it was written before there were columns.
    """
    together, seen = run(seed, together=True)
    _, wanted = run(seed, together=False)
    assert seen == wanted
    events = [decode_event(r.event) for r in together.journal.written if r.machine == ids.QUEUE]
    shared = sum(bool(e.plans) for e in events if isinstance(e, m.FleetBids))
    event("some were asked about together" if shared else "all were asked about alone")
    if together.facts(AllPlanned):
        event("some were decided at once")
    assert rebuilt(together) == together.blobs()
    journal = together.journal
    journal.written = [in_older_form(record) for record in journal.written]
    assert rebuilt(together) == together.blobs()
