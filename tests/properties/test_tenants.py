"""Trees of tenants: whatever is taken and given back, the counters are a recount, and promises hold.

The recount is written down once more here, from the list of what is held and in the simplest words: by
recursion over the whole tree, and for lending GPU by GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import event, given, settings
from hypothesis import strategies as st

from topmast.fast.queue.tenancy.ledger import Ledger, Totals
from topmast.model.files.fleetfile import parse_fleet
from topmast.model.fleet import TenantSpec
from topmast.model.job import MILLI
from topmast.policies.options import RankWeights

NAMES = "abcdefg"
MODELS = ("A100", "H100")
HALF = MILLI // 2

quick = settings(max_examples=200, deadline=None)

Specs = dict[str, TenantSpec]


@st.composite
def limits(draw: st.DrawFn, quota: dict[str, int] | None) -> dict[str, int] | None:
    if quota is None or draw(st.booleans()):
        return None
    return draw(st.dictionaries(st.sampled_from(MODELS), st.integers(0, 4)))


@st.composite
def trees(draw: st.DrawFn) -> Specs:
    """Tenants whose quotas fit into those above, as a fleet file has them."""
    specs: Specs = {}
    left: dict[str, dict[str, int]] = {}
    for name in NAMES[: draw(st.integers(1, len(NAMES)))]:
        parent = draw(st.none() | st.sampled_from(sorted(specs))) if specs else None
        home = _home(specs, parent)
        quota = None
        if draw(st.booleans()):
            most = left[home] if home else dict.fromkeys(MODELS, 6)
            quota = {model: draw(st.integers(0, most[model])) for model in MODELS}
            left[name] = dict(quota)
            if home:
                for model, count in quota.items():
                    left[home][model] -= count
        specs[name] = TenantSpec(
            name, quota, draw(limits(quota)), draw(st.sampled_from((0.5, 1.0, 3.0))),
            draw(limits(quota)), parent,
        )  # fmt: skip
    return specs


@dataclass
class Held:
    tenant: str
    model: str
    milli: int
    over_quota: bool


@dataclass
class Recount:
    """What the counters must be, from the list of what is held."""

    specs: Specs
    held: list[Held]
    claims: dict[tuple[str, str], int] = field(default_factory=dict)

    def children(self, name: str | None) -> list[str]:
        return sorted(spec.name for spec in self.specs.values() if spec.parent == name)

    def branch(self, name: str | None) -> Iterator[str]:
        if name is not None:
            yield name
        for child in self.children(name):
            yield from self.branch(child)

    def quota(self, name: str | None, model: str) -> int | None:
        spec = self.specs[name] if name is not None else None
        return None if spec is None or spec.quota is None else spec.quota.get(model, 0) * MILLI

    def kept(self, name: str | None, model: str) -> int:
        lend = self.specs[name].lend_limit if name is not None else None
        most = 0 if lend is None else lend.get(model, 0) * MILLI
        return 0 if lend is None else max(0, (self.quota(name, model) or 0) - most)

    def own(self, name: str | None, model: str, over_quota: bool) -> int:
        return sum(
            h.milli for h in self.held if (h.tenant, h.model, h.over_quota) == (name, model, over_quota)
        )  # fmt: skip

    def sum(self, name: str | None, model: str, over_quota: bool) -> int:
        return sum(self.own(tenant, model, over_quota) for tenant in self.branch(name))

    def direct(self, name: str | None, model: str) -> int:
        """Guaranteed work that lives on the node's own quota."""
        below = [c for c in self.children(name) if self.quota(c, model) is None]
        return self.own(name, model, False) + sum(self.direct(child, model) for child in below)

    def below(self, name: str | None, model: str) -> int:
        use = self.own(name, model, False) + self.own(name, model, True)
        return use + sum(self.claim(child, model) for child in self.children(name))

    def claim(self, name: str | None, model: str) -> int:
        return max(self.below(name, model), self.kept(name, model))

    def nominal(self, name: str | None, model: str) -> int:
        stated = self.quota(name, model)
        given = sum(self.nominal(child, model) for child in self.children(name))
        return given + self.own(name, model, False) if stated is None else stated

    def totals(self, name: str | None, model: str) -> Totals:
        guaranteed, borrowed = (self.sum(name, model, over) for over in (False, True))
        return Totals(guaranteed, borrowed, self.direct(name, model), self.below(name, model))

    def lent(self, model: str) -> dict[str, int]:
        lent = dict.fromkeys(self.specs, 0)
        self._settle(None, model, lent)
        return lent

    def _settle(
        self, name: str | None, model: str, lent: dict[str, int]
    ) -> tuple[list[list[str]], int]:
        """Serve needs inside a branch with its idle halves of GPUs; what is left over, of which."""
        given = sum(self.nominal(child, model) for child in self.children(name))
        use = self.own(name, model, False) + self.own(name, model, True)
        idle = (self.nominal(name, model) - given - use) // HALF
        halves: list[list[str]] = [[] for _ in range(idle)]
        needs = max(0, -idle)
        for child in self.children(name):
            more, lacking = self._settle(child, model, lent)
            halves += more
            needs += lacking
        served = min(needs, len(halves))
        for lenders in halves[:served]:
            for lender in lenders:
                lent[lender] += HALF
        most = (self.nominal(name, model) - self.kept(name, model)) // HALF
        left = halves[served:][:most]
        if name is not None:
            for lenders in left:
                lenders.append(name)
        return left, needs - served

    def may_borrow(self, tenant: str, model: str, milli: int, capacity: int) -> bool:
        """Nobody's limit is passed by what is added, and what is kept is there."""
        after = Recount(self.specs, [*self.held, Held(tenant, model, milli, True)])
        own = self.specs[tenant].borrow_limit
        if own is not None and after.own(tenant, model, True) > own.get(model, 0) * MILLI:
            return False
        for name in (name for name in self.specs if tenant in self.branch(name)):
            limit, added = self.specs[name].borrow_limit, after.below(name, model)
            outside = added - (self.quota(name, model) or 0)
            more = added > self.below(name, model)
            if limit is not None and more and outside > limit.get(model, 0) * MILLI:
                return False
        total = after.below(None, model)
        kept = total > sum(after.sum(None, model, over) for over in (False, True))
        return not kept or total <= capacity or total == self.below(None, model)


def _home(specs: Specs, name: str | None) -> str | None:
    while name is not None and specs[name].quota is None:
        name = specs[name].parent
    return name


wishes = st.tuples(
    st.integers(0, 99), st.sampled_from(MODELS), st.sampled_from((1, 1, 2, 3, 6, 12)),
    st.sampled_from(("job", "job", "opportunistic", "end")),
)  # fmt: skip
capacities = st.fixed_dictionaries({model: st.integers(4, 24) for model in MODELS})


def _check(ledger: Ledger, specs: Specs, held: list[Held]) -> None:
    recount = Recount(specs, held)
    for model in MODELS:
        for name in (None, *specs):
            want = recount.totals(name, model)
            assert ledger.total(name or "", model) == want
            holds = want.guaranteed or want.borrowed
            assert ((name or "", model) in ledger.totals) == bool(holds)
        lent = ledger.lent(model)
        assert {name: lent[name] for name in specs} == recount.lent(model)


@quick
@given(trees(), capacities, st.lists(wishes, min_size=6, max_size=30))
def test_any_history(
    specs: Specs, capacity: dict[str, int], history: list[tuple[int, str, int, str]]
) -> None:
    """Counters equal a recount after every step; no admission breaks a promise."""
    ledger = Ledger(())
    ledger.set_tenants(specs.values(), capacity)
    held: list[Held] = []
    for number, model, halves, kind in history:
        if kind == "end":
            if held:
                done = held.pop(number % len(held))
                ledger.give_back(done.tenant, "east", done.model, done.milli, done.over_quota)
        else:
            tenant, milli = sorted(specs)[number % len(specs)], halves * HALF
            within = kind == "job" and ledger.has_room(tenant, model, milli)
            may = ledger.may_borrow(tenant, model, milli)
            want = Recount(specs, held).may_borrow(tenant, model, milli, capacity[model] * MILLI)
            assert may == want
            total = ledger.total("", model)
            fits = total.guaranteed + total.borrowed + milli <= capacity[model] * MILLI
            event(("within" if within else "over quota" if may else "refused") if fits else "full")
            if fits and (within or may):
                held.append(Held(tenant, model, milli, not within))
                ledger.take(tenant, "east", model, milli, not within)
                if within:
                    assert ledger.empty.has_room(tenant, model, milli)
                else:
                    assert ledger.empty.may_borrow(tenant, model, milli)
        _check(ledger, specs, held)
        _check_promises(ledger, specs)
    for last in held:
        ledger.give_back(last.tenant, "east", last.model, last.milli, last.over_quota)
    assert not ledger.held
    assert not ledger.totals


def _check_promises(ledger: Ledger, specs: Specs) -> None:
    """No quota is exceeded within quota; what a tenant states is there when it asks; limits are kept."""
    for name, spec in specs.items():
        for model in MODELS if spec.quota is not None else ():
            quota = (spec.quota or {})[model] * MILLI
            assert ledger.total(name, model).guaranteed <= quota
            node = ledger.tree.node(name)
            part = quota - node.given.get(model, 0) - ledger.total(name, model).direct
            assert part >= 0
            assert ledger.has_room(name, model, part)
            assert not ledger.has_room(name, model, part + 1)
            if spec.borrow_limit is not None:
                most = spec.borrow_limit.get(model, 0) * MILLI
                assert ledger.holding(name, model).borrowed <= most
            if spec.lend_limit is not None:
                assert ledger.lent(model).get(name, 0) <= spec.lend_limit.get(model, 0) * MILLI


@quick
@given(trees(), trees(), st.lists(wishes, max_size=15))
def test_another_tree(
    before: Specs, after: Specs, history: list[tuple[int, str, int, str]]
) -> None:
    """What is held is counted anew under another tree, tenants that are gone at the top."""
    ledger = Ledger(before.values())
    held = []
    for number, model, halves, kind in history:
        tenant = sorted(before)[number % len(before)]
        held.append(Held(tenant, model, halves * HALF, kind == "opportunistic"))
        ledger.take(tenant, "east", model, halves * HALF, kind == "opportunistic")
    ledger.set_tenants(after.values())
    known = [h for h in held if h.tenant in after]
    for name in after:
        for model in MODELS:
            assert ledger.total(name, model) == Recount(after, known).totals(name, model)
    for model in MODELS:
        total = ledger.total("", model)
        assert total.guaranteed + total.borrowed == sum(h.milli for h in held if h.model == model)


@quick
@given(trees(), st.lists(st.tuples(st.integers(0, 99), st.floats(0.0, 1e6)), max_size=10))
def test_shares(specs: Specs, used: list[tuple[int, float]]) -> None:
    """Fair shares are parts of the parent's; use adds up; fairness is between 0 and 1."""
    ledger = Ledger(specs.values())
    for now, (number, gpu_s) in enumerate(used):
        ledger.charge(sorted(specs)[number % len(specs)], gpu_s, float(now), RankWeights())
    recount = Recount(specs, [])
    for name in (None, *specs):
        children = recount.children(name)
        whole = ledger.share(name).fair if name is not None else 1.0
        if children:
            assert abs(sum(ledger.share(c).fair for c in children) - whole) < 1e-9
    for name in specs:
        share = ledger.share(name)
        assert 0.0 <= share.fairness <= 1.0
        assert 0.0 <= share.used <= 1.0 + 1e-9
        assert share.used >= sum(ledger.share(c).used for c in recount.children(name)) - 1e-9


@quick
@given(trees())
def test_a_tree_in_a_file_is_read_as_it_is(specs: Specs) -> None:
    """Every tree whose quotas fit is a good file, in any order."""
    document = {
        name: {
            key: value
            for key in ("quota", "borrow_limit", "lend_limit", "weight", "parent")
            if (value := getattr(spec, key)) is not None
        }
        for name, spec in reversed(specs.items())
    }
    hosts = [{"count": 1, "gpu": model, "gpus": 8} for model in MODELS]
    regions = {"east": {"clusters": {"east-1": {"hosts": hosts}}}}
    fleet = parse_fleet({"regions": regions, "tenants": document})
    assert {tenant.name: tenant for tenant in fleet.tenants} == specs
