"""Tenants: what each may hold, holds within its quota, and borrows beyond it.

Questions about quota are answered by a walk up the tree: O(depth), at most 16 in a file. The
reference page on quota says the rules in words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from topmast.fast.queue.tenancy.fair_shares import Share, shares
from topmast.fast.queue.tenancy.tree import Node, Tree
from topmast.model.fleet import TenantSpec
from topmast.model.job import MILLI
from topmast.policies.options import RankWeights

NO_LIMIT = 1 << 62
"""Thousandths of GPUs: more than any fleet has."""


class Holding(Struct):
    """Thousandths of GPUs that one tenant holds of one model."""

    guaranteed: int = 0
    borrowed: int = 0


class Totals(Struct):
    """What a tenant and all below it hold of one model, in thousandths of GPUs.

    ``direct``: the part of ``guaranteed`` that lives on this tenant's own quota, not on one stated
    below. ``claimed``: all that is held, and what the tenants below keep back from being lent.
    """

    guaranteed: int = 0
    borrowed: int = 0
    direct: int = 0
    claimed: int = 0


class Ledger:
    """Counters by tenant and GPU model; always equal to a recount of the attempts held."""

    def __init__(self, tenants: Iterable[TenantSpec]) -> None:
        self.held: dict[tuple[str, str], Holding] = {}
        self.totals: dict[tuple[str, str], Totals] = {}
        self.by_region: dict[str, int] = {}
        self.by_model: dict[str, int] = {}
        self.booked_in: dict[str, None] = {}
        """Regions with another sum than when `Tenancy.plain_terms` looked last."""
        self.used_gpu_s: dict[str, float] = {}
        self._changes = 0
        self._changed: dict[str, int] = {}
        """By branch, the last change there, as counted by that."""
        self._touched: dict[str, None] | None = {}
        """Branches in which tenants may do more, or less, than at the last call; None: all."""
        self.outgrown: dict[tuple[str, str], Holding] = {}
        """What a tenant held of a model when its limits were set below that: it may keep it."""
        self._decayed_at_s = 0.0
        self.set_tenants(tenants)

    def set_tenants(
        self, tenants: Iterable[TenantSpec], gpus: Mapping[str, int] | None = None
    ) -> None:
        """Take up new quotas, and the GPUs there are by model; attempts keep their quota class.

        O(tenants x models + holdings x depth).
        """
        self.tenants: dict[str, TenantSpec] = {t.name: t for t in tenants}
        self.tree = Tree(self.tenants.values())
        self._touched = None
        self._changes += 1
        self._changed = {}
        self._first_change = self._changes
        self._branches: dict[str, str] = {}
        self.keeps_back = any(t.lend_limit is not None for t in self.tenants.values())
        """Whether some tenant keeps a part of its quota from borrowers: using it, it keeps less."""
        self.has_quotas = any(t.quota is not None for t in self.tenants.values())
        """Else all work but `OPPORTUNISTIC` is within quota."""
        self._gpus = dict(gpus or {})
        self.capacity = {model: count * MILLI for model, count in self._gpus.items()}
        self._empty: Ledger | None = None
        self.totals = {}
        for (tenant, model), holding in self.held.items():
            self._climb(tenant, model, holding.guaranteed, over_quota=False)
            self._climb(tenant, model, holding.borrowed, over_quota=True)
        self._shares: dict[str, Share] | None = None
        self.note_outgrown()

    def note_outgrown(self) -> None:
        """Remember what is held beyond limits now: a lower limit stops nothing. O(holdings)."""
        self.outgrown = {
            (tenant, model): replace(holding)
            for (tenant, model), holding in self.held.items()
            if holding.guaranteed > self.most(tenant, model).guaranteed
            or holding.borrowed > self.most(tenant, model).borrowed
        }

    def most(self, tenant: str, model: str) -> Holding:
        """What a tenant that starts with nothing may come to hold, by its own limits. O(1)."""
        node = self.tree.node(tenant)
        stated = node.stated(model)
        quota = NO_LIMIT if stated is None else stated
        borrow = NO_LIMIT if node.borrow is None else node.borrow.get(model, 0)
        return Holding(quota, borrow)

    def twin(self, tenants: Iterable[TenantSpec] | None = None) -> Ledger:
        """A copy for trials, perhaps with other quotas. O(tenants x models + holdings x depth)."""
        other = Ledger(())
        other.held = {key: replace(holding) for key, holding in self.held.items()}
        other.by_region = dict(self.by_region)
        other.by_model = dict(self.by_model)
        other.set_tenants(self.tenants.values() if tenants is None else tenants, self._gpus)
        return other

    @property
    def empty(self) -> Ledger:
        """The same with nothing held. O(tenants x models) after a change of quotas, or O(1)."""
        if self._empty is None:
            self._empty = Ledger(())
            self._empty.set_tenants(self.tenants.values(), self._gpus)
        return self._empty

    def holding(self, tenant: str, model: str) -> Holding:
        """What the tenant itself holds of the model."""
        return self.held.get((tenant, model), Holding())

    def total(self, tenant: str, model: str) -> Totals:
        """What the tenant and all below it hold of the model."""
        return self._total(self.tree.node(tenant), model)

    def give_back(self, tenant: str, region: str, model: str, milli: int, over_quota: bool) -> None:
        """Book the end of an attempt. O(depth)."""
        self.take(tenant, region, model, -milli, over_quota)

    def take(self, tenant: str, region: str, model: str, milli: int, over_quota: bool) -> None:
        """Book an attempt. O(depth)."""
        holding = self.held.get((tenant, model))
        if holding is None:
            holding = self.held[tenant, model] = Holding()
        if over_quota:
            holding.borrowed += milli
        else:
            holding.guaranteed += milli
        self.by_region[region] = self.by_region.get(region, 0) + milli
        self.by_model[model] = self.by_model.get(model, 0) + milli
        self.booked_in[region] = None
        branch = self.branch(tenant)
        self._changes += 1
        self._changed[branch] = self._changes
        if self._touched is not None:
            self._touched[branch] = None
        if not holding.guaranteed and not holding.borrowed:
            del self.held[tenant, model]
        self._climb(tenant, model, milli, over_quota)

    def may_be_free(self, model: str, milli: int) -> bool:
        """Whether the fleet has so much that no attempt holds; it may be out of service. O(1)."""
        capacity_milli = self.capacity.get(model)
        return capacity_milli is None or self.by_model.get(model, 0) + milli <= capacity_milli

    @property
    def is_touched(self) -> bool:
        """Whether anything was booked since `take_touched`."""
        return self._touched is None or bool(self._touched)

    def take_touched(self) -> Callable[[str], bool]:
        """Tells of which tenants may be let do more, or less, than when this was called last.

        What others hold matters to a tenant within its branch only, unless one keeps quota back.
        """
        touched, self._touched = self._touched, {}
        if touched is None or self.keeps_back:
            return lambda tenant: True
        return lambda tenant: self.branch(tenant) in touched

    def as_of(self, tenant: str) -> int:
        """The change as of which a tenant's rights hold: a new number, perhaps new rights. O(1)."""
        if self.keeps_back:
            return self._changes
        if self.tree.node(tenant).home is None:
            return self._first_change  # nothing limits it, whatever others hold
        return self._changed.get(self.branch(tenant), self._first_change)

    def branch(self, tenant: str) -> str:
        """The outermost tenant above one, or itself; empty for an unknown one. Amortised O(1)."""
        name = self._branches.get(tenant)
        if name is None:
            node = self.tree.node(tenant)
            while node.parent is not None and node.parent is not self.tree.top:
                node = node.parent
            name = self._branches[tenant] = node.name
        return name

    def _climb(self, tenant: str, model: str, milli: int, over_quota: bool) -> None:
        """Add to a tenant and all above it."""
        claimed, direct = milli, 0 if over_quota else milli
        node: Node | None = self.tree.node(tenant)
        while node is not None:
            total = self.totals.get((node.name, model))
            if total is None:
                total = self.totals[node.name, model] = _at_rest(node, model)
            before = node.claim(model, total.claimed)
            if over_quota:
                total.borrowed += milli
            else:
                total.guaranteed += milli
            total.direct += direct
            total.claimed += claimed
            claimed = node.claim(model, total.claimed) - before
            direct = direct if node.stated(model) is None else 0
            if not total.guaranteed and not total.borrowed:
                del self.totals[node.name, model]
            node = node.parent

    def _total(self, node: Node, model: str) -> Totals:
        found = self.totals.get((node.name, model))
        return _at_rest(node, model) if found is None else found

    # --- quota ------------------------------------------------------------------------------------

    def nominal_milli(self, tenant: str, model: str) -> int | None:
        """The quota that the tenant states; None if it states none. A model not listed has none."""
        return self.tree.node(tenant).stated(model)

    def is_limited(self, tenant: str) -> bool:
        """Whether what others hold can ever change what this tenant may use. O(1)."""
        return self.keeps_back or self.tree.node(tenant).home is not None

    def has_room(self, tenant: str, model: str, milli: int) -> bool:
        """Whether ``milli`` more of ``model`` fit within the quota. O(depth)."""
        return self.full_at(tenant, model, milli) is None

    def full_at(self, tenant: str, model: str, milli: int) -> str | None:
        """The tenant without room in its quota for ``milli`` more of ``model``; None: all have it.

        The first from the home upwards. The home must have them beside what is in direct use and
        what it gave to tenants below, so that what a tenant states is there whenever it asks. The
        quotas above hold by that; they are looked at because what was held before a quota shrank
        still counts. O(depth).
        """
        home = self.tree.node(tenant).home_of(model)
        if home is None:
            return None
        spoken = home.given.get(model, 0) + self._total(home, model).direct
        for node in home.up():
            stated = node.stated(model)
            if stated is not None:
                used = max(spoken, self._total(node, model).guaranteed)
                if used + milli > stated:
                    return node.name
            spoken = 0
        return None

    def may_borrow(self, tenant: str, model: str, milli: int) -> bool:
        """Whether ``milli`` more of ``model`` may run over quota, by every limit. O(depth).

        No limit to borrowing is passed, by the tenant or a branch; what lenders keep stays free.
        What is added shrinks on the way up by what a branch takes of the quota that it keeps back.
        """
        start, borrowed = self.tree.node(tenant), self.holding(tenant, model).borrowed
        if start.borrow is not None and borrowed + milli > start.borrow.get(model, 0):
            return False
        added = milli
        for node in start.up():
            total = self._total(node, model)
            claimed = total.claimed + added
            if node is self.tree.top:
                kept = claimed - (total.guaranteed + total.borrowed + milli)
                return kept <= 0 or claimed <= self.capacity.get(model, claimed)
            if node.quota is not None and node.borrow is not None:
                outside = claimed - node.quota.get(model, 0)
                if outside > node.borrow.get(model, 0):
                    return False
            added = node.claim(model, claimed) - node.claim(model, total.claimed)
            if not added:
                break
        return True

    # --- lending ----------------------------------------------------------------------------------

    def lent(self, model: str) -> dict[str, int]:
        """What every tenant lends of a model: idle quota that tenants outside its branch use now.

        A tenant above its quota is served by what its parent gave to none, then by its siblings, in
        order of name; the rest goes up. At the top remain GPUs that belong to no quota. O(tenants).
        """
        balances: dict[str, _Balance] = {}
        for node in reversed(self.tree.downwards):
            balances[node.name] = self._balance(node, model, balances)
        lent: dict[str, int] = {}
        for node in self.tree.downwards:
            balance = balances[node.name]
            wanted = min(balance.needed, balance.idle) + lent.get(node.name, 0)
            wanted -= min(wanted, balance.own_idle)
            for child in node.children:
                lent[child.name] = min(wanted, balances[child.name].offered)
                wanted -= lent[child.name]
        return lent

    def _balance(self, node: Node, model: str, below: Mapping[str, _Balance]) -> _Balance:
        total = self._total(node, model)
        parts = [self._total(child, model) for child in node.children]
        guaranteed = total.guaranteed - sum(part.guaranteed for part in parts)
        borrowed = total.borrowed - sum(part.borrowed for part in parts)
        children = [below[child.name] for child in node.children]
        given = sum(child.nominal for child in children)
        stated = node.stated(model)
        nominal = given + guaranteed if stated is None else stated
        own_idle = nominal - given - guaranteed - borrowed
        claimed = node.claim(model, total.claimed)
        return _Balance(
            nominal=nominal,
            own_idle=max(0, own_idle),
            needed=sum(child.excess for child in children) + max(0, -own_idle),
            idle=sum(child.offered for child in children) + max(0, own_idle),
            excess=max(0, claimed - nominal),
            offered=max(0, nominal - claimed),
        )

    # --- fairness ---------------------------------------------------------------------------------

    def charge(self, tenant: str, gpu_s: float, now: float, weights: RankWeights) -> None:
        """Add finished work to a tenant's decayed usage. O(tenants that used anything)."""
        self._decay(now, weights)
        self.used_gpu_s[tenant] = self.used_gpu_s.get(tenant, 0.0) + gpu_s
        self._shares = None

    def _decay(self, now: float, weights: RankWeights) -> None:
        factor = self._decay_until(now, weights)
        for tenant in self.used_gpu_s:
            self.used_gpu_s[tenant] *= factor
        self._decayed_at_s = now

    def _decay_until(self, now: float, weights: RankWeights) -> float:
        """What a GPU-second of usage counts at ``now``."""
        return float(0.5 ** (max(0.0, now - self._decayed_at_s) / weights.usage_half_life_s))

    def share(self, tenant: str) -> Share:
        """A tenant's part of the fleet, by right and in use. O(tenants) after a charge, or O(1)."""
        if self._shares is None:
            self._shares = shares(self.tree, self.used_gpu_s)
        return self._shares.get(tenant, Share())

    def shares_with(
        self, running_gpu_s: Mapping[str, float], now: float, weights: RankWeights
    ) -> dict[str, Share]:
        """The shares as if what runs ended now; the order of jobs does not know it. O(tenants)."""
        factor = self._decay_until(now, weights)
        used_gpu_s = {tenant: gpu_s * factor for tenant, gpu_s in self.used_gpu_s.items()}
        for tenant, gpu_s in running_gpu_s.items():
            used_gpu_s[tenant] = used_gpu_s.get(tenant, 0.0) + gpu_s
        return shares(self.tree, used_gpu_s)

    def fairness(self, tenant: str) -> float:
        """1 for a tenant that used nothing, 0 for one at or above its fair share. As `share`."""
        return self.share(tenant).fairness

    def decayed(self) -> tuple[float, dict[str, float]]:
        """Decayed usage and the time it refers to, for a snapshot."""
        return self._decayed_at_s, dict(self.used_gpu_s)

    def set_decayed(self, at_s: float, used_gpu_s: dict[str, float]) -> None:
        """Take up usage from a snapshot."""
        self._decayed_at_s, self.used_gpu_s = at_s, dict(used_gpu_s)
        self._shares = None


class _Balance(Struct):
    """One tenant and one model, with all below it: what is lacking and what is idle inside.

    ``excess`` is what it takes from outside, ``offered`` what it has for outside: one of them is 0.
    """

    nominal: int
    own_idle: int
    needed: int
    idle: int
    excess: int
    offered: int


def _at_rest(node: Node, model: str) -> Totals:
    """The totals of an empty fleet."""
    return Totals(claimed=node.at_rest.get(model, 0))
