"""Quota: what a tenant may hold, borrow and take back."""

from dataclasses import dataclass

import pytest

from tests.support.build import cluster, fleet, job, needs, tenant
from tests.support.world import World
from topmast.fast.queue.tenancy.ledger import Holding, Ledger
from topmast.model.fleet import TenantSpec
from topmast.model.job import MILLI, Band, JobSpec
from topmast.model.timed_quota import KnownQuota, TimedQuota, with_timed
from topmast.policies.options import RankWeights


@dataclass
class Admission:
    """One tenant with a quota on 32 H100 and 32 A100; what becomes of its jobs, in order."""

    story: str
    tenant: TenantSpec
    jobs: tuple[JobSpec, ...]
    want: tuple[str, ...]
    """For each job: ``within``, ``over`` (its quota), or the reason why it waits."""


def _h(gpus: float = 8, count: int = 1, **more: object) -> JobSpec:
    return job(**{"gpus": gpus, "count": count, "tenant": "a", **more})  # type: ignore[arg-type]


EITHER = needs(8, "H100", "A100")

ADMISSIONS = [
    Admission("no quota is no limit", TenantSpec("a"), (_h(count=4),), ("within",)),
    Admission("up to the quota", tenant("a", H100=16), (_h(), _h()), ("within", "within")),
    Admission(
        "beyond it what runs is borrowed", tenant("a", H100=16), (_h(), _h(), _h()),
        ("within", "within", "over"),
    ),
    Admission(
        "a gang is within or over as a whole", tenant("a", H100=12), (_h(count=2), _h(gpus=4)),
        ("over", "within"),
    ),
    Admission(
        "borrowing has a limit", tenant("a", borrow=8, H100=8), (_h(), _h(), _h()),
        ("within", "over", "WaitingForQuota"),
    ),
    Admission(
        "no borrowing at all", tenant("a", borrow=0, H100=8), (_h(), _h()),
        ("within", "WaitingForQuota"),
    ),
    Admission(
        "more than quota and limit is too much for ever",
        tenant("a", borrow=8, H100=8), (_h(count=2),), ("ExceedsMaxQuota",),
    ),
    Admission(
        "what may not be preempted may not borrow", tenant("a", H100=8),
        (_h(preemptible=False), _h(preemptible=False)), ("within", "WaitingForQuota"),
    ),
    Admission(
        "what may not be preempted never exceeds the quota", tenant("a", H100=8),
        (_h(count=2, preemptible=False),), ("ExceedsMaxQuota",),
    ),
    Admission(
        "a model without quota is borrowed", tenant("a", H100=8), (_h(model="A100"),), ("over",),
    ),
    Admission(
        "opportunistic work uses no quota", tenant("a", H100=8),
        (_h(band=Band.OPPORTUNISTIC), _h()), ("over", "within"),
    ),
    Admission(
        "shares add up", tenant("a", borrow=0, H100=1), (_h(0.5), _h(0.5), _h(0.5)),
        ("within", "within", "WaitingForQuota"),
    ),
    Admission(
        "tasks without GPUs need no quota", tenant("a", borrow=0, H100=0),
        (_h(resources=needs(cpus=1)),), ("within",),
    ),
    Admission(
        "the second choice is within the quota, the first is not", tenant("a", borrow=0, A100=8),
        (_h(resources=EITHER),), ("within",),
    ),
    Admission(
        "any model: one with quota left", tenant("a", borrow=0, H100=8),
        (_h(model=None), _h(model=None)), ("within", "WaitingForQuota"),
    ),
    Admission(
        "any model: each within its own quota", tenant("a", borrow=0, H100=8, A100=8),
        (_h(model=None), _h(model=None), _h(model=None)), ("within", "within", "WaitingForQuota"),
    ),
    Admission(
        "any model: borrowed where it may be", tenant("a", borrow=8, A100=0, H100=0),
        (_h(model=None), _h(model=None), _h(model=None)), ("over", "over", "WaitingForQuota"),
    ),
    Admission(
        "any model, not to be preempted: none has the quota", tenant("a", H100=4, A100=4),
        (_h(model=None, preemptible=False),), ("ExceedsMaxQuota",),
    ),
    Admission(
        "the better model is borrowed only when the quota is used up", tenant("a", A100=8),
        (_h(resources=EITHER), _h(resources=EITHER)), ("within", "over"),
    ),
]  # fmt: skip


def _standing(world: World, name: str) -> str:
    record = world.jobs[name]
    if record.plan is None:
        return world.reason(name) or "none"
    return "over" if record.over_quota else "within"


@pytest.mark.parametrize("case", ADMISSIONS, ids=lambda case: case.story)
def test_admission_by_quota(case: Admission) -> None:
    """Within its quota a job keeps its band; over it, it borrows, waits, or is told that it never may."""
    clusters = (cluster("east-1", hosts=4), cluster("east-2", hosts=4, model="A100"))
    world = World(fleet(*clusters, tenants=(case.tenant,)))
    names = world.submit(*case.jobs)
    assert tuple(_standing(world, name) for name in names) == case.want


def test_a_waiting_job_starts_when_its_tenant_lets_go_of_quota() -> None:
    """The end of a job of the same tenant is what was waited for, even with GPUs idle all along."""
    world = World(fleet(cluster("east-1"), tenants=(tenant("a", borrow=0, H100=8),)))
    world.submit(_h(), _h())
    assert world.reason("j2") == "WaitingForQuota"
    world.finish("j1")
    assert world.states()["j2"] == "RUNNING"


def test_a_new_fleet_file_with_more_quota_starts_what_waited() -> None:
    """Quotas are taken up at once; what is held stays as it was classed."""
    clusters = cluster("east-1")
    world = World(fleet(clusters, tenants=(tenant("a", borrow=0, H100=8),)))
    world.submit(_h(), _h())
    world.configure(fleet(clusters, tenants=(tenant("a", borrow=0, H100=16),)))
    assert world.states()["j2"] == "RUNNING"
    assert world.queue.tenancy.ledger.holding("a", "H100") == Holding(16_000, 0)


# --- reclaiming -----------------------------------------------------------------------------------------


def _lender_and_borrower() -> World:
    """b has borrowed all of a's quota: 8 of its own, 8 of a's."""
    tenants = (tenant("a", H100=8), tenant("b", H100=8))
    world = World(fleet(cluster("east-1"), tenants=tenants))
    world.submit(_h(tenant="b", band=Band.CRITICAL), _h(tenant="b", band=Band.CRITICAL))
    assert [_standing(world, j) for j in ("j1", "j2")] == ["within", "over"]
    return world


def test_a_lender_takes_its_quota_back_by_preemption() -> None:
    """Any job within its quota beats what runs over quota, whatever bands their people named."""
    world = _lender_and_borrower()
    world.submit(_h(band=Band.LOW))
    assert world.states() == {"j1": "RUNNING", "j2": "PENDING", "j3": "RUNNING"}
    assert world.jobs["j2"].preemptions == 1


def test_a_borrower_takes_nothing_from_anybody() -> None:
    """Over quota nobody is preempted, not even for a critical job."""
    world = _lender_and_borrower()
    world.submit(_h(tenant="b", band=Band.CRITICAL))
    assert world.states() == {"j1": "RUNNING", "j2": "RUNNING", "j3": "PENDING"}
    assert world.reason("j3") == "WaitingForQuota"


def test_work_within_quota_is_not_reclaimed() -> None:
    """A tenant gets back what it lent, and not what others hold within their own quota."""
    world = _lender_and_borrower()
    world.submit(_h(band=Band.LOW), _h(band=Band.LOW))
    assert world.states()["j1"] == "RUNNING"
    assert world.states()["j4"] == "PENDING"


def test_the_class_of_an_attempt_is_fixed_until_it_ends() -> None:
    """Quota that comes free does not turn borrowed work into guaranteed work; the next attempt is."""
    world = World(fleet(cluster("east-1", hosts=4), tenants=(tenant("a", H100=8),)))
    world.submit(_h(), _h(max_restarts=3))
    world.finish("j1")
    assert _standing(world, "j2") == "over"
    world.finish("j2", 1)
    world.advance(10)
    assert _standing(world, "j2") == "within"


# --- the ledger -------------------------------------------------------------------------------------------


def test_what_was_taken_and_given_back_leaves_nothing() -> None:
    """Counters return to zero, and empty entries disappear."""
    ledger = Ledger((tenant("a", H100=8),))
    ledger.take("a", "east", "H100", 4_000, False)
    ledger.take("a", "east", "H100", 500, True)
    assert ledger.holding("a", "H100") == Holding(4_000, 500)
    assert ledger.by_region == {"east": 4_500}
    ledger.give_back("a", "east", "H100", 4_000, False)
    ledger.give_back("a", "east", "H100", 500, True)
    assert ledger.held == {}
    assert ledger.by_region["east"] == 0


@pytest.mark.parametrize(
    ("story", "borrowed", "want"),
    [
        ("nobody borrows", 0, {"a": 0, "b": 0, "c": 0}),
        ("the first by name lends first", 3_000, {"a": 3_000, "b": 0, "c": 0}),
        ("then the next", 10_000, {"a": 8_000, "b": 2_000, "c": 0}),
        ("beyond all quotas nobody lends", 99_000, {"a": 8_000, "b": 4_000, "c": 0}),
    ],
)
def test_what_is_lent_is_what_others_borrow(
    story: str, borrowed: int, want: dict[str, int]
) -> None:
    """Lent quota never exceeds what is unused, nor what is borrowed."""
    ledger = Ledger((tenant("a", H100=8), tenant("b", H100=8), tenant("c", H100=0)))
    ledger.take("b", "east", "H100", 4_000, False)
    ledger.take("c", "east", "H100", borrowed, True)
    assert {name: ledger.lent("H100").get(name, 0) for name in want} == want


def test_usage_decays_by_half_in_its_half_life() -> None:
    """Fairness looks at recent work more than at old."""
    weights = RankWeights(usage_half_life_s=100.0)
    ledger = Ledger((TenantSpec("a"), TenantSpec("b")))
    ledger.charge("a", 80.0, 0.0, weights)
    ledger.charge("b", 40.0, 100.0, weights)
    assert ledger.used_gpu_s == {"a": 40.0, "b": 40.0}
    assert ledger.fairness("a") == ledger.fairness("b") == 0.0
    ledger.charge("b", 0.0, 200.0, weights)
    assert ledger.decayed() == (200.0, {"a": 20.0, "b": 20.0})


def _for_a_while(name: str, quota: dict[str, int], *tenants: TenantSpec) -> Ledger:
    timed = TimedQuota(name, quota, 0.0, 9.0)
    return Ledger(with_timed(tenants, {name: KnownQuota(timed, True)}))


def _room(ledger: Ledger, name: str, model: str) -> int:
    """How many GPUs fit within the quota of a tenant, of a hundred."""
    return sum(ledger.has_room(name, model, n * MILLI) for n in range(1, 101))


def test_a_quota_for_a_while_limits_the_models_that_it_names_alone() -> None:
    """A tenant without a quota has as much of the others as before."""
    free = _for_a_while("a", {"H100": 8}, TenantSpec("a"))
    assert [_room(free, "a", model) for model in ("H100", "A100")] == [8, 100]
    assert [free.nominal_milli("a", model) for model in ("H100", "A100")] == [8 * MILLI, None]
    assert free.most("a", "A100").guaranteed > 100 * MILLI
    stated = _for_a_while("a", {"H100": 8}, tenant("a", V100=4))
    assert [_room(stated, "a", model) for model in ("H100", "V100", "A100")] == [8, 4, 0]


def test_below_another_tenant_it_leaves_other_models_to_the_quota_above() -> None:
    """What is used of them counts there, and the tenants below it keep theirs."""
    tenants = (
        tenant("all", H100=16, A100=32), TenantSpec("a", parent="all"),
        tenant("kid", parent="a", A100=4), TenantSpec("new", parent="a"),
    )  # fmt: skip
    ledger = _for_a_while("a", {"H100": 8}, *tenants)
    assert [_room(ledger, "a", model) for model in ("H100", "A100")] == [8, 28]
    assert [_room(ledger, "all", model) for model in ("H100", "A100")] == [8, 28]
    assert [_room(ledger, "kid", model) for model in ("H100", "A100")] == [0, 4]
    assert [_room(ledger, "new", model) for model in ("H100", "A100")] == [8, 28]
    ledger.take("a", "east", "A100", 20 * MILLI, over_quota=False)
    assert [_room(ledger, name, "A100") for name in ("a", "all", "kid", "new")] == [8, 8, 4, 8]
    assert ledger.full_at("a", "A100", 9 * MILLI) == "all"
