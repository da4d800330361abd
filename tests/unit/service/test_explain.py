"""Explanations: they change nothing, agree with the queue, and what they foretell comes true."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.build import cluster, dataset, fleet, job, needs, profile, tenant
from tests.support.strategies import bounded, jobs, small_fleets
from tests.support.world import World
from tests.unit.fast.queue.data.test_data import WORTH, Worth, _busy_west, _reads
from topmast.fast.queue import Verdict
from topmast.fast.queue.cycle import checks, cycle
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.fleet import DatasetSpec, Link, TenantSpec
from topmast.model.job import Band, JobSpec, Level, Topology
from topmast.model.reason import BACK_OFF, ChangeKind, PendingReason
from topmast.model.states import SUSPECTED, WAITING, HostState, JobState
from topmast.model.views import Explanation
from topmast.ports import Decision
from topmast.service.explain import explain_job, explain_spec
from topmast.service.fleet import hosts, with_reach
from topmast.service.sentences import standing
from topmast.sim.forecast import Forecast
from topmast.sim.whatif import state_snapshot_of


def _asked(world: World, spec: JobSpec) -> Explanation:
    return explain_spec(world.queue, world.machines.placers, spec, world.now)


def _told(world: World, name: str) -> Explanation:
    record = world.jobs[name]
    return explain_job(world.queue, world.machines.placers, record, world.now)


def test_the_queue_and_explain_walk_the_same_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row more keeps a job from starting, and is what people are told, before and after."""
    closed = Verdict(PendingReason.WAITING_FOR_DATA, "closed today")
    for module in (cycle, checks):
        monkeypatch.setattr(module, "CHECKS", (*checks.CHECKS, lambda *_: closed))
    world = World(fleet(cluster("east-1")))
    assert _asked(world, job()).reason == closed.reason.value
    (name,) = world.submit(job())
    assert (world.state(name), world.reason(name)) == (JobState.PENDING, closed.reason.value)


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
    Question("it fits", job(gpus=8), None, "would start now in east/east-1 on H100: of all free places"),
    Question(
        "it fits by preemption", job(gpus=8, count=2, band=Band.HIGH), None, "so it stops j1"
    ),
    Question("it fits over quota", job(gpus=8), None, "over quota and preemptible",
             (tenant("default", H100=0),)),
    Question("no room", job(gpus=8, count=2, band=Band.LOW), "InsufficientCapacity",
             "no cluster has room for 2 tasks"),
    Question("too large", job(gpus=8, count=3), "TopologyDoesNotFit", "even if it were empty"),
    Question("too large for a host", job(gpus=8, count=2, topology=Topology(required=Level.HOST)),
             "TopologyDoesNotFit", "even if it were empty"),
    Question("too large, and over its quota", job(gpus=8, count=3), "TopologyDoesNotFit",
             "even if it were empty", (tenant("default", borrow=24, H100=8),)),
    Question("no such GPU", job(model="TPU"), "NoMatchingHardware", "no host could run 1 task with 1 TPU"),
    Question("no such data", job(datasets=("x",)), "UnknownDataset", "reads a dataset that the catalogue does not have: x"),
    Question("no such data, twice", job(datasets=("x", "y")), "UnknownDataset",
             "reads datasets that the catalogue does not have: x, y"),
    Question(
        "more than it may hold", job(gpus=8, count=2, preemptible=False), "ExceedsMaxQuota",
        "no job of tenant default may hold 2 tasks", (tenant("default", H100=8),),
    ),
    Question(
        "its data may not be here", job(datasets=("d",)), "WaitingForData", "waits for its data: east: the residency of d forbids it",
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
    assert case.want_reason is None or _told(world, name).reason == case.want_reason


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
    assert started or _told(world, name).reason == told.reason


@dataclass
class Wish:
    """A job that waits, and one change that is told: its kind, its words, and what it is to."""

    story: str
    spec: JobSpec
    want_kind: ChangeKind
    want_text: str
    want_to: str | float | None = None
    tenants: tuple[TenantSpec, ...] = (TenantSpec("default"),)
    datasets: tuple[DatasetSpec, ...] = ()
    links: tuple[Link, ...] | None = None
    min_runtime_s: float = 0.0
    cordoned: tuple[str, ...] = ()


IN_QUOTA = (tenant("default", H100=8, borrow=0), TenantSpec("ops"))
WISHES = [
    Wish("fewer tasks", job(gpus=8, count=4, band=Band.LOW), ChangeKind.TASKS,
         "3 tasks instead of 4: there is room in east/east-1", 3.0),
    Wish("smaller tasks", job(gpus=8, count=4, band=Band.LOW), ChangeKind.GPUS,
         "4 GPUs per task instead of 8", 4.0),
    Wish("fewer CPUs", job(resources=needs(1, "H100", cpus=100)), ChangeKind.CPUS,
         "64 CPUs per task instead of 100", 64.0),
    Wish("less memory", job(resources=needs(1, "H100", memory=10**12)), ChangeKind.MEMORY,
         "512GB of memory per task instead of 1TB", 512e9),
    Wish("a wider topology",
         job(gpus=8, count=2, topology=Topology(required=Level.HOST), band=Band.LOW),
         ChangeKind.TOPOLOGY, "`topology: {required: rack}` instead of host", "rack"),
    Wish("another model", job(gpus=8, count=4, band=Band.LOW), ChangeKind.MODEL,
         "GPU model A100, which it does not list: there is room in west/west-1", "A100"),
    Wish("a higher band", job(gpus=8, count=4, band=Band.LOW), ChangeKind.PRIORITY,
         "`priority: high` instead of low: there is room in east/east-1 if other jobs are preempted",
         "high"),
    Wish("patience", job(gpus=8, count=4, band=Band.HIGH), ChangeKind.PATIENCE,
         "a wait of 5m, because jobs that have run for less than 5m may not be preempted", min_runtime_s=300.0),
    Wish("the end of others", job(gpus=8, count=4, band=Band.LOW), ChangeKind.ENDS,
         "the end of j1, expected in 1h"),
    Wish("hosts", job(gpus=8, count=2, topology=Topology(required=Level.RACK), band=Band.LOW),
         ChangeKind.HOSTS,
         "1 more host of rack r0 of east-1 free (east-1-0): it needs 16 GPUs, and 8 are free there", 1.0,
         cordoned=("east-1-3",)),
    Wish("hosts back in service",
         job(gpus=8, count=2, topology=Topology(required=Level.RACK), band=Band.LOW),
         ChangeKind.SERVICE, "1 host of east-1 back in service (east-1-3 is cordoned)", 1.0,
         cordoned=("east-1-3",)),
    Wish("more quota", job(gpus=8, count=2), ChangeKind.QUOTA,
         "8 more H100 of quota for tenant default: there is room", 16.0, IN_QUOTA),
    Wish("more to borrow", job(gpus=8, count=2), ChangeKind.BORROW,
         "a borrow_limit of 16 H100 for tenant default instead of 0: there is room", 16.0, IN_QUOTA),
    Wish("leave to be preempted", job(gpus=8, count=2, preemptible=False), ChangeKind.PREEMPTIBLE,
         "`preemptible: true`", "true", (tenant("default", H100=8), TenantSpec("ops"))),
    Wish("more quota for two at once",
         job(gpus=8, count=2, tenant="team", preemptible=False), ChangeKind.QUOTA,
         "8 more H100 of quota for tenant team and 8 more H100 of quota for tenant org: there is",
         16.0, (tenant("org", H100=8), tenant("team", "org", H100=8), TenantSpec("ops"))),
    Wish("more quota, and room", job(gpus=8, count=4, preemptible=False, band=Band.LOW),
         ChangeKind.QUOTA,
         "24 more H100 of quota for tenant default, and also 1 more host of east-1 free (east-1-0)", 32.0,
         (tenant("default", H100=8), TenantSpec("ops"))),
    Wish("data where no link leads", job(model="A100", datasets=("d",)), ChangeKind.DATA,
         "d in west (1GB; no link leads there from a replica): there is room in west/west-1", "west",
         datasets=(dataset("d", "east"),), links=()),
    Wish("data that no region has", job(model="A100", datasets=("d",)), ChangeKind.DATA,
         "d in west (1GB; no region has a complete replica to copy from): there is room", "west",
         datasets=(dataset("d"),)),
    Wish("residency", job(model="A100", datasets=("d",)), ChangeKind.RESIDENCY,
         "leave for d to be in west, which its residency forbids: there is room in west/west-1, after "
         "a copy of 1GB in 1s", "west", datasets=(dataset("d", "east", allowed=("east",)),)),
]  # fmt: skip


@pytest.mark.parametrize("case", WISHES, ids=lambda case: case.story)
def test_what_would_have_to_change(case: Wish) -> None:
    """Four hosts of 8 H100 in two racks, one busy, and four A100: what would give a job a place."""
    tenants = case.tenants if len(case.tenants) > 1 else (*case.tenants, TenantSpec("ops"))
    system = fleet(
        cluster("east-1", hosts=4, cpus=64.0, memory_bytes=512 * 10**9),
        cluster("west-1", hosts=4, model="A100"),
        tenants=tenants, datasets=case.datasets, links=case.links,
    )  # fmt: skip
    world = World(system, profile(min_runtime_s=case.min_runtime_s))
    world.submit(job("busy", gpus=8, tenant="ops"))
    for host in case.cordoned:
        world.set_host(host, HostState.CORDONED)
    told = _asked(world, case.spec)
    found = [change for change in told.changes if change.kind is case.want_kind]
    assert found, [change.text for change in told.changes]
    assert found[0].text.startswith(case.want_text)
    assert found[0].to == case.want_to
    assert bool(found[0].also) is ("and also" in case.want_text)
    assert any(found[0].text in line for line in told.would_help)


def test_a_host_that_is_suspect_says_why_and_until_when() -> None:
    """Also what would help says it."""
    world = World(fleet(cluster("east-1", hosts=1)), obedient=False)
    (lost,) = world.submit(job(gpus=8))
    world.finish(lost, None)
    (back,) = [c for c in _asked(world, job(gpus=8)).changes if c.kind is ChangeKind.SERVICE]
    assert back.text == f"1 host of east-1 back in service (east-1-0 is suspect: {SUSPECTED})"
    (view,) = hosts(world.machines.placers, world.now)
    assert (view.state, view.closed, view.until_s) == ("suspect", SUSPECTED, 60.0)


def test_a_host_that_its_cluster_closed_is_named_with_the_reason() -> None:
    """It counts as out of service, and who reads that knows whom to ask."""
    world = World(fleet(cluster("east-1", hosts=1)))
    world.close_host("east-1-0", "drained: new disk")
    told = _asked(world, job(gpus=8))
    (verdict,) = told.regions[0].clusters
    assert [(c.reason.value, c.count) for c in verdict.rejections] == [("HostUnavailable", 1)]
    (back,) = [change for change in told.changes if change.kind is ChangeKind.SERVICE]
    want = "(east-1-0 is closed: drained: new disk)"
    assert back.text == f"1 host of east-1 back in service {want}"
    (view,) = hosts(world.machines.placers, world.now)
    assert (view.state, view.closed, view.free_gpus) == ("closed", "drained: new disk", 0.0)


def test_a_borrower_is_told_which_hosts_it_waits_for() -> None:
    """And why each of them is out of service; its quota is not what keeps it."""
    world = World(fleet(cluster("east-1", hosts=3), tenants=(tenant("default", H100=0),)))
    for host in ("east-1-0", "east-1-1"):
        world.close_host(host, "no connection")
        world.lose(host)
    world.lose("east-1-2")
    told = _asked(world, job(gpus=8, count=3))
    assert told.reason == "InsufficientCapacity"
    states = "east-1-0, east-1-1 are down: no connection; east-1-2 is down"
    assert told.summary == (
        f"no cluster has room for 3 tasks with 8 H100 each now: 3 hosts of east-1 would do, but "
        f"are out of service ({states})"
    )
    assert [change.kind for change in told.changes] == [ChangeKind.SERVICE]


def test_a_region_that_is_ruled_out_helps_nobody() -> None:
    """Its clusters have no score, its hosts are counted under what bars it, and nothing is suggested."""
    datasets = (dataset("d", "east", allowed=("east",)),)
    world = World(fleet(cluster("east-1", hosts=1), cluster("west-1"), datasets=datasets))
    world.submit(job("busy", gpus=8))
    told = _asked(world, job(gpus=8, datasets=("d",)))
    east, west = told.regions
    assert (east.barred, west.barred) == (None, "ResidencyForbids (d)")
    (verdict,) = west.clusters
    assert (verdict.score, verdict.ever, verdict.terms) == (None, False, {})
    assert [(c.reason.value, c.count, c.detail) for c in verdict.rejections] == [
        ("ResidencyForbids", 2, "d")
    ]
    assert told.reason == "InsufficientCapacity"
    west_only = {change.kind for change in told.changes if change.region == "west"}
    assert west_only == {ChangeKind.RESIDENCY}


def test_what_would_do_is_not_followed_by_what_does_not() -> None:
    """Where no change is found, the most that an empty fleet could hold is what helps."""
    wide = job(gpus=8, count=3)
    world = World(fleet(cluster("east-1")))
    assert "even empty" not in str(_asked(world, wide).would_help)
    world.submit(job("busy", gpus=8, count=2))
    told = _asked(world, wide)
    assert (told.reason, len(told.would_help)) == ("TopologyDoesNotFit", 1)
    assert "the largest that would fit is 2 tasks (16 GPUs)" in told.would_help[0]


def test_data_that_no_region_has_is_added_by_a_whole_command() -> None:
    """The fleet file promises a replica that is in no store: a job waits until it is brought."""
    world = World(fleet(cluster("east-1", hosts=1), datasets=(dataset("d"),)))
    told = _asked(world, job(gpus=8, datasets=("d",)))
    assert told.reason == "WaitingForData"
    assert told.summary == "the job waits for its data: no region has the files of d"
    world.submit(job(gpus=8, datasets=("d",)))
    assert standing(world.queue, world.jobs["j1"]) == told.summary, "on its row, too"
    assert told.would_help[-1] == (
        "`topmast datasets add d --region REGION --source FOLDER`: no region has its files"
    )
    assert "no link leads there" not in str(told.would_help)


def test_what_is_preempted_loses_what_it_loses() -> None:
    """GPU-seconds as they are, and the price that the score asks for them: weighted by band."""
    options = profile(restart_cost_s=30.0)
    world = World(fleet(cluster("east-1", hosts=1)), options)
    world.submit(job("victim", gpus=8, band=Band.LOW))
    world.start("j1")
    world.advance(60.0)
    told = _asked(world, job(gpus=8, band=Band.HIGH))
    (plan,) = told.plans
    (victim,) = plan.victims
    price = options.score.preemption * 2 * 8 * (60 + 30) / 3600
    assert victim == {
        "job": "j1", "tenant": "default", "band": "low", "lost_gpu_s": 480.0,
        "restart_gpu_s": 240.0, "price": pytest.approx(price),
    }  # fmt: skip
    assert plan.terms["preemption"] == pytest.approx(price)


def test_a_region_without_the_data_preempts_nobody() -> None:
    """The queue does not stop others where a job could not start yet, and neither is that foretold."""
    datasets = (dataset("d", "east"),)
    world = World(fleet(cluster("east-1", hosts=1), cluster("west-1", hosts=1), datasets=datasets))
    world.submit(job("a", gpus=8, band=Band.CRITICAL), job("b", gpus=8, band=Band.CRITICAL))
    world.cancel(next(name for name, record in world.jobs.items() if record.region == "west"))
    world.submit(job("low", gpus=8, band=Band.LOW))
    told = _asked(world, job(gpus=8, band=Band.HIGH, datasets=("d",)))
    assert told.reason == "InsufficientCapacity"
    assert told.plans == ()


def test_a_plan_that_was_refused_is_counted_and_shown() -> None:
    """Hosts are cordoned between the offer and the commit: the job's record, story and explanation
    say that its plan was refused, and it is placed elsewhere at last."""
    world = World(fleet(cluster("east-1", hosts=5)))
    placer = world.placer("east")
    really = placer.handle

    def meanwhile(event: m.Message, now: float) -> Decision:
        if isinstance(event, m.CommitPlan) and event.epoch <= 4:
            really(m.SetHost(event.plan.hosts[0], HostState.CORDONED), now)
        return really(event, now)

    placer.handle = meanwhile  # type: ignore[method-assign]
    world.submit(job("one", gpus=8))
    record = world.jobs["j1"]
    assert (record.refusals, record.plan, record.state) == (4, None, JobState.PENDING)
    assert record.view(world.now, None).refusals == 4
    assert record.cause == "the region refused the plan: host east-1-3 takes no work"
    assert "a plan for it was refused at commit 4 times" in _told(world, "j1").summary
    story = [row.kind for row in world.journal.history("j1")]
    assert story == ["submitted", *["placed", "refused"] * 4]
    assert world.rebuilt().queue.jobs.records["j1"].refusals == 4
    world.advance(2.0)
    assert (record.epoch, record.hosts, record.state) == (5, ("east-1-4",), JobState.RUNNING)
    assert (record.refusals, record.cause) == (4, "")


def test_a_waiting_job_is_explained_by_the_reason_that_the_queue_has() -> None:
    """One truth: the listing and the explanation say the same."""
    world = World(fleet(cluster("east-1", hosts=1)))
    world.submit(job("busy", gpus=8, preemptible=False))
    world.submit(job("waits", gpus=8), job("huge", gpus=16), job("lost", datasets=("x",)))
    for name in ("j2", "j3", "j4"):
        assert _told(world, name).reason == world.reason(name)


def test_a_job_that_waits_out_a_delay_says_so_by_a_word_of_its_own() -> None:
    """It was looked at, and waits for no other job; what people say goes first."""
    policies = profile(backoff_s=60.0)
    world = World(fleet(cluster("east-1", hosts=1)), policies)
    world.submit(job())
    world.finish("j1", 1)
    told = _told(world, "j1")
    assert (told.reason, told.also) == (BACK_OFF, ())
    assert told.summary.startswith("waits out a delay: ")
    state = state_snapshot_of(world.queue, world.machines.region_states(), world.now, 0)
    assert Forecast(state, policies).start_of("j1").basis == "it waits out a delay"
    world.tell(ids.QUEUE, m.PauseTenant("default", "ann"))
    assert _told(world, "j1").reason == PendingReason.TENANT_PAUSED
    world.tell(ids.QUEUE, m.ResumeTenant("default", "ann"))
    assert _told(world, "j1").reason == BACK_OFF
    world.advance(61.0)
    assert (world.state("j1"), _told(world, "j1").reason) == (JobState.RUNNING, None)


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


def test_what_was_decided_is_told_as_past_when_the_job_has_its_place() -> None:
    """While it waits: no place is free. When it runs: none was. What stops says for which job."""
    world = World(fleet(cluster("east-1", hosts=1)), obedient=False)
    world.submit(job("victim", gpus=8, band=Band.LOW))
    world.start("j1")
    assert "this one had the lowest score" in _told(world, "j1").summary
    world.submit(job("urgent", gpus=8, band=Band.HIGH))
    assert "no place is free for it, so it stops j1" in _told(world, "j2").summary
    assert standing(world.queue, world.jobs["j2"]) == "no place is free for it, so it stops j1"
    assert _told(world, "j1").summary == "j1 is PREEMPTING in east/east-1: preempted by j2"
    assert standing(world.queue, world.jobs["j1"]) == "preempted by j2"
    world.finish("j1", None)
    world.start("j2")
    assert "no place was free for it, so it stopped j1" in _told(world, "j2").summary
    assert standing(world.queue, world.jobs["j2"]) == "no place was free for it, so it stopped j1"


def test_each_cluster_says_for_itself() -> None:
    """Rejections by host, what is free, and the best score it has."""
    world = World(fleet(cluster("east-1", hosts=1), cluster("east-2", hosts=1, model="A100")))
    told = _asked(world, job(resources=needs(8, "H100")))
    ((one, other),) = (region.clusters for region in told.regions)
    assert (one.cluster, one.score is not None, one.rejections) == ("east-1", True, ())
    assert (other.cluster, other.score) == ("east-2", None)
    assert [(c.reason.value, c.count) for c in other.rejections] == [("NoMatchingHardware", 1)]


@pytest.mark.parametrize("case", WORTH, ids=lambda case: case.story)
def test_a_job_that_would_wait_near_its_data_is_not_said_to_be_copied(case: Worth) -> None:
    """What is said of a job before it is submitted is what the queue says of it afterwards."""
    world = _busy_west(case)
    foretold = _asked(world, _reads("d"))
    before = world.blobs()
    assert _asked(world, _reads("d")) == foretold
    assert world.blobs() == before
    (name,) = world.submit(_reads("d"))
    told = _told(world, name)
    assert foretold.reason == told.reason
    if case.want == "wait":
        assert foretold.reason == "InsufficientCapacity"
        assert "but the job waits: room is expected where its data is in" in foretold.summary
        assert foretold.summary == told.summary
    else:
        assert "would be copied to east" in foretold.summary
        assert "is being copied to east" in told.summary


def test_a_job_waits_where_enough_was_copied_of_late() -> None:
    """With no copy allowed for now the job is said to wait, and why."""
    case = Worth("a copy is there sooner", 500.0, 100.0, "wait")
    world = _busy_west(case, copies_per_period=0)
    told = _asked(world, _reads("d"))
    assert told.reason == "InsufficientCapacity"
    assert "data was copied for 0 jobs in this period, which is the limit" in told.summary


def test_a_job_that_waits_is_told_of_gpus_that_are_kept_for_another() -> None:
    """A host is drained, its job moves to idle GPUs; who waits for these learns for whom they are kept."""
    world = World(fleet(cluster("east-1", hosts=2)), obedient=False)
    world.submit(job("mover", gpus=8))
    world.start("j1")
    host = world.jobs["j1"].hosts[0]
    world.set_host(host, HostState.DRAINING)
    (other,) = {"east-1-0", "east-1-1"} - {host}
    world.submit(job("waits", gpus=8, band=Band.LOW))
    assert f"GPUs on {other} are kept for j1, which is moving there" in _told(world, "j2").summary


def test_hosts_of_a_region_that_does_not_answer_are_marked() -> None:
    """What is shown of them was heard last."""
    world = World(fleet(cluster("east-1", hosts=1), cluster("west-1", hosts=1)))
    found = hosts(world.machines.placers, world.now)
    marked = with_reach(found, {"west": None})
    assert {h.region: h.reachable for h in marked} == {"east": True, "west": False}


@pytest.mark.parametrize("quota", [None, 8], ids=["no room", "no quota"])
@pytest.mark.parametrize(("in_s", "want"), [(7_200.0, ", expected in 2h"), (None, "")])
def test_the_end_of_a_job_is_told_by_the_forecast(
    in_s: float | None, want: str, quota: int | None
) -> None:
    """In every sentence that has it; without a time where the forecast does not reach so far."""
    tenants = (TenantSpec("a") if quota is None else tenant("a", borrow=0, H100=quota),)
    world = World(fleet(cluster("east-1", hosts=1 if quota is None else 2), tenants=tenants))
    first, second = world.submit(
        job(gpus=8, tenant="a", preemptible=False, time_limit_s=3_600.0),
        job(gpus=8, tenant="a", preemptible=False),
    )
    assert world.state(first) is not JobState.PENDING
    ends = {} if in_s is None else {first: world.now + in_s}
    told = explain_job(
        world.queue, world.machines.placers, world.jobs[second], world.now, ends=ends
    )
    found = [change for change in told.changes if change.kind is ChangeKind.ENDS]
    assert found
    for change in found:
        assert change.at_s == (None if in_s is None else world.now + in_s)
        assert f"the end of {first}{'' if quota is None else ', which frees'}" in change.text
        assert change.text.partition(":")[0].endswith(want or ("needs" if quota else first))
    assert "expected in 1h" not in " ".join((*told.would_help, *(c.text for c in told.changes)))
