"""Tenants below tenants: whose quota a job uses, from whom it borrows, who goes first."""

from dataclasses import dataclass

import msgspec
import pytest

from tests.support.build import cluster, fleet, gang, job, needs, tenant
from tests.support.invariants import check_counters, check_rebuilds
from tests.support.world import World
from topmast.fast.queue.tenancy.ledger import Holding, Ledger
from topmast.fast.queue.tenancy.tree import Tree
from topmast.model import messages as m
from topmast.model.fleet import ClusterSpec, TenantSpec
from topmast.model.job import Band, JobSpec
from topmast.policies.options import RankWeights
from topmast.service import fleet as listings


@dataclass
class Admission:
    """A tree on 32 H100 and 16 A100; what becomes of jobs, in order: tenant and H100, or a job."""

    story: str
    tenants: tuple[TenantSpec, ...]
    jobs: tuple[tuple[str, float] | JobSpec, ...]
    want: tuple[str, ...]
    """For each job: ``within``, ``over`` (the quota), or the reason why it waits."""


def _job(tenant: str, gpus: float, **more: object) -> JobSpec:
    count = max(1, int(gpus // 8))
    return job(**{"gpus": gpus / count, "count": count, "tenant": tenant, **more})  # type: ignore[arg-type]


MIXED = ClusterSpec(
    "east-1",
    (*cluster("east-1", hosts=2, model="A100").hosts, *cluster("east-2", hosts=4).hosts),
)
ORG = tenant("org", H100=24)
CLOSED = tenant("org", borrow=0, H100=24)
A, B = tenant("a", "org", H100=8), tenant("b", "org", H100=8)
GUEST = tenant("guest", "org")

ADMISSIONS = [
    # --- within quota
    Admission("a child has what it states", (ORG, A, B), (("a", 8), ("b", 8)), ("within", "within")),
    Admission(
        "the work of a parent uses what it gave to nobody", (ORG, A, B),
        (("org", 8), ("org", 8)), ("within", "over"),
    ),
    Admission(
        "so a child's quota is there, however much its parent runs", (ORG, A, B),
        (("org", 8), ("org", 8), ("org", 8), ("a", 8)), ("within", "over", "over", "within"),
    ),
    Admission(
        "a child that states no quota lives on its parent's", (ORG, A, B, GUEST),
        (("guest", 4), ("org", 4), ("guest", 4)), ("within", "within", "over"),
    ),
    Admission(
        "or on that of the next tenant above that states one",
        (ORG, GUEST, tenant("intern", "guest")), (("intern", 24), ("guest", 8)), ("within", "over"),
    ),
    Admission(
        "a quota stated below one that is left out counts all the same",
        (ORG, GUEST, tenant("intern", "guest", H100=16)),
        (("intern", 16), ("org", 8), ("org", 8)), ("within", "within", "over"),
    ),
    Admission(
        "no quota anywhere above is no limit", (tenant("org"), tenant("a", "org")),
        (("a", 32),), ("within",),
    ),
    Admission(
        "a quota below a tenant without one stands by itself",
        (tenant("org"), tenant("a", "org", H100=8)), (("a", 8), ("a", 8), ("org", 16)),
        ("within", "over", "within"),
    ),
    # --- borrowing
    Admission(
        "a sibling lends before anything comes from outside", (CLOSED, A, B),
        (("a", 8), ("a", 16)), ("within", "over"),
    ),
    Admission(
        "a branch that may not borrow has what it has", (CLOSED, A, B),
        (("a", 8), ("a", 16), ("b", 8), ("b", 8)),
        ("within", "over", "within", "WaitingForQuota"),
    ),
    Admission(
        "more than the branch has is too much for ever", (CLOSED, A, B),
        (("a", 32),), ("ExceedsMaxQuota",),
    ),
    Admission(
        "the limit of a branch is not that of its children",
        (tenant("org", borrow=8, H100=16), tenant("a", "org", H100=8)),
        (("a", 8), ("a", 8), ("a", 8), ("a", 8)), ("within", "over", "over", "WaitingForQuota"),
    ),
    Admission(
        "the limit of a child is not that of its branch",
        (ORG, tenant("a", "org", borrow=8, H100=8)),
        (("a", 8), ("a", 8), ("a", 8)), ("within", "over", "WaitingForQuota"),
    ),
    Admission(
        "GPUs that belong to no quota may be borrowed", (tenant("a", H100=8),),
        (("a", 8), ("a", 24)), ("within", "over"),
    ),
    # --- lending
    Admission(
        "what is not lent stays free",
        (tenant("miser", lend=0, H100=16), tenant("b", H100=8)),
        (("b", 8), ("b", 8), ("b", 8), ("miser", 16)),
        ("within", "over", "WaitingForQuota", "within"),
    ),
    Admission(
        "a part may be lent", (tenant("miser", lend=8, H100=16), tenant("b", H100=8)),
        (("b", 8), ("b", 16), ("b", 1)), ("within", "over", "WaitingForQuota"),
    ),
    Admission(
        "what its owner uses is not kept twice",
        (tenant("miser", lend=0, H100=16), tenant("b", H100=8)),
        (("miser", 16), ("b", 8), ("b", 8)), ("within", "within", "over"),
    ),
    Admission(
        "opportunistic work of the owner may use what others may not",
        (tenant("miser", lend=0, H100=32), tenant("b", H100=0)),
        (_job("b", 8), _job("miser", 8, band=Band.OPPORTUNISTIC)),
        ("ExceedsMaxQuota", "over"),
    ),
    Admission(
        "a child that lends nothing keeps its part from its siblings too",
        (CLOSED, tenant("a", "org", lend=0, H100=8), B), (("b", 8), ("b", 8), ("b", 8)),
        ("within", "over", "WaitingForQuota"),
    ),
    Admission(
        "a branch may lend inside and not outside",
        (tenant("org", lend=0, H100=24), A, B, tenant("c", H100=0)),
        (("a", 24), ("c", 8), ("c", 8)), ("over", "over", "WaitingForQuota"),
    ),
    Admission(
        "whoever has no quota is kept from nothing",
        (tenant("miser", lend=0, H100=16), tenant("free")), (("free", 32),), ("within",),
    ),
    # --- several models
    Admission(
        "any model is one that the quota allows",
        (tenant("a", borrow=0, A100=8),), (_job("a", 8, model=None), _job("a", 8, model=None)),
        ("within", "WaitingForQuota"),
    ),
    Admission(
        "a gang of two models needs room for both",
        (tenant("a", H100=8),),
        (gang({"t": (1, needs(8, "H100")), "e": (1, needs(1, "A100"))}, tenant="a"), _job("a", 8)),
        ("over", "within"),
    ),
    Admission(
        "a reader on another host does not decide whose quota counts",
        (tenant("a", borrow=0, H100=8),),
        (gang({"r": (1, needs(cpus=1)), "t": (1, needs(8, "H100"))}, tenant="a"),),
        ("within",),
    ),
]  # fmt: skip


def _standing(world: World, name: str) -> str:
    record = world.jobs[name]
    if record.plan is None:
        return world.reason(name) or "none"
    return "over" if record.over_quota else "within"


def _world(*tenants: TenantSpec) -> World:
    return World(fleet(MIXED, tenants=tenants))


@pytest.mark.parametrize("case", ADMISSIONS, ids=lambda case: case.story)
def test_admission_in_a_tree(case: Admission) -> None:
    """Within the quota of the tree, over it, or not at all."""
    world = _world(*case.tenants)
    names = []
    for entry in case.jobs:
        names += world.submit(_job(*entry) if isinstance(entry, tuple) else entry)
    assert tuple(_standing(world, name) for name in names) == case.want
    check_counters(world)
    check_rebuilds(world)


def test_what_waits_is_told_whose_quota_is_full() -> None:
    """The reason names the tenant above whose quota the job lives on."""
    world = _world(CLOSED, GUEST)
    world.submit(_job("guest", 24), _job("guest", 8))
    verdict = world.queue.verdict_on(world.jobs["j2"])
    assert verdict is not None
    assert verdict.detail == "tenant guest would exceed the quota of org"


def test_a_gang_of_several_models_is_charged_for_each() -> None:
    """By what it holds, not by what its first task holds; and all comes back."""
    world = _world(tenant("a", H100=8, A100=8))
    spec = gang({"t": (1, needs(8, "H100")), "e": (2, needs(0.5, "A100"))}, tenant="a")
    world.submit(spec)
    ledger = world.queue.tenancy.ledger
    assert ledger.held == {("a", "H100"): Holding(8_000), ("a", "A100"): Holding(1_000)}
    for record in world.jobs.values():
        assert record.plan
        assert record.plan.gpus_milli == 9_000
    world.tell("queue", m.CancelJobs(("j1",)))
    assert not ledger.held
    assert not ledger.totals


def test_a_refused_plan_gives_its_quota_to_those_behind() -> None:
    """Whoever was told that the quota is used up is asked about again."""
    world = World(fleet(cluster("east-1"), tenants=(tenant("a", borrow=0, H100=8),)))
    world.submit(_job("a", 8), _job("a", 4))
    assert world.reason("j2") == "WaitingForQuota"
    world.tell("queue", m.PlanRefused("j1", 1, "a test"))
    assert world.states()["j2"] == "RUNNING"


def test_a_new_tree_counts_what_is_held_anew() -> None:
    """A tenant that moves takes its work along; work over a smaller quota keeps its class."""
    world = _world(ORG, A, tenant("other", H100=8))
    world.submit(_job("a", 8), _job("other", 8))
    smaller = tenant("a", "other", H100=4)
    world.configure(
        fleet(MIXED, tenants=(tenant("org", H100=12), smaller, tenant("other", H100=8)))
    )
    ledger = world.queue.tenancy.ledger
    assert ledger.total("other", "H100").guaranteed == 16_000
    assert ledger.total("org", "H100").guaranteed == 0
    assert ledger.holding("a", "H100") == Holding(8_000)
    assert not ledger.has_room("a", "H100", 1)
    assert ledger.has_room("org", "H100", 12_000)
    check_rebuilds(world)


def test_the_work_of_a_tenant_that_is_gone_is_bound_by_nothing() -> None:
    """Nobody is its parent, and its GPUs count at the top alone."""
    ledger = Ledger((tenant("a", H100=8),))
    ledger.take("gone", "east", "H100", 8_000, False)
    ledger.take("gone", "east", "H100", 4_000, True)
    assert ledger.has_room("gone", "H100", 99_000)
    assert ledger.may_borrow("gone", "H100", 99_000)
    assert ledger.total("", "H100").guaranteed == 8_000
    assert ledger.lent("H100") == {"a": 4_000}


def test_a_circle_made_by_hand_is_cut_open() -> None:
    """No file has one; a ledger must not run in it for ever."""
    tree = Tree((tenant("a", "b"), tenant("b", "c"), tenant("c", "a"), tenant("d", "nobody")))
    assert sorted(node.name for node in tree.downwards) == ["", "a", "b", "c", "d"]
    assert [node.name for node in tree.node("a").up()] == ["a", "b", "c", ""]


# --- reclaiming -----------------------------------------------------------------------------------------


def test_quota_lent_to_a_sibling_is_taken_back() -> None:
    """Within its quota a child preempts what its sibling runs over quota, whatever the bands."""
    world = World(fleet(cluster("east-1"), tenants=(tenant("org", H100=16), A, B)))
    world.submit(_job("a", 8))
    world.submit(_job("a", 8, band=Band.CRITICAL))
    assert [_standing(world, j) for j in ("j1", "j2")] == ["within", "over"]
    world.submit(_job("b", 8, band=Band.LOW))
    assert world.states() == {"j1": "RUNNING", "j2": "PENDING", "j3": "RUNNING"}


def test_a_child_takes_back_what_its_parent_runs_beyond_its_own_part() -> None:
    """The parent's own work does not outrank what the parent promised."""
    world = World(fleet(cluster("east-1"), tenants=(tenant("org", H100=16), A)))
    world.submit(_job("org", 8), _job("org", 8))
    assert [_standing(world, j) for j in ("j1", "j2")] == ["within", "over"]
    world.submit(_job("a", 8))
    assert world.states() == {"j1": "RUNNING", "j2": "PENDING", "j3": "RUNNING"}


# --- who lends --------------------------------------------------------------------------------------------


@dataclass
class Lending:
    """What is held, in GPUs (guaranteed, borrowed), and who lends how many of them."""

    story: str
    tenants: tuple[TenantSpec, ...]
    held: dict[str, tuple[int, int]]
    want: dict[str, int]


LENDINGS = [
    Lending("siblings lend first", (ORG, A, B, tenant("c", H100=8)), {"a": (8, 4)}, {}),
    Lending(
        "after what the parent gave to nobody", (ORG, A, B, tenant("c", H100=8)), {"a": (8, 12)},
        {"b": 4},
    ),
    Lending(
        "then those outside", (ORG, A, B, tenant("c", H100=8)), {"a": (8, 20)}, {"b": 8, "c": 4},
    ),
    Lending(
        "a branch lends with all that is in it", (ORG, A, B, tenant("c", H100=0)),
        {"a": (4, 0), "c": (0, 18)}, {"org": 18, "a": 4, "b": 6},
    ),
    Lending(
        "what is used inside goes before what is lent outside", (ORG, A, B, tenant("c", H100=0)),
        {"a": (8, 10), "c": (0, 6)}, {"org": 6, "b": 8},
    ),
    Lending(
        "over quota a tenant first uses what is left of its own", (tenant("a", H100=8),
        tenant("b", H100=8)), {"b": (4, 8)}, {"a": 4},
    ),
    Lending(
        "no more than the limit", (tenant("a", lend=2, H100=8), tenant("b", H100=8)),
        {"b": (8, 8)}, {"a": 2},
    ),
    Lending(
        "tenants without quota pass on what those below them have",
        (tenant("org"), A, B, tenant("c", H100=8)), {"b": (8, 4), "org": (8, 0)}, {"a": 4},
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", LENDINGS, ids=lambda case: case.story)
def test_who_lends(case: Lending) -> None:
    """Within the parent, then further up; last the GPUs that belong to no quota."""
    ledger = Ledger(case.tenants)
    for name, (guaranteed, borrowed) in case.held.items():
        ledger.take(name, "east", "H100", guaranteed * 1000, False)
        ledger.take(name, "east", "H100", borrowed * 1000, True)
    lent = {name: milli // 1000 for name, milli in ledger.lent("H100").items() if milli}
    assert lent == case.want


# --- fair share -------------------------------------------------------------------------------------------

TEAMS = (
    tenant("big", weight=3), tenant("small", weight=1),
    tenant("x", "big", weight=1), tenant("y", "big", weight=2),
)  # fmt: skip


def _used(**used_gpu_s: float) -> Ledger:
    ledger = Ledger(TEAMS)
    for name, used in used_gpu_s.items():
        ledger.charge(name, used, 0.0, RankWeights())
    return ledger


def test_fair_shares_multiply_down_the_tree() -> None:
    """A part of the parent's part, by weight among siblings; use adds up."""
    ledger = _used(x=30.0, y=10.0, big=10.0, small=50.0)
    shares = {name: (ledger.share(name).fair, ledger.share(name).used) for name in "xy"}
    assert shares == {"x": (0.25, 0.3), "y": (0.5, 0.1)}
    assert ledger.share("big").used == 0.5


def test_nothing_used_is_fair() -> None:
    """With nobody to compare with, all stand alike; nobody unknown falls behind."""
    ledger = _used()
    assert {ledger.fairness(name) for name in ("big", "small", "x", "y", "nobody")} == {1.0}


@pytest.mark.parametrize(
    ("story", "used", "first", "second"),
    [
        ("a branch that used less goes first", {"x": 1.0, "small": 9.0}, "y", "small"),
        ("inside a branch whoever used less", {"x": 5.0, "small": 5.0}, "y", "x"),
        ("by weight", {"x": 5.0, "y": 6.0, "small": 5.0}, "y", "x"),
        ("a tenant answers for its branch", {"x": 9.0, "small": 1.0}, "small", "y"),
        ("work of the parent counts for the branch", {"big": 9.0, "small": 1.0}, "small", "x"),
    ],
)
def test_who_is_treated_worse_goes_first(
    story: str, used: dict[str, float], first: str, second: str
) -> None:
    """Branches against branches first, then tenants inside them."""
    ledger = _used(**used)
    assert ledger.fairness(first) > ledger.fairness(second)


def test_an_only_child_stands_as_its_parent() -> None:
    """A level with nobody to compare with says nothing."""
    ledger = Ledger((tenant("org"), tenant("a", "org"), tenant("b", "org")))
    ledger.charge("a", 10.0, 0.0, RankWeights())
    ledger.charge("b", 10.0, 0.0, RankWeights())
    deep = Ledger((tenant("a"), tenant("aa", "a"), tenant("b")))
    deep.charge("b", 10.0, 0.0, RankWeights())
    deep.charge("aa", 5.0, 0.0, RankWeights())
    assert deep.fairness("aa") == deep.fairness("a") > 0.0


# --- what is shown ----------------------------------------------------------------------------------------


def test_the_listing_has_the_tree() -> None:
    """Parents before children; a parent counts what is below it."""
    world = _world(ORG, A, B, tenant("zoo", weight=3))
    world.submit(_job("a", 8), _job("a", 8), _job("b", 4), _job("zoo", 8), _job("b", 32))
    rows = listings.tenants(world.queue)
    shown = [(r.name, r.parent, r.nominal, r.used, r.borrowed, r.pending) for r in rows]
    assert shown == [
        ("org", None, 24, 12, 8, 32), ("a", "org", 8, 8, 8, 0), ("b", "org", 8, 4, 0, 32),
        ("zoo", None, None, 8, 0, 0),
    ]  # fmt: skip
    assert [row.fair_share for row in rows] == [0.25, 0.125, 0.125, 0.75]


def test_specs_of_before_the_tree_still_decode() -> None:
    """Journals of an older version lack the new fields."""
    old = b'{"name":"a","quota":{"H100":8},"borrow_limit":null,"weight":2.0}'
    assert msgspec.json.decode(old, type=TenantSpec) == tenant("a", weight=2.0, H100=8)
