"""A job with several obstacles is told all, and a quota for a while with the time that matters."""

import pytest

from tests.support.build import cluster, dataset, fleet, job, tenant
from tests.support.world import World
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.dependency import After
from topmast.model.fleet import DatasetSpec
from topmast.model.reason import NEVER, ChangeKind, no_start
from topmast.model.timed_quota import TimedQuota
from topmast.model.views import ExpectedStart, Explanation
from topmast.service.explain import explain_job, explain_spec
from topmast.service.forecast import with_start
from topmast.service.redaction import Redaction
from topmast.service.warnings import warnings_of

HOUR_S = 3_600.0
GIVEN = ExpectedStart(9_000.0, 9_000.0, 9_000.0, "given durations")


def _world() -> World:
    tenants = (tenant("vision", borrow=0, H100=8), tenant("speech"))
    return World(fleet(cluster("east-1", hosts=4), tenants=tenants))


def _told(world: World, name: str) -> Explanation:
    return explain_job(world.queue, world.machines.placers, world.jobs[name], world.now)


def _start(told: Explanation) -> str:
    not_before = "" if told.not_before_s is None else f"{told.not_before_s:g}"
    return no_start(told.reason, *told.also, not_before=not_before)


def _for_a_while(world: World, gpus: int, from_s: float, until_s: float) -> None:
    timed = TimedQuota("vision", {"H100": gpus}, from_s, until_s, "ann", "a deadline")
    assert world.tell(ids.QUEUE, m.SetQuota(timed)) is None


def test_a_held_job_that_its_quota_never_allows_is_told_both() -> None:
    """Nothing says that it starts when it is released."""
    world = _world()
    world.submit(job(gpus=8, count=2, tenant="vision"))
    world.tell(ids.QUEUE, m.HoldJobs(("j1",), "ops", "wait for the review"))
    told = _told(world, "j1")
    assert (told.reason, told.also) == ("Held", ("ExceedsMaxQuota",))
    held = "the job waits until it is released: held by ops: wait for the review"
    assert told.summary.startswith(f"{held}; besides, no job of tenant vision may hold")
    assert _start(told) == NEVER
    assert with_start(told, GIVEN) == told


def test_a_job_that_waits_for_others_in_a_paused_tenant_is_told_both() -> None:
    """In the summary and in what is said of its start; without the pause there is a forecast."""
    world = _world()
    world.submit(job(gpus=8, tenant="vision"))
    world.submit(job(gpus=1, tenant="vision", depends_on={"j1": After.OK}))
    world.tell(ids.QUEUE, m.PauseTenant("vision", "ops", "cleaning"))
    told = _told(world, "j2")
    assert (told.reason, told.also) == ("TenantPaused", ("WaitingForJobs",))
    assert "cleaning; besides, the job waits until j1" in told.summary
    assert (
        _start(told) == "not before its tenant is resumed and the jobs that it waits for are over"
    )
    world.tell(ids.QUEUE, m.HoldJobs(("j2",), "ops"))
    assert _start(_told(world, "j2")).startswith("not before it is released and its tenant is")
    world.tell(ids.QUEUE, m.ReleaseJobs(("j2",)))
    world.tell(ids.QUEUE, m.ResumeTenant("vision", "ops"))
    told = _told(world, "j2")
    assert (told.reason, told.also) == ("WaitingForJobs", ())
    assert with_start(told, GIVEN).expected_start == GIVEN


def test_a_job_that_would_be_submitted_to_a_paused_tenant_is_told_so() -> None:
    """As it is when it was submitted."""
    world = _world()
    world.tell(ids.QUEUE, m.PauseTenant("vision", "ops", "cleaning"))
    spec = job(gpus=8, tenant="vision")
    told = explain_spec(world.queue, world.machines.placers, spec, world.now)
    world.submit(spec)
    assert told.reason == _told(world, "j1").reason == "TenantPaused"


@pytest.mark.parametrize("until_s", [HOUR_S, 9 * HOUR_S])
def test_the_end_of_a_quota_for_a_while_that_a_job_needs_is_told(until_s: float) -> None:
    """And nothing that comes later is said to help, nor is a start foretold after it."""
    world = _world()
    _for_a_while(world, 32, 0.0, until_s)
    world.submit(job(gpus=8, count=3, tenant="speech", preemptible=False, time_limit_s=2 * HOUR_S))
    world.submit(job(gpus=8, count=3, tenant="vision", preemptible=False))
    told = _told(world, "j2")
    ends = [change for change in told.changes if change.kind is ChangeKind.ENDS]
    at = "1970-01-01T0" + ("1:00:00Z" if until_s == HOUR_S else "9:00:00Z")
    quota = "the quota for a while of tenant vision (32 H100)"
    assert told.until_s == until_s
    assert (
        f"; besides, {quota} ends at {at}, and from then on the job may not start" in told.summary
    )
    assert f"a later end of {quota}" in told.would_help
    assert bool(ends) is (until_s > 2 * HOUR_S)
    if not ends:  # nor where a forecast does not reach to the end of the other job
        world_is = world.queue, world.machines.placers, world.jobs["j2"], world.now
        assert not any(c.kind is ChangeKind.ENDS for c in explain_job(*world_is, ends={}).changes)
    assert with_start(told, GIVEN).expected_start_s == (9_000.0 if ends else None)


def test_a_quota_for_a_while_that_keeps_a_job_away_tells_when_it_ends() -> None:
    """The job is not said to wait for ever."""
    world = _world()
    _for_a_while(world, 2, 0.0, HOUR_S)
    world.submit(job(gpus=8, tenant="vision"))
    told = _told(world, "j1")
    assert told.reason == "ExceedsMaxQuota"
    assert _start(told) == "not before 3600"
    assert "ends at 1970-01-01T01:00:00Z, and only then may the job start" in told.summary
    world.advance(HOUR_S)
    assert world.reason("j1") is None


def test_a_quota_for_a_while_that_makes_no_difference_is_not_told() -> None:
    """The job waits for quota before its end, and after."""
    world = _world()
    _for_a_while(world, 8, 0.0, HOUR_S)
    world.submit(job(gpus=8, tenant="vision"), job(gpus=8, tenant="vision"))
    told = _told(world, "j2")
    assert told.reason == "WaitingForQuota"
    assert (told.not_before_s, told.until_s) == (None, None)
    assert "for a while" not in told.summary


def test_a_quota_for_a_while_that_is_to_come_tells_when_it_begins() -> None:
    """It is what lets the job start."""
    world = _world()
    _for_a_while(world, 16, HOUR_S, 2 * HOUR_S)
    world.submit(job(gpus=8, count=2, tenant="vision"))
    told = _told(world, "j1")
    assert _start(told) == "not before 3600"
    assert "begins at 1970-01-01T01:00:00Z, and only then may the job start" in told.summary
    world.advance(HOUR_S)
    assert world.reason("j1") is None


def test_others_learn_nothing_of_a_parent_that_has_a_quota_for_a_while() -> None:
    """Nor by whom it is paused, though what people say of a job that they see stays as it is."""
    tenants = (tenant("lab", borrow=0, H100=16), tenant("vision", "lab"))
    world = World(fleet(cluster("east-1", hosts=4), tenants=tenants))
    timed = TimedQuota("lab", {"H100": 8}, 0.0, HOUR_S, "ann", "a deadline")
    assert world.tell(ids.QUEUE, m.SetQuota(timed)) is None
    world.tell(ids.QUEUE, m.PauseTenant("lab", "ops", "cleaning"))
    world.submit(job(gpus=8, count=2, tenant="vision"))
    world.tell(ids.QUEUE, m.HoldJobs(("j1",), "ops", "ask lab"))
    told = Redaction(world.queue, frozenset({"vision"})).of(_told(world, "j1"))
    assert told.also == ("TenantPaused", "ExceedsMaxQuota")
    assert told.summary.split("; besides, ") == [
        "the job waits until it is released: held by ops: ask lab",
        "the job waits until its tenant is resumed: tenant (another tenant) is paused",
        "no job of tenant vision may hold 2 tasks with 8 H100 each: one has to lie within its "
        "quota, or within what it may borrow",
        "the quota for a while of tenant (another tenant) ends at 1970-01-01T01:00:00Z, and only "
        "then may the job start",
    ]
    assert not any("lab" in text for text in told.would_help)


_PLACES = (cluster("north-1", hosts=1), cluster("west-1", model="A100"))


def _with_data(*datasets: DatasetSpec) -> World:
    return World(fleet(*_PLACES, datasets=datasets))


@pytest.mark.parametrize("replicas", [(), ("north",)])
def test_data_that_may_lie_only_where_the_gpus_are_not(replicas: tuple[str, ...]) -> None:
    """Whether its files are there or not: it never starts, and no copy helps."""
    world = _with_data(dataset("patients", *replicas, allowed=("north",)))
    world.submit(job(gpus=4, model="A100", datasets=("patients",)))
    told = _told(world, "j1")
    assert "NoMatchingHardware" in (told.reason, *told.also)
    assert (
        "no host in north, where alone its datasets may be, could run 1 task with 4 A100"
        in told.summary
    )
    assert _start(told) == NEVER
    assert with_start(told, GIVEN) == told
    assert [text for text in told.would_help if "topmast datasets add" in text] == []
    assert told.would_help[-1] == (
        "datasets: they may be in north only, and there resources.accelerators: no host has "
        "4 A100; the most is 0: the job waits until one has"
    )
    kinds = {change.kind for change in told.changes}
    assert kinds == ({ChangeKind.MODEL, ChangeKind.RESIDENCY} if replicas else set())
    columns = [placer.columns for placer in world.machines.placers.values()]
    warned = warnings_of(world.queue, columns, world.jobs["j1"].spec)
    assert warned[-1] == told.would_help[-1], "it is warned of at once"


def test_datasets_that_may_never_lie_together() -> None:
    """The job is told that no region may have both, not to copy one of them."""
    world = _with_data(
        dataset("patients", allowed=("north",)), dataset("maps", "west", allowed=("west",))
    )
    world.submit(job(gpus=8, datasets=("patients", "maps")))
    told = _told(world, "j1")
    assert told.summary.endswith("; besides, no region may have all datasets of the job")
    assert _start(told) == NEVER
    assert told.would_help[-1].startswith("datasets: there is no region in which all of them may")


def test_data_that_may_lie_where_the_gpus_are_is_only_waited_for() -> None:
    """The same job with another model needs its files and nothing more."""
    world = _with_data(dataset("patients", allowed=("north",)))
    world.submit(job(gpus=8, datasets=("patients",)))
    told = _told(world, "j1")
    assert (told.reason, told.also) == ("WaitingForData", ())
    assert "topmast datasets add patients --region north" in told.would_help[-1]


@pytest.mark.parametrize(("hosts", "repeats"), [(1, False), (2, True)])
def test_quota_helps_only_where_the_end_of_a_job_is_not_enough(hosts: int, repeats: bool) -> None:
    """The own job of the tenant holds its quota and the GPUs; or another holds the GPUs, too."""
    tenants = (tenant("team", borrow=0, H100=8), tenant("ops"))
    world = World(fleet(cluster("east-1", hosts=hosts), tenants=tenants))
    world.submit(job(gpus=8, tenant="team", duration_s=HOUR_S))
    if repeats:
        world.submit(job(gpus=8, tenant="ops", duration_s=HOUR_S / 2))
    world.submit(job(gpus=8, tenant="team"))
    changes = _told(world, f"j{hosts + 1}").changes
    assert [c.jobs for c in changes if c.kind is ChangeKind.ENDS and not c.also] == [("j1",)]
    quota = [c.jobs for c in changes if c.kind is ChangeKind.QUOTA and c.also]
    assert quota == ([("j2",)] if repeats else [])
