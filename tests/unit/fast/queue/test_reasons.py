"""Why a job waits: one dominant reason, the first that applies in a fixed order."""

from dataclasses import dataclass, field

import pytest

from tests.support.build import cluster, dataset, fleet, gang, job, needs, profile, tenant
from tests.support.world import World
from topmast.fast.queue.cycle.auction import most_hopeful, winner
from topmast.model.fleet import DatasetSpec, TenantSpec
from topmast.model.job import Band, JobSpec, Level, Topology
from topmast.model.plan import Plan
from topmast.model.reason import PRECEDENCE, PendingReason
from topmast.model.states import JobState

R = PendingReason


def test_the_order_of_reasons_is_fixed() -> None:
    """What a person must mend comes before what only time mends."""
    assert PRECEDENCE == (
        R.HELD, R.TENANT_PAUSED, R.WAITING_FOR_JOBS, R.MISCONFIGURED, R.UNKNOWN_DATASET, R.EXCEEDS_MAX_QUOTA, R.WAITING_FOR_QUOTA,
        R.WAITING_FOR_DATA, R.NO_MATCHING_HARDWARE, R.TOPOLOGY_DOES_NOT_FIT,
        R.INSUFFICIENT_CAPACITY, R.PREEMPTION_IN_PROGRESS, R.PENDING_EVALUATION,
    )  # fmt: skip


@dataclass
class Waiting:
    """A job on two busy hosts of 8 H100 in one rack; all that keeps it waiting, dominant reason first."""

    story: str
    spec: JobSpec
    want: PendingReason
    tenant: TenantSpec = field(default=TenantSpec("default"))
    datasets: tuple[DatasetSpec, ...] = ()
    busy: tuple[JobSpec, ...] = (job("busy", gpus=8, count=2, preemptible=False, tenant="ops"),)


HUGE = {"gpus": 8, "count": 9, "preemptible": False}
SMALL_QUOTA = tenant("default", borrow=0, H100=8)
LOST = dataset("d", "west", allowed=("west",))

CASES = [
    Waiting(
        "its data is unknown, its quota too small, the gang too large",
        job(datasets=("x",), gpus=8, count=9), R.UNKNOWN_DATASET, SMALL_QUOTA,
    ),
    Waiting(
        "its quota is too small for ever, its data unreachable, the gang too large",
        job(datasets=("d",), gpus=8, count=9), R.EXCEEDS_MAX_QUOTA, SMALL_QUOTA, (LOST,),
    ),
    Waiting(
        "its quota is used up, and so are the GPUs",
        job(gpus=8, preemptible=False), R.WAITING_FOR_QUOTA, tenant("default", H100=8),
        busy=(job(gpus=8, preemptible=False), job(gpus=8, tenant="ops", preemptible=False)),
    ),
    Waiting(
        "its data may not be where GPUs are, and the gang is too large",
        job(datasets=("d",), gpus=8, count=9), R.WAITING_FOR_DATA, datasets=(LOST,),
    ),
    Waiting("nobody has such a GPU", job(model="TPU"), R.NO_MATCHING_HARDWARE),
    Waiting("no host has so many GPUs", job(gpus=16), R.NO_MATCHING_HARDWARE),
    Waiting(
        "no host has so many CPUs", job(resources=needs(1, cpus=65)), R.NO_MATCHING_HARDWARE
    ),
    Waiting("the gang is larger than the cluster", job(gpus=8, count=3), R.TOPOLOGY_DOES_NOT_FIT),
    Waiting(
        "the gang is larger than a rack may hold",
        job(gpus=8, count=2, topology=Topology(required=Level.HOST)), R.TOPOLOGY_DOES_NOT_FIT,
    ),
    Waiting("all GPUs are busy", job(gpus=8, preemptible=False), R.INSUFFICIENT_CAPACITY),
    Waiting(
        "all GPUs are busy, and the quota would let it borrow",
        job(gpus=8), R.WAITING_FOR_QUOTA, tenant("default", H100=0),
    ),
    Waiting(
        "all GPUs are busy, and opportunistic work has no use for quota",
        job(gpus=8, band=Band.OPPORTUNISTIC), R.INSUFFICIENT_CAPACITY,
    ),
    Waiting(
        "its victims are still there", job(gpus=8, band=Band.HIGH), R.PREEMPTION_IN_PROGRESS,
        busy=(job("low", gpus=8, count=2, band=Band.LOW),),
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_the_dominant_reason(case: Waiting) -> None:
    """Of several reasons the first in the order is shown."""
    system = fleet(
        cluster("east-1", cpus=64.0),
        tenants=(case.tenant, TenantSpec("ops")),
        datasets=case.datasets,
    )
    world = World(system, obedient=False)
    for name in world.submit(*case.busy):
        world.start(name)
    (waiting,) = world.submit(case.spec)
    assert world.reason(waiting) == case.want.value


def test_a_job_that_has_not_been_looked_at_says_so() -> None:
    """Between two attempts a job waits out its delay, and no search has refused it."""
    world = World(fleet(cluster("east-1")), profile(backoff_s=60.0))
    world.submit(job())
    world.finish("j1", 1)
    assert world.reason("j1") == "PendingEvaluation"


def test_a_job_that_does_not_wait_has_no_reason() -> None:
    """Neither a running job nor one that is over has anything to explain."""
    world = World(fleet(cluster("east-1")))
    world.submit(job())
    assert world.reason("j1") is None
    world.finish("j1")
    assert world.reason("j1") is None


def test_regions_answer_for_the_best_of_them() -> None:
    """If one region could hold the job, another that never can does not decide the reason."""
    world = World(fleet(cluster("east-1", model="A100"), cluster("west-1", hosts=1)))
    world.submit(job(gpus=8, preemptible=False), job(gpus=8, preemptible=False))
    assert world.reason("j2") == "InsufficientCapacity"


def test_a_reason_found_within_the_quota_outlives_the_one_found_beyond_it() -> None:
    """The job could start within its quota if there were room: that is what it waits for."""
    tenants = (tenant("default", H100=8), TenantSpec("ops"))
    world = World(fleet(cluster("east-1"), tenants=tenants))
    world.submit(job("busy", gpus=8, count=2, preemptible=False, tenant="ops"))
    world.submit(job(gpus=8))
    assert world.reason("j2") == "InsufficientCapacity"


@dataclass
class Borrower:
    """Two hosts of 8 H100; a job that borrows 8 of them waits, and what for."""

    story: str
    busy: int
    """Hosts that another tenant uses."""
    lost: tuple[str, ...]
    closed: tuple[str, ...]
    want: PendingReason


BORROWERS = [
    Borrower("all GPUs are in use", 2, (), (), R.WAITING_FOR_QUOTA),
    Borrower("every host is down", 0, ("east-1-0", "east-1-1"), (), R.INSUFFICIENT_CAPACITY),
    Borrower("the cluster is closed", 0, (), ("east-1-0", "east-1-1"), R.INSUFFICIENT_CAPACITY),
    Borrower("one is in use, one is closed", 1, (), ("east-1-1",), R.INSUFFICIENT_CAPACITY),
    Borrower("one is in use, one is down", 1, ("east-1-1",), (), R.INSUFFICIENT_CAPACITY),
]


@pytest.mark.parametrize("case", BORROWERS, ids=lambda case: case.story)
def test_a_borrower_waits_for_quota_only_while_others_use_the_gpus(case: Borrower) -> None:
    """GPUs that are idle may be borrowed: what lacks is their host, and more quota is no remedy."""
    tenants = (tenant("default", H100=0), TenantSpec("ops"))
    world = World(fleet(cluster("east-1"), tenants=tenants))
    world.submit(*[job(gpus=8, preemptible=False, tenant="ops") for _ in range(case.busy)])
    for host in case.lost:
        world.lose(host)
    for host in case.closed:
        world.close_host(host, "drained: new disk")
    (waiting,) = world.submit(job(gpus=8))
    assert world.state(waiting) is JobState.PENDING
    assert world.reason(waiting) == case.want.value
    assert [one for _, one, _ in world.queue.waiting()] == [case.want]


def test_a_borrower_of_a_class_that_was_refused_hears_the_same() -> None:
    """Also where only another job like it was tried."""
    world = World(fleet(cluster("east-1"), tenants=(tenant("default", H100=0),)))
    world.lose("east-1-0")
    world.lose("east-1-1")
    names = world.submit(job(gpus=8), job(gpus=8))
    assert [world.reason(name) for name in names] == ["InsufficientCapacity"] * 2


def test_groups_that_fit_alone_but_not_together_lack_a_place() -> None:
    """Each group could sit in the cluster, but there is no room for both."""
    world = World(fleet(cluster("east-1", cpus=8.0)))
    world.submit(gang({"trainer": (2, needs(8, cpus=8)), "reader": (1, needs(cpus=8))}))
    assert world.reason("j1") == "InsufficientCapacity"


# --- the auction --------------------------------------------------------------------------------------------


def _plan(region: str, name: str, score: float) -> Plan:
    return Plan("j1", region, name, "H100", 0, (), Level.HOST, score, {})


def test_the_lowest_score_wins_and_ties_go_by_name() -> None:
    """Region, then cluster; regions that offer nothing do not take part."""
    east, west = _plan("east", "e-2", 1.0), _plan("west", "w-1", 1.0)
    assert winner([None, west, east, _plan("east", "e-1", 2.0)]) is east
    assert winner([_plan("east", "e-2", 1.0), _plan("east", "e-1", 1.0)]) == _plan(
        "east", "e-1", 1.0
    )
    assert winner([None]) is None


def test_of_all_reasons_the_nearest_to_a_start_is_told() -> None:
    """The last in the order of precedence; without any region there is no hardware."""
    assert most_hopeful([R.NO_MATCHING_HARDWARE, None, R.INSUFFICIENT_CAPACITY]) is (
        R.INSUFFICIENT_CAPACITY
    )
    assert most_hopeful([]) is R.NO_MATCHING_HARDWARE


@pytest.mark.parametrize("order", ["abc", "acb", "bac", "bca", "cab", "cba"])
def test_the_reason_does_not_depend_on_which_job_was_asked_about_first(order: str) -> None:
    """Those that are not asked about hear what others like them heard, but quota comes first."""
    tenants = (tenant("poor", H100=8), TenantSpec("ops"))
    world = World(fleet(cluster("east-1"), tenants=tenants))
    jobs = {
        "a": (job(gpus=9, tenant="poor", preemptible=False), "ExceedsMaxQuota"),
        "b": (job(gpus=9, tenant="ops", preemptible=False), "NoMatchingHardware"),
        "c": (job(gpus=9, tenant="poor"), "NoMatchingHardware"),
    }
    names = {which: world.submit(jobs[which][0])[0] for which in order}
    reasons = {which: world.reason(name) for which, name in names.items()}
    assert reasons == {which: reason for which, (_, reason) in jobs.items()}
