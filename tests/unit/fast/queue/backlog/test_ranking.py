"""Who is next: bands, credit, age, id; and what blocks a class."""

from dataclasses import dataclass, field

import pytest

from tests.support.build import cluster, fleet, job, needs, profile, tenant
from tests.support.world import World
from topmast.fast.queue.backlog.backlog import Backlog
from topmast.fast.queue.backlog.blocked import Anything, TimeUp
from topmast.fast.queue.backlog.durations import Durations
from topmast.fast.queue.backlog.placement_class import job_key, placement_key
from topmast.fast.queue.jobs.record import JobRecord
from topmast.fast.queue.tenancy.entitlements import Key, gate_key
from topmast.model.fleet import TenantSpec
from topmast.model.job import Accelerator, Band, JobSpec, Resources, TaskGroup
from topmast.policies.options import RankWeights
from topmast.policies.registry import policies_of

USUAL = RankWeights()


def _order_of_starts(world: World, jobs: list[str]) -> list[str]:
    """Finish whoever runs on the one host, and see who comes next, to the end."""
    order: list[str] = []
    while len(order) < len(jobs):
        running = [j for j in jobs if world.states()[j] == "RUNNING" and j not in order]
        assert len(running) == 1, world.states()
        order += running
        world.finish(running[0])
    return [world.jobs[j].spec.name for j in order]


@dataclass
class Queueing:
    """Jobs submitted ``gap_s`` apart while the only host is busy; the order in which they start."""

    story: str
    jobs: list[JobSpec]
    want: list[str]
    gap_s: float = 1.0
    tenants: tuple[TenantSpec, ...] = (TenantSpec("default"),)
    weights: RankWeights = USUAL
    used_gpu_s: dict[str, float] = field(default_factory=dict)


def _whole(name: str, **more: object) -> JobSpec:
    return job(name, **{"gpus": 8, "preemptible": False, **more})  # type: ignore[arg-type]


A_AND_B = (TenantSpec("a"), TenantSpec("b"))

QUEUES = [
    Queueing(
        "a higher band goes first, whatever its age",
        [_whole(band.name.lower(), band=band) for band in sorted(Band)],
        ["critical", "high", "normal", "low", "opportunistic"],
    ),
    Queueing(
        "in one band the older goes first",
        [_whole("old"), _whole("middle"), _whole("young")],
        ["old", "middle", "young"],
    ),
    Queueing(
        "submitted together, the lower id goes first",
        [_whole("one"), _whole("two"), _whole("three")],
        ["one", "two", "three"],
        gap_s=0.0,
    ),
    Queueing(
        "shapes do not matter to the order",
        [_whole("big"), _whole("small", gpus=5), _whole("other", gpus=8, model=None)],
        ["big", "small", "other"],
    ),
    Queueing(
        "who used less goes first",
        [_whole("a", tenant="a"), _whole("b", tenant="b")],
        ["b", "a"],
        gap_s=0.0,
        tenants=A_AND_B,
        used_gpu_s={"a": 1_000.0},
    ),
    Queueing(
        "age outweighs usage where the profile says so",
        [_whole("a", tenant="a"), _whole("b", tenant="b")],
        ["a", "b"],
        gap_s=3_600.0,
        tenants=A_AND_B,
        weights=RankWeights(age=0.9, fairness=0.1, age_cap_s=7_200.0),
        used_gpu_s={"a": 1_000.0},
    ),
    Queueing(
        "age counts no further than its cap",
        [_whole("a", tenant="a"), _whole("b", tenant="b")],
        ["b", "a"],
        gap_s=3_600.0,
        tenants=A_AND_B,
        weights=RankWeights(age=0.5, fairness=0.5, age_cap_s=60.0),
        used_gpu_s={"a": 1_000.0},
    ),
]


@pytest.mark.parametrize("case", QUEUES, ids=lambda case: case.story)
def test_the_order_of_the_queue(case: Queueing) -> None:
    """Band, then credit, then submit time, then id."""
    tenants = (*case.tenants, TenantSpec("ops"))
    world = World(fleet(cluster("east-1", hosts=1), tenants=tenants), profile(rank=case.weights))
    (blocker,) = world.submit(_whole("blocker", tenant="ops", band=Band.CRITICAL))
    for name, used in case.used_gpu_s.items():
        world.queue.tenancy.ledger.charge(name, used, world.now, case.weights)
    jobs = []
    for spec in case.jobs:
        world.advance(case.gap_s)
        jobs += world.submit(spec)
    world.advance(case.gap_s)
    world.finish(blocker)
    assert _order_of_starts(world, jobs) == case.want


def test_a_small_job_does_not_wait_for_a_large_one_that_cannot_start() -> None:
    """Nothing is reserved: what fits now, starts now."""
    world = World(fleet(cluster("east-1")))
    world.submit(job("most", gpus=6, count=2))
    world.submit(job("large", gpus=8, count=2, band=Band.NORMAL, preemptible=False))
    world.submit(job("small", gpus=2))
    assert world.states() == {"j1": "RUNNING", "j2": "PENDING", "j3": "RUNNING"}


def test_a_preempted_job_keeps_its_age() -> None:
    """A job that was stopped for another goes back to the place in the order that its age gives."""
    world = World(fleet(cluster("east-1", hosts=1)))
    world.submit(job("victim", gpus=8, band=Band.LOW))
    world.advance(10)
    world.submit(job("later", gpus=8, band=Band.LOW))
    world.advance(10)
    (urgent,) = world.submit(job("urgent", gpus=8, band=Band.HIGH))
    assert world.states() == {"j1": "PENDING", "j2": "PENDING", urgent: "RUNNING"}
    world.finish(urgent)
    assert world.states()["j1"] == "RUNNING"


def test_a_long_line_is_asked_about_in_portions() -> None:
    """More jobs than one wake-up may ask about all start, in several."""
    world = World(fleet(cluster("east-1", hosts=40)))
    world.submit(*[job() for _ in range(320)])
    assert set(world.states().values()) == {"RUNNING"}


# --- classes --------------------------------------------------------------------------------------------


SHAPED = job("a", gpus=8, datasets=("d",))

ALIKE: dict[str, JobSpec] = {
    "name": job("other", gpus=8, datasets=("d",)),
    "command": JobSpec(
        "a", (TaskGroup("main", 1, needs(8, "H100"), "python train.py"),), datasets=("d",)
    ),
    "user": job("a", gpus=8, datasets=("d",), user="ann"),
    "time limit": job("a", gpus=8, datasets=("d",), time_limit_s=60.0),
}
DIFFERENT: dict[str, JobSpec] = {
    "tenant": job("a", gpus=8, datasets=("d",), tenant="b"),
    "band": job("a", gpus=8, datasets=("d",), band=Band.HIGH),
    "count": job("a", gpus=8, count=2, datasets=("d",)),
    "GPUs": job("a", gpus=4, datasets=("d",)),
    "model": job("a", gpus=8, model="A100", datasets=("d",)),
    "speed": job(
        "a", datasets=("d",), resources=Resources((Accelerator("H100", 8_000, 2.0),))
    ),
    "datasets": job("a", gpus=8),
    "preemptible": job("a", gpus=8, datasets=("d",), preemptible=False),
}  # fmt: skip


@pytest.mark.parametrize("what", ALIKE)
def test_jobs_that_fit_alike_are_of_one_class(what: str) -> None:
    """What does not decide where a job may run does not divide the class."""
    assert _key(ALIKE[what]) == _key(SHAPED)


@pytest.mark.parametrize("what", DIFFERENT)
def test_jobs_that_fit_differently_are_of_different_classes(what: str) -> None:
    """A job's verdict must never block another that could start."""
    assert _key(DIFFERENT[what]) != _key(SHAPED)
    assert _key(SHAPED, ("east-1-0",)) != _key(SHAPED)


@pytest.mark.parametrize("what", [*ALIKE, *DIFFERENT])
def test_a_job_class_is_one_of_a_gate_and_a_placement_class(what: str) -> None:
    """Its key tells apart what one of these two does, and nothing else."""
    spec = ALIKE.get(what) or DIFFERENT[what]
    same_gate = gate_key(spec) == gate_key(SHAPED)
    same_place = placement_key(spec, spec.topology) == placement_key(SHAPED, SHAPED.topology)
    assert (_key(spec) == _key(SHAPED)) is (same_gate and same_place)


def _key(spec: JobSpec, avoid_hosts: tuple[str, ...] = ()) -> Key:
    return job_key(spec, placement_key(spec, spec.topology, avoid_hosts))


def _record(number: int, submit_s: float = 0.0, not_before_s: float = 0.0) -> JobRecord:
    return JobRecord(f"j{number}", number, job(), submit_s, not_before_s=not_before_s)


def _backlog() -> Backlog:
    order = policies_of(profile()).order
    return Backlog(order, lambda tenant: 1.0, Durations(3_600.0))


def _next(backlog: Backlog) -> tuple[str, bool] | None:
    candidate = backlog.next()
    return None if candidate is None else (candidate.job, candidate.over_quota)


def test_the_oldest_is_tried_first_and_those_that_left_are_forgotten() -> None:
    """A class without jobs is no class, and none is tried once all have left."""
    backlog = _backlog()
    for number, submit_s in ((1, 5.0), (2, 3.0), (3, 4.0)):
        backlog.add(_record(number, submit_s), now=10.0)
    assert len(backlog.job_classes) == 1
    assert _next(backlog) == ("j2", False)
    backlog.remove("j2")
    assert _next(backlog) == ("j3", False)
    backlog.remove("j3")
    backlog.remove("j1")
    assert _next(backlog) is None
    assert not backlog.blocked.stirred
    assert not backlog.job_classes
    backlog.remove("j1")


def test_a_delayed_job_is_of_no_class_until_its_time() -> None:
    """`release` hands it out once, and not if it was removed meanwhile."""
    backlog = _backlog()
    first, second = _record(1, not_before_s=5.0), _record(2, not_before_s=6.0)
    backlog.add(first, now=0.0)
    backlog.add(second, now=0.0)
    assert not backlog.job_classes
    assert backlog.delays.next_s() == 5.0
    backlog.remove("j1")
    assert backlog.delays.next_s() == 6.0
    assert backlog.release(5.9) == []
    assert backlog.release(6.0) == [second]
    assert backlog.delays.next_s() is None


def test_a_blocked_class_is_tried_again_after_a_change_or_at_a_time() -> None:
    """Each mode is blocked for itself, until something changed or a time has come."""
    backlog = _backlog()
    backlog.add(_record(1), now=0.0)
    one = backlog.job_class("j1")
    backlog.block(one, False)
    assert _next(backlog) == ("j1", True)
    backlog.unblock(Anything())
    assert _next(backlog) == ("j1", False)
    backlog.block(one, False, 7.0)
    backlog.block(one, True, 5.0)
    assert _next(backlog) is None
    assert backlog.blocked.retries.next_s() == 5.0
    assert not backlog.unblock(TimeUp(4.9))
    assert _next(backlog) is None
    assert backlog.unblock(TimeUp(5.0))
    assert _next(backlog) == ("j1", False)
    assert backlog.blocked.retries.next_s() is None


def test_a_class_that_takes_the_number_of_another_begins_unblocked() -> None:
    """What blocked the one that is gone says nothing about the new one."""
    backlog = _backlog()
    backlog.add(_record(1), now=0.0)
    for over_quota in (False, True):
        backlog.block(backlog.job_class("j1"), over_quota)
    backlog.remove("j1")
    backlog.add(JobRecord("j2", 2, job(gpus=2), 0.0), now=0.0)
    assert _next(backlog) == ("j2", False)


def test_no_job_passes_one_that_all_must_wait_for() -> None:
    """A job that ranks before it may be tried; when it goes, its own class comes first."""
    backlog = _backlog()
    for number, gpus in ((1, 8), (2, 8), (3, 1)):
        backlog.add(JobRecord(f"j{number}", number, job(gpus=gpus), float(number)), now=0.0)
    candidate = backlog.next()
    assert candidate is not None
    for over_quota in (False, True):
        backlog.block(backlog.job_class("j1"), over_quota)
    backlog.blocked.stop_at(candidate, backlog.job_class(candidate.job))
    assert _next(backlog) is None
    backlog.add(JobRecord("j4", 4, job(gpus=1, band=Band.HIGH), 9.0), now=9.0)
    assert _next(backlog) == ("j4", False)
    backlog.remove("j4")
    assert _next(backlog) is None
    backlog.remove("j1")
    assert backlog.blocked.stirred
    assert _next(backlog) == ("j2", False)


def test_tenants_of_no_weight_have_no_share() -> None:
    """A weight of zero comes last once anybody used anything; nobody divides by zero."""
    tenants = (tenant("a", weight=0.0), tenant("b"))
    world = World(fleet(cluster("east-1"), tenants=tenants))
    assert world.queue.tenancy.ledger.fairness("a") == 1.0
    world.queue.tenancy.ledger.charge("b", 10.0, 0.0, RankWeights())
    assert world.queue.tenancy.ledger.fairness("a") == 0.0
    assert world.queue.tenancy.ledger.fairness("nobody") == 1.0


def test_jobs_are_tried_over_quota_where_there_is_a_quota_or_one_is_always_over() -> None:
    """Without quotas, and without work that uses none, the first mode is the only one."""
    order = policies_of(profile()).order
    backlog = Backlog(order, lambda tenant: 1.0, Durations(3_600.0), has_quotas=lambda: False)
    backlog.add(_record(1), now=10.0)
    assert backlog.modes() == (False,)
    spare = job(band=Band.OPPORTUNISTIC)
    backlog.add(JobRecord("j2", 2, spare, 0.0), now=10.0)
    assert backlog.modes() == (False, True)
    backlog.remove("j2")
    assert backlog.modes() == (False,)
    assert _backlog().modes() == (False, True)
