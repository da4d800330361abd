"""Preemption: who may be a victim, which victims are chosen, and how the room changes hands."""

from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from tests.support.build import ask, cluster, fleet, job, needs, profile
from tests.support.world import World
from topmast.fast.region.inventory.allocation import AllocationPhase
from topmast.fast.region.machine import RegionalPlacer
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.job import Band, JobSpec, Level, Topology
from topmast.model.plan import Plan
from topmast.model.states import HostState, JobState, Outcome
from topmast.policies.options import Profile

URGENT = Band.HIGH


@dataclass
class Attack:
    """Jobs run on two hosts of 8 H100 (in order of submission); another comes; who has to go."""

    story: str
    running: tuple[JobSpec, ...]
    comes: JobSpec
    want: tuple[str, ...] | None
    """The victims; None: it waits."""
    options: Profile = field(default_factory=profile)
    age_s: float = 1_000.0
    checkpointed: tuple[str, ...] = ()


def _runs(name: str, gpus: float, band: Band = Band.LOW, **more: object) -> JobSpec:
    return job(name, gpus=gpus, band=band, **more)  # type: ignore[arg-type]


ATTACKS = [
    Attack("nobody, when there is room", (_runs("a", 8),), _runs("x", 8, URGENT), ()),
    Attack("the one that is enough", (_runs("a", 8), _runs("b", 8)), _runs("x", 8, URGENT), ("j1",)),
    Attack(
        "a lower band before a higher one", (_runs("a", 8, Band.NORMAL), _runs("b", 8)),
        _runs("x", 8, URGENT), ("j2",),
    ),
    Attack("not an equal band", (_runs("a", 8, URGENT), _runs("b", 8, URGENT)),
           _runs("x", 8, URGENT), None),
    Attack("not a higher band", (_runs("a", 8, Band.CRITICAL), _runs("b", 8, URGENT)),
           _runs("x", 8, URGENT), None),
    Attack("opportunistic work stops nobody", (_runs("a", 8, Band.OPPORTUNISTIC),) * 2,
           _runs("x", 8, Band.OPPORTUNISTIC), None),
    Attack(
        "not what may not be preempted", (_runs("a", 8, preemptible=False), _runs("b", 8)),
        _runs("x", 8, URGENT), ("j2",),
    ),
    Attack(
        "not the young", (_runs("a", 8), _runs("b", 8)), _runs("x", 8, URGENT), None,
        profile(min_runtime_s=300.0), 299.0,
    ),
    Attack(
        "but the old enough", (_runs("a", 8), _runs("b", 8)), _runs("x", 8, URGENT), ("j1",),
        profile(min_runtime_s=300.0), 300.0,
    ),
    Attack(
        "only as many as it takes", tuple(_runs(name, 4) for name in "abcd"),
        _runs("x", 8, URGENT), ("j1", "j2"),
    ),
    Attack(
        "free GPUs count", (_runs("a", 4), _runs("b", 8)), _runs("x", 8, URGENT), ("j1",),
    ),
    Attack(
        "one large victim rather than that and a small one",
        (_runs("a", 2), _runs("b", 6), _runs("c", 8)), _runs("x", 6, URGENT), ("j2",),
    ),
    Attack(
        "a gang for a gang", (_runs("a", 8, count=2),), _runs("x", 8, URGENT, count=2), ("j1",),
    ),
    Attack(
        "on one host if it must", tuple(_runs(name, 4) for name in "abcd"),
        _runs("x", 4, URGENT, count=2, topology=Topology(required=Level.HOST)), ("j1", "j2"),
    ),
    Attack(
        "whose work is safe goes first", (_runs("a", 8), _runs("b", 8)), _runs("x", 8, URGENT),
        ("j2",), checkpointed=("j2",),
    ),
    Attack(
        "a share makes way for a whole", (_runs("a", 0.5), *(_runs(n, 5) for n in "bc")),
        _runs("x", 8, URGENT), ("j3",),
    ),
    Attack("what would never fit stops nobody", (_runs("a", 8), _runs("b", 8)),
           _runs("x", 9, URGENT), None),
]  # fmt: skip


def _attacked(case: Attack) -> World:
    world = World(fleet(cluster("east-1")), case.options, obedient=False)
    for name in world.submit(*case.running):
        world.start(name)
    world.advance(case.age_s)
    for name in case.checkpointed:
        world.checkpoint(name, 100)
    world.submit(case.comes)
    return world


@pytest.mark.parametrize("case", ATTACKS, ids=lambda case: case.story)
def test_who_has_to_go(case: Attack) -> None:
    """The cheapest set that makes room, and never more, better or younger ones."""
    world = _attacked(case)
    plan = world.jobs[f"j{len(case.running) + 1}"].plan
    if case.want is None:
        assert plan is None
    else:
        assert plan is not None
        assert tuple(victim.job for victim in plan.victims) == case.want
    stopped = {order.job for order in world.orders(m.StopTasks)}
    assert stopped == set(case.want or ())


def test_a_victim_is_old_enough_at_the_moment_it_was_told_to_be() -> None:
    """However floats round: it is asked about once, at start + min_runtime, and then no more."""
    world = World(fleet(cluster("east-1", hosts=1)), profile(min_runtime_s=20.0))
    world.advance(19.375525419017396)
    world.submit(_runs("old", 8))
    world.submit(_runs("x", 8, URGENT))
    assert world.states() == {"j1": "RUNNING", "j2": "PENDING"}
    world.advance(20.0)
    assert world.now - 19.375525419017396 < 20.0
    assert world.states()["j2"] == "RUNNING"


def test_time_alone_makes_a_victim_old_enough() -> None:
    """The job waits for the day, and nothing else need happen."""
    world = World(fleet(cluster("east-1", hosts=1)), profile(min_runtime_s=300.0))
    world.submit(_runs("young", 8))
    world.advance(100)
    world.submit(_runs("urgent", 8, URGENT))
    world.advance(199)
    assert world.states() == {"j1": "RUNNING", "j2": "PENDING"}
    world.advance(1)
    assert world.states() == {"j1": "PENDING", "j2": "RUNNING"}


def test_the_set_of_victims_is_minimal() -> None:
    """Whoever turns out not to be needed is spared, dearest first."""
    world = World(fleet(cluster("east-1", hosts=1)), obedient=False)
    for name, gpus in (("small", 1), ("middle", 3), ("large", 4)):
        world.submit(_runs(name, gpus))
    for number in (1, 2, 3):
        world.start(f"j{number}")
    world.checkpoint("j1", 5)
    world.advance(100)
    world.checkpoint("j1", 6)
    world.submit(_runs("urgent", 4, URGENT))
    plan = world.jobs["j4"].plan
    assert plan is not None
    placer = world.placer("east")
    for spared in plan.victims:
        held = {v.job for v in plan.victims if v.job != spared.job}
        free = 8 - sum(
            a.plan.gpus_milli // 1000
            for a in placer.state.allocations.values()
            if a.job not in held and a.job != "j4"
        )
        assert free < 4, f"{spared.job} need not have gone"


# --- how the room changes hands -----------------------------------------------------------------------------


def _claimed() -> World:
    """j3 has claimed what j1 and j2, told to stop, still hold; nothing else is free."""
    world = World(fleet(cluster("east-1")), obedient=False)
    world.submit(_runs("a", 8), _runs("b", 8))
    world.start("j1")
    world.start("j2")
    world.submit(_runs("urgent", 8, URGENT, count=2))
    assert world.placer("east").state.allocations["j3"].hold is AllocationPhase.CLAIMED
    return world


def test_the_preemptor_starts_when_the_last_victim_is_gone() -> None:
    """Not before; and until then it says what it waits for."""
    world = _claimed()
    assert world.reason("j3") == "PreemptionInProgress"
    assert world.states() == {"j1": "PREEMPTING", "j2": "PREEMPTING", "j3": "PENDING"}
    world.finish("j1", 143)
    assert world.state("j3") is JobState.PENDING
    world.finish("j2", 143)
    assert world.state("j3") is JobState.STARTING


def test_victims_get_the_grace_that_they_asked_for() -> None:
    """The order to the engine carries it."""
    world = World(fleet(cluster("east-1", hosts=1)), obedient=False)
    world.submit(_runs("a", 8))
    world.start("j1")
    world.submit(_runs("urgent", 8, URGENT))
    (order,) = world.orders(m.StopTasks)
    assert order.grace_s == 30.0


def test_claimed_slots_are_not_stolen() -> None:
    """What one victim let go of is not free for others while the preemptor waits for the next."""
    world = _claimed()
    world.finish("j1", 143)
    world.submit(_runs("thief", 1, Band.NORMAL, preemptible=False))
    assert world.state("j4") is JobState.PENDING
    world.finish("j2", 143)
    world.start("j3")
    assert world.state("j3") is JobState.RUNNING


def test_a_better_job_does_not_preempt_a_claim() -> None:
    """It stops no attempt that has not begun; once that has, it may."""
    world = _claimed()
    world.submit(_runs("critical", 8, Band.CRITICAL, count=2))
    assert world.jobs["j4"].plan is None
    for name in ("j1", "j2"):
        world.finish(name, 143)
    assert world.states()["j3"] == "PENDING"
    assert world.jobs["j3"].preemptions == 1
    assert world.state("j4") is JobState.STARTING


def test_free_slots_beside_a_claim_can_be_taken() -> None:
    """A host of which a part is claimed has its other part as before."""
    world = World(fleet(cluster("east-1", hosts=1)), obedient=False)
    world.submit(_runs("victim", 4), _runs("stays", 3, preemptible=False))
    world.start("j1")
    world.submit(_runs("urgent", 4, URGENT))
    assert world.reason("j3") == "PreemptionInProgress"
    world.submit(_runs("beside", 1))
    assert world.state("j4") is JobState.STARTING
    assert world.jobs["j4"].epoch == 1


def test_cpus_beside_a_claim_can_be_taken_by_who_needs_none() -> None:
    """CPUs are overdrawn while the victim is there; GPUs are not."""
    world = World(fleet(cluster("east-1", hosts=1, cpus=8.0)), obedient=False)
    world.submit(job("victim", band=Band.LOW, resources=needs(4, cpus=8)))
    world.start("j1")
    world.submit(job("urgent", band=URGENT, resources=needs(4, cpus=8)))
    assert world.reason("j2") == "PreemptionInProgress"
    world.submit(job("beside", gpus=1))
    assert world.state("j3") is JobState.STARTING
    assert world.jobs["j3"].epoch == 1


@dataclass
class Abandon:
    """How a claim is given up; what becomes of the preemptor at once."""

    story: str
    message: m.Message
    to: str
    want: JobState


ABANDONED = [
    Abandon("it is cancelled", m.CancelJobs(("j3",), "ann"), ids.QUEUE, JobState.CANCELLED),
    Abandon(
        "its host is drained", m.SetHost("east-1-0", HostState.DRAINING, "ann"),
        ids.placer("east"), JobState.PENDING,
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", ABANDONED, ids=lambda case: case.story)
def test_an_abandoned_claim_leaves_nothing_behind(case: Abandon) -> None:
    """Victims that were told to stop do so, and can come back into what is free; no slot is lost."""
    world = _claimed()
    world.tell(case.to, case.message)
    assert world.state("j3") is case.want
    assert world.jobs["j3"].preemptions == 0
    assert world.jobs["j3"].plan is None
    for name in ("j1", "j2"):
        world.finish(name, 143)
    world.set_host("east-1-0", HostState.HEALTHY)
    world.advance(10)
    held = world.placer("east").held_gpus()
    assert held == 16.0


def test_a_claim_whose_host_went_away_is_asked_about_again() -> None:
    """The last victim lets go, but a host of the plan is down: the job goes back to its line."""
    world = _claimed()
    world.lose("east-1-1")
    world.finish("j1", 143)
    assert world.state("j3") is JobState.PENDING
    assert world.jobs["j3"].plan is None
    assert world.placer("east").state.allocations.keys() == {"j1"}
    world.finish("j1", 143)
    world.revive("east-1-1")
    assert world.jobs["j3"].plan is not None


def test_a_victim_that_ends_by_itself_is_no_less_gone() -> None:
    """Success, failure or a lost host: its slots are free, and it is what it is."""
    for code, want in ((0, JobState.PENDING), (1, JobState.PENDING)):
        world = _claimed()
        world.finish("j1", code)
        assert world.state("j1") is want
        world.finish("j2", 143)
        assert world.state("j3") is JobState.STARTING


def test_a_gang_that_starts_may_be_preempted_before_it_runs() -> None:
    """STARTING work is younger than RUNNING work, and no safer."""
    world = World(fleet(cluster("east-1", hosts=1)), obedient=False)
    world.submit(_runs("a", 8))
    assert world.state("j1") is JobState.STARTING
    world.submit(_runs("urgent", 8, URGENT))
    assert world.states() == {"j1": "PENDING", "j2": "STARTING"}


# --- what a placer says to a plan --------------------------------------------------------------------------


def _plan_for(placer: RegionalPlacer, spec: JobSpec, **more: object) -> Plan:
    plan = placer.search(0.0).best(ask(spec, **more))  # type: ignore[arg-type]
    assert plan is not None
    return plan


def _plan_of_j9(placer: RegionalPlacer, spec: JobSpec) -> Plan:
    """A preempting plan for a job named ``j9``."""
    plan = _plan_for(placer, spec, preempt=True)
    return replace(plan, job="j9")


def _commit(placer: RegionalPlacer, plan: Plan, spec: JobSpec, epoch: int = 1) -> m.Message:
    """The first answer to a commit."""
    message = m.CommitPlan(plan, epoch, spec, spec.band)
    answer: m.Message = placer.handle(message, 0.0).sends[0].message
    return answer


@dataclass
class Stale:
    """What happened between the plan and its commit, and what the placer then says."""

    story: str
    happens: tuple[m.Message, ...]
    want: str


SPEC = job(gpus=8)
STALE = [
    Stale("nothing", (), ""),
    Stale("the host is cordoned", (m.SetHost("east-1-0", HostState.CORDONED),),
          "host east-1-0 takes no work"),
    Stale("the host is down", (m.HostChanged("east-1-0", up=False),), "host east-1-0 takes no work"),
    Stale("another host is down", (m.HostChanged("east-1-1", up=False),), ""),
    Stale("the host left the fleet", (m.ConfigureRegion(
        fleet(cluster("east-1", hosts=0)).regions[0]),), "host east-1-0 takes no work"),
    Stale("the host lost GPUs", (m.ConfigureRegion(
        fleet(cluster("east-1", gpus=4)).regions[0]),), "host east-1-0 has not enough free"),
]  # fmt: skip


@pytest.mark.parametrize("case", STALE, ids=lambda case: case.story)
def test_a_plan_is_checked_again_when_it_is_committed(case: Stale) -> None:
    """A plan that no longer fits is refused with the reason, and changes nothing."""
    placer = World(fleet(cluster("east-1"))).placer("east")
    plan = _plan_for(placer, SPEC)
    for message in case.happens:
        placer.handle(message, 0.0)
    before = placer.snapshot()
    answer = _commit(placer, plan, SPEC)
    if case.want:
        assert answer == m.PlanRefused("j1", 1, case.want)
        assert placer.snapshot() == before
    else:
        assert answer == m.AttemptStarting("j1", 1)


def test_of_two_plans_for_the_same_slots_the_second_is_refused() -> None:
    """Optimistic concurrency: both were right when they were made."""
    placer = World(fleet(cluster("east-1", hosts=1))).placer("east")
    plan = _plan_for(placer, SPEC)
    _commit(placer, plan, SPEC)
    other = replace(plan, job="j2")
    assert _commit(placer, other, SPEC) == m.PlanRefused(
        "j2", 1, "host east-1-0 has not enough free"
    )


def test_a_job_holds_slots_once() -> None:
    """A commit that comes twice is refused the second time."""
    placer = World(fleet(cluster("east-1"))).placer("east")
    plan = _plan_for(placer, SPEC)
    _commit(placer, plan, SPEC)
    assert _commit(placer, plan, SPEC, 2) == m.PlanRefused("j1", 2, "the job holds slots already")


def test_a_victim_that_is_gone_is_none_to_wait_for() -> None:
    """Its slots are free by themselves: the plan starts at once."""
    world = World(fleet(cluster("east-1", hosts=1)), obedient=False)
    world.submit(_runs("victim", 8))
    placer = world.placer("east")
    spec = _runs("x", 8, URGENT)
    plan = _plan_of_j9(placer, spec)
    world.start("j1")
    world.finish("j1", 0)
    assert _commit(placer, plan, spec) == m.AttemptStarting("j9", 1)


def test_a_victim_in_another_attempt_is_not_the_one_that_was_meant() -> None:
    """The plan weighed the work of an attempt that is over."""
    world = World(fleet(cluster("east-1", hosts=1)), obedient=False)
    world.submit(_runs("victim", 8))
    placer = world.placer("east")
    spec = _runs("x", 8, URGENT)
    plan = _plan_of_j9(placer, spec)
    world.finish("j1", 1)
    world.advance(10)
    answer = _commit(placer, plan, spec)
    assert isinstance(answer, m.PlanRefused)
    assert "another attempt" in answer.why


def test_a_victim_already_being_stopped_is_not_stopped_for_two() -> None:
    """Two preemptors never wait for the same victim."""
    world = World(fleet(cluster("east-1", hosts=1)), obedient=False)
    world.submit(_runs("victim", 8))
    world.start("j1")
    placer = world.placer("east")
    spec = _runs("x", 8, URGENT)
    plan = _plan_of_j9(placer, spec)
    world.submit(_runs("first", 8, URGENT))
    answer = _commit(placer, plan, spec)
    assert isinstance(answer, m.PlanRefused)


def test_stopping_what_is_unknown_or_over_does_nothing() -> None:
    """A stop for another epoch, or a second one, changes nothing."""
    world = World(fleet(cluster("east-1")), obedient=False)
    world.submit(job())
    world.start("j1")
    placer = world.placer("east")
    for message in (
        m.StopAttempt("j9", 1, Outcome.CANCELLED),
        m.StopAttempt("j1", 9, Outcome.CANCELLED),
    ):
        outcome = placer.handle(message, 0.0)
        assert (outcome.facts, outcome.sends) == ((), ())
    placer.handle(m.StopAttempt("j1", 1, Outcome.CANCELLED), 0.0)
    assert placer.handle(m.StopAttempt("j1", 1, Outcome.CANCELLED), 0.0).facts == ()
