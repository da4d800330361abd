"""Explanations: they change nothing, agree with the queue, and what they foretell comes true."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.build import cluster, dataset, fleet, job, needs, tenant
from tests.support.strategies import bounded, jobs, small_fleets
from tests.support.world import World
from topmast.model.fleet import DatasetSpec, TenantSpec
from topmast.model.job import Band, JobSpec, Level, Topology
from topmast.model.states import WAITING
from topmast.model.views import Explanation
from topmast.service.explain import explain_job, explain_spec


def _asked(world: World, spec: JobSpec) -> Explanation:
    return explain_spec(world.queue, world.machines.placers, spec, world.now)


def _told(world: World, name: str) -> Explanation:
    record = world.jobs[name]
    return explain_job(world.queue, world.machines.placers, record, world.now)


@dataclass
class Question:
    """A job on two hosts of 8 H100 (one busy), and what is said of it before it is submitted."""

    story: str
    spec: JobSpec
    want_reason: str | None
    want_in_summary: str
    tenants: tuple[TenantSpec, ...] = (TenantSpec("default"),)
    datasets: tuple[DatasetSpec, ...] = field(default=())


QUESTIONS = [
    Question("it fits", job(gpus=8), None, "the best place now is east/east-1 on H100"),
    Question(
        "it fits by preemption", job(gpus=8, count=2, band=Band.HIGH), None, "preempting j1"
    ),
    Question("it fits over quota", job(gpus=8), None, "over quota and preemptible",
             (tenant("default", H100=0),)),
    Question("no room", job(gpus=8, count=2, band=Band.LOW), "InsufficientCapacity",
             "no cluster has room now"),
    Question("too large", job(gpus=8, count=3), "TopologyDoesNotFit", "even empty"),
    Question("too large for a host", job(gpus=8, count=2, topology=Topology(required=Level.HOST)),
             "TopologyDoesNotFit", "even empty"),
    Question("no such GPU", job(model="TPU"), "NoMatchingHardware", "no host in any region"),
    Question("no such data", job(datasets=("x",)), "UnknownDataset", "(x)"),
    Question(
        "more than it may hold", job(gpus=8, count=2, preemptible=False), "ExceedsMaxQuota",
        "more than its tenant may ever hold", (tenant("default", H100=8),),
    ),
    Question(
        "its data may not be here", job(datasets=("d",)), "WaitingForData", "its data is not",
        datasets=(dataset("d", "west", allowed=("west",)),),
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", QUESTIONS, ids=lambda case: case.story)
def test_what_would_become_of_a_job(case: Question) -> None:
    """The reason, in words, with what would help; and submitting it shows that it was true."""
    tenants = (*case.tenants, TenantSpec("ops"))
    world = World(fleet(cluster("east-1"), tenants=tenants, datasets=case.datasets))
    world.submit(job("busy", gpus=8, tenant="ops"))
    told = _asked(world, case.spec)
    assert told.reason == case.want_reason
    assert case.want_in_summary in told.summary
    assert bool(told.would_help) is (case.want_reason is not None) or case.datasets
    (name,) = world.submit(case.spec)
    assert (world.state(name) in WAITING) is (case.want_reason is not None)


@bounded(150)
@given(small_fleets(), st.lists(jobs(), max_size=6), jobs())
def test_what_is_foretold_comes_true(system: object, before: list[JobSpec], spec: JobSpec) -> None:
    """A job of which it is said that it can start, starts; one that cannot, waits; and asking about
    either changes nothing."""
    world = World(system)  # type: ignore[arg-type]
    for other in before:
        world.submit(other)
    blobs, wakeup_s = world.blobs(), world.next_wakeup_s()
    told = _asked(world, spec)
    for name in world.jobs:
        _told(world, name)
    assert world.blobs() == blobs
    assert world.next_wakeup_s() == wakeup_s
    (name,) = world.submit(spec)
    started = world.jobs[name].epoch > 0
    assert started is (told.reason is None), told.summary


def test_a_waiting_job_is_explained_by_the_reason_that_the_queue_has() -> None:
    """One truth: the listing and the explanation say the same."""
    world = World(fleet(cluster("east-1", hosts=1)))
    world.submit(job("busy", gpus=8, preemptible=False))
    world.submit(job("waits", gpus=8), job("huge", gpus=16), job("lost", datasets=("x",)))
    for name in ("j2", "j3", "j4"):
        assert _told(world, name).reason == world.reason(name)


def test_a_placed_job_is_explained_by_its_plan() -> None:
    """Why it is there: the score, and whether it may be preempted."""
    world = World(fleet(cluster("east-1"), tenants=(tenant("default", H100=0),)))
    world.submit(job())
    told = _told(world, "j1")
    assert "RUNNING in east/east-1" in told.summary
    assert "may be preempted at any time" in told.summary
    assert told.plans[0].hosts == ("east-1-0",)
    world.finish("j1")
    assert _told(world, "j1").summary == "j1 is SUCCEEDED"


def test_a_job_that_waits_for_victims_says_for_whom() -> None:
    """Its room is there as soon as they are gone."""
    world = World(fleet(cluster("east-1", hosts=1)), obedient=False)
    world.submit(job("victim", gpus=8, band=Band.LOW))
    world.start("j1")
    world.submit(job("urgent", gpus=8, band=Band.HIGH))
    told = _told(world, "j2")
    assert told.reason == "PreemptionInProgress"
    assert "when j1 has stopped" in told.summary


def test_each_cluster_says_for_itself() -> None:
    """Rejections by host, what is free, and the best score it has."""
    world = World(fleet(cluster("east-1", hosts=1), cluster("east-2", hosts=1, model="A100")))
    told = _asked(world, job(resources=needs(8, "H100")))
    ((one, other),) = (region.clusters for region in told.regions)
    assert (one.cluster, one.score is not None, one.rejections) == ("east-1", True, ())
    assert (other.cluster, other.score) == ("east-2", None)
    assert [(c.reason.value, c.count) for c in other.rejections] == [("NoMatchingHardware", 1)]
