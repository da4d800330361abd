"""Jobs run only on clusters with an engine that can run them, and are told where none can."""

from dataclasses import dataclass
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from tests.support.build import cluster, fleet, gang, job, needs, profile
from tests.support.world import World
from topmast.model.engines import PROCESSES, Capability
from topmast.model.fleet import ClusterSpec
from topmast.model.job import Band, JobSpec
from topmast.model.reason import Rejection
from topmast.model.states import HostState, JobState
from topmast.policies.registry import load_profile
from topmast.service.explain import explain_job
from topmast.service.sentences import standing
from topmast.service.warnings import warnings_of

IMAGE = "site/train:1"
SECRETS = {"TOKEN": "env:TOKEN"}


def _contained(name: str, hosts: int = 2) -> ClusterSpec:
    """A cluster with an engine that runs images, and gives whole GPUs alone."""
    return replace(cluster(name, hosts), capabilities=(Capability.IMAGES,))


@dataclass
class Wish:
    """A job, and the cluster that can run it: `east-1` has images, `west-1` parts of a GPU."""

    story: str
    spec: JobSpec
    want: str | None


@pytest.mark.parametrize(
    "case",
    [
        Wish("whole GPUs: the first of equals", job(gpus=1), "east-1"),
        Wish("an image", job(gpus=1, image=IMAGE), "east-1"),
        Wish("a part of a GPU", job(gpus=0.5), "west-1"),
        Wish("a part of a GPU in one of its groups",
             gang({"trainer": (1, needs(1)), "reader": (2, needs(0.2))}), "west-1"),
        Wish("several groups, and an image",
             gang({"trainer": (1, needs(1)), "reader": (2, needs(cpus=1))}, image=IMAGE), "east-1"),
        Wish("no GPU, and an image", job(resources=needs(cpus=2), image=IMAGE), "east-1"),
        Wish("CPUs and an image", job(resources=needs(1, cpus=2), image=IMAGE), "east-1"),
        Wish("so many tasks that they are not searched exactly",
             gang({"a": (1, needs(0.2)), "b": (300, needs(cpus=1)), "c": (300, needs(cpus=1))}),
             "west-1"),
        Wish("an image, and a part of a GPU: nowhere", job(gpus=0.5, image=IMAGE), None),
    ],
    ids=lambda case: case.story,
)  # fmt: skip
@pytest.mark.parametrize("regions", [("east-1", "west-1"), ("east-1", "east-2")])
def test_a_job_runs_only_where_the_engine_can_run_it(case: Wish, regions: tuple[str, str]) -> None:
    """In one region or in two: all searches know it."""
    world = World(fleet(_contained(regions[0]), cluster(regions[1])))
    world.submit(case.spec)
    want = {"east-1": regions[0], "west-1": regions[1], None: None}[case.want]
    assert world.jobs["j1"].cluster == want


def test_nothing_is_stopped_where_the_job_could_not_run() -> None:
    """A lower band gives way in the cluster that can run the image, and nowhere else."""
    world = World(fleet(_contained("east-1", hosts=1), cluster("west-1", hosts=1)), profile())
    world.submit(job("a", gpus=8, band=Band.LOW), job("b", gpus=8, band=Band.LOW))
    by_cluster = {record.cluster: name for name, record in world.jobs.items()}
    world.submit(job("urgent", gpus=8, band=Band.HIGH, image=IMAGE))
    assert world.jobs["j3"].cluster == "east-1"
    assert world.state(by_cluster["east-1"]) is JobState.PENDING
    assert world.state(by_cluster["west-1"]) is JobState.RUNNING


def test_a_drained_job_moves_only_where_it_can_run() -> None:
    """There is room beside it, on hosts of no use to it."""
    world = World(fleet(_contained("east-1", hosts=1), cluster("east-2", hosts=2)), profile())
    world.submit(job(gpus=2, image=IMAGE))
    world.set_host("east-1-0", HostState.DRAINING)
    assert (world.state("j1"), world.jobs["j1"].cluster) == (JobState.RUNNING, "east-1")


def test_seats_are_reserved_only_where_the_job_can_run() -> None:
    """The first of the queue waits for GPUs that it can use, though others come free sooner."""
    world = World(fleet(_contained("east-1", hosts=1), cluster("east-2", hosts=1)),
                  load_profile("easy"))  # fmt: skip
    world.submit(job(gpus=8, duration_s=500.0, image=IMAGE))
    world.submit(job(gpus=8, duration_s=100.0))
    world.submit(job(gpus=8, duration_s=100.0, image=IMAGE))
    world.advance(1.0)
    reservation = world.queue.cycle.backfill.reservation
    assert reservation is not None
    assert (reservation.job, reservation.cluster) == ("j3", "east-1")


def test_jobs_are_bound_only_to_clusters_that_can_run_them() -> None:
    """Where a policy sends each job to a cluster before the search."""
    world = World(fleet(_contained("east-1"), cluster("west-1")), load_profile("manual"))
    names = world.submit(
        *[job(gpus=1, image=IMAGE, home="west-1") for _ in range(3)],
        *[job(gpus=0.5, home="east-1") for _ in range(3)],
    )
    assert [world.jobs[name].cluster for name in names] == ["east-1"] * 3 + ["west-1"] * 3


def test_it_is_explained_what_the_engine_cannot_do() -> None:
    """By host, with the reason in words; and a submission is warned at once."""
    world = World(fleet(cluster("east-1"), cluster("west-1", model="A100")))
    spec = job(gpus=1, image=IMAGE)
    world.submit(spec)
    told = explain_job(world.queue, world.machines.placers, world.jobs["j1"], world.now)
    assert told.reason == "NoMatchingHardware"
    (east,) = told.regions[0].clusters
    assert not east.ever
    assert [(c.reason, c.count, c.detail) for c in east.rejections] == [
        (Rejection.NOT_SUPPORTED, 2, "its engine runs no container images")
    ]
    warned = (
        "image: no cluster with the hardware for it has an engine that runs container images: "
        "leave out the image, or the job waits until one has"
    )
    assert (
        told.summary == "the job needs an engine that runs container images, and no cluster has one"
    )
    assert standing(world.queue, world.jobs["j1"]) == told.summary
    assert told.would_help == (warned,)
    columns = [placer.columns for placer in world.machines.placers.values()]
    assert warnings_of(world.queue, columns, spec) == (warned,)


def test_a_job_without_an_image_is_told_why_it_needs_containers() -> None:
    """Its secrets are those of Kubernetes, which gives them to containers."""
    world = World(fleet(cluster("east-1")))
    world.submit(job(gpus=1, secrets={"KEY": "kubernetes:team/key"}))
    told = explain_job(world.queue, world.machines.placers, world.jobs["j1"], world.now)
    engine = "an engine that runs container images (for its secrets of Kubernetes)"
    assert told.summary == f"the job needs {engine}, and no cluster has one"
    assert standing(world.queue, world.jobs["j1"]) == told.summary
    assert told.would_help == (
        f"secrets: KEY: no cluster with the hardware for it has {engine}: leave out the secrets "
        "of Kubernetes, or the job waits until one has",
    )


ENGINE = "of an engine that runs container images"


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        (job(gpus=0.5, model="TPU"),
         "no host of an engine that gives parts of a GPU could run 1 task with 0.5 TPU"),
        (job(gpus=8, image=IMAGE), f"no host {ENGINE} could run 1 task with 8 H100"),
        (job(gpus=4, count=2, model="A100", image=IMAGE),
         f"2 tasks with 4 A100 each fit into no cluster {ENGINE}"),
        (job(gpus=4, model="TPU"), "no host could run 1 task with 4 TPU"),
    ],
    ids=["parts of a GPU", "as many GPUs", "as many tasks", "no matter which engine"],
)  # fmt: skip
def test_it_is_said_of_which_engine_a_host_is_not_there(spec: JobSpec, want: str) -> None:
    """Where another cluster has the hardware, or the engine, but none has both."""
    contained = replace(cluster("east-1", 1, 4, "A100"), capabilities=(Capability.IMAGES,))
    world = World(fleet(contained, cluster("west-1"), cluster("west-2", 2, 4, "A100")))
    world.submit(spec)
    told = explain_job(world.queue, world.machines.placers, world.jobs["j1"], world.now)
    assert told.summary == f"{want}, even if it were empty"
    assert standing(world.queue, world.jobs["j1"]) == told.summary


NEEDY = pytest.mark.parametrize(
    ("capability", "more"),
    [(Capability.IMAGES, {"image": IMAGE}), (Capability.ENV, {"secrets": SECRETS})],
    ids=["images", "env"],
)


@NEEDY
@pytest.mark.parametrize("first", ["with", "without"])
def test_jobs_that_ask_for_the_same_but_an_engine_wait_for_their_own_reasons(
    first: str, capability: Capability, more: dict[str, Any]
) -> None:
    """One waits for GPUs, the other for an engine, whichever comes first."""
    world = World(fleet(cluster("east-1", hosts=1)))
    world.submit(job(gpus=8))
    pair = [job("with", gpus=8, **more), job("without", gpus=8)]
    names = world.submit(*(pair if first == "with" else pair[::-1]))
    told = {world.jobs[name].spec.name: world.reason(name) for name in names}
    assert told == {"with": "NoMatchingHardware", "without": "InsufficientCapacity"}


@NEEDY
def test_a_cluster_that_learns_to_do_it_is_asked_at_once(
    capability: Capability, more: dict[str, Any]
) -> None:
    """A new fleet file or engine: what waits is looked at again."""
    world = World(fleet(cluster("east-1")))
    world.submit(job(gpus=1, **more))
    assert world.reason("j1") == "NoMatchingHardware"
    able = tuple(sorted(PROCESSES | {capability}))
    world.configure(fleet(replace(cluster("east-1"), capabilities=able)))
    assert world.state("j1") is JobState.RUNNING


@pytest.mark.parametrize("bound", ["exhaustive", "bound before the search"])
@pytest.mark.parametrize(
    ("spec", "want"),
    [
        (job(gpus=1, secrets=SECRETS), "east-2"),
        (job(resources=needs(1, cpus=2), secrets=SECRETS), "east-2"),
        (job(resources=needs(cpus=2), secrets=SECRETS), "east-2"),
        (gang({"trainer": (1, needs(1)), "reader": (2, needs(cpus=1))}, secrets=SECRETS), "east-2"),
        (job(gpus=1, image=IMAGE, secrets=SECRETS), "east-3"),
        (job(gpus=1, secrets={"TOKEN": "kubernetes:team/token"}), "east-3"),
        (job(gpus=0.5, secrets=SECRETS), None),
    ],
    ids=["GPUs", "GPUs and CPUs", "CPUs", "several groups", "and an image", "of Kubernetes",
         "and a part of a GPU: nowhere"],
)  # fmt: skip
def test_secrets_decide_where_a_job_runs(spec: JobSpec, want: str | None, bound: str) -> None:
    """Variables of hosts are not to be had of plain processes, whatever else the job asks for.

    A job like it without them comes first: what is remembered of it is not taken for the other.
    """
    images, env = Capability.IMAGES, Capability.ENV
    world = World(
        fleet(
            cluster("east-1"),
            replace(cluster("east-2"), capabilities=(env,)),
            replace(cluster("east-3"), capabilities=(env, images)),
        ),
        profile() if bound == "exhaustive" else load_profile("manual"),
    )
    world.submit(replace(spec, home="east-1", secrets=UNSET, image=UNSET))
    world.submit(replace(spec, home="east-1"))
    world.advance(60.0)
    assert world.jobs["j2"].cluster == want
    assert world.jobs["j2"].epoch == (want is not None), "nothing was tried elsewhere"


def test_each_cluster_is_told_what_it_lacks_itself() -> None:
    """Of two things that a job needs, an engine may be able to do one."""
    spec = job(gpus=1, image=IMAGE, secrets=SECRETS)
    slurm = replace(cluster("west-1"), capabilities=(Capability.ENV,))
    world = World(fleet(cluster("east-1"), slurm))
    world.submit(spec)
    told = explain_job(world.queue, world.machines.placers, world.jobs["j1"], world.now)
    found = {c.cluster: c.rejections[0].detail for r in told.regions for c in r.clusters}
    none = "its engine runs no container images"
    assert found == {
        "east-1": f"{none}, its engine gives tasks no variables of their hosts (env:NAME)",
        "west-1": none,
    }
    engine = "runs container images and gives tasks variables of their hosts (env:NAME)"
    assert told.summary == f"the job needs an engine that {engine}, and no cluster has one"
    assert standing(world.queue, world.jobs["j1"]) == told.summary


def test_a_job_that_recovers_waits_for_an_engine_that_can_run_it() -> None:
    """As after an upgrade: it was placed with an engine of which more was thought before."""
    able = fleet(replace(cluster("east-1"), capabilities=(Capability.ENV,)))
    world = World(able)
    world.submit(job(gpus=1, secrets=SECRETS, max_restarts=100))
    assert world.state("j1") is JobState.RUNNING
    world.finish("j1", 1)
    assert world.state("j1") is JobState.RECOVERING
    world.configure(fleet(cluster("east-1")))
    world.restart()
    world.advance(10_000.0)
    assert (world.state("j1"), world.jobs["j1"].epoch) == (JobState.RECOVERING, 1)
    assert "an engine that gives tasks variables of their hosts" in standing(
        world.queue, world.jobs["j1"]
    )
    world.configure(able)
    assert (world.state("j1"), world.jobs["j1"].epoch) == (JobState.RUNNING, 2)
