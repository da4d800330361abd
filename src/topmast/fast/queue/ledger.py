"""Tenants: what each may hold, holds within its quota, and borrows beyond it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from topmast.model.fleet import TenantSpec
from topmast.model.job import MILLI
from topmast.policies.base import RankWeights


class Holding(Struct):
    """Thousandths of GPUs that one tenant holds of one model."""

    guaranteed: int = 0
    borrowed: int = 0


class Ledger:
    """Counters by tenant and GPU model; always equal to a recount of the attempts held."""

    def __init__(self, tenants: Iterable[TenantSpec]) -> None:
        self.tenants: dict[str, TenantSpec] = {t.name: t for t in tenants}
        self.held: dict[tuple[str, str], Holding] = {}
        self.by_region: dict[str, int] = {}
        self.used_gpu_s: dict[str, float] = {}
        self._decayed_at_s = 0.0

    def set_tenants(self, tenants: Iterable[TenantSpec]) -> None:
        """Take up new quotas; what is held stays as it was classed."""
        self.tenants = {t.name: t for t in tenants}

    def holding(self, tenant: str, model: str) -> Holding:
        """What the tenant holds of the model."""
        return self.held.get((tenant, model), Holding())

    def take(self, tenant: str, region: str, model: str, milli: int, over_quota: bool) -> None:
        """Book an attempt. O(1)."""
        self._move(tenant, region, model, milli, over_quota)

    def give_back(self, tenant: str, region: str, model: str, milli: int, over_quota: bool) -> None:
        """Book the end of an attempt. O(1)."""
        self._move(tenant, region, model, -milli, over_quota)

    def _move(self, tenant: str, region: str, model: str, milli: int, over_quota: bool) -> None:
        holding = self.held.setdefault((tenant, model), Holding())
        if over_quota:
            holding.borrowed += milli
        else:
            holding.guaranteed += milli
        self.by_region[region] = self.by_region.get(region, 0) + milli
        if not holding.guaranteed and not holding.borrowed:
            del self.held[tenant, model]

    # --- quota ------------------------------------------------------------------------------------

    def nominal_milli(self, tenant: str, model: str) -> int | None:
        """The guaranteed quota; None is unlimited. A model not listed has none."""
        spec = self.tenants.get(tenant)
        if spec is None or spec.quota is None:
            return None
        return spec.quota.get(model, 0) * MILLI

    def has_room(self, tenant: str, model: str | None, milli: int) -> bool:
        """Whether ``milli`` more of ``model`` (None: of some model) fit within the quota."""
        models = [model] if model is not None else self._models(tenant)
        for name in models:
            nominal = self.nominal_milli(tenant, name)
            if nominal is None or self.holding(tenant, name).guaranteed + milli <= nominal:
                return True
        return False

    def may_borrow(self, tenant: str, model: str | None, milli: int) -> bool:
        """Whether ``milli`` more of ``model`` (None: of some model) stay within the borrowing limit."""
        limits = self.tenants[tenant].borrow_limit if tenant in self.tenants else None
        if limits is None:
            return True
        models = [model] if model is not None else sorted(limits)
        return any(
            self.holding(tenant, name).borrowed + milli <= limits.get(name, 0) * MILLI
            for name in models
        )

    def could_ever_hold(self, tenant: str, model: str | None, milli: int, borrow: bool) -> bool:
        """Whether the tenant could hold ``milli`` at once if it held nothing else."""
        spec = self.tenants.get(tenant)
        if spec is None or spec.quota is None:
            return True
        models = [model] if model is not None else self._models(tenant)
        for name in models:
            if milli <= spec.quota.get(name, 0) * MILLI:
                return True
            if borrow and spec.borrow_limit is None:
                return True
            if borrow and spec.borrow_limit and milli <= spec.borrow_limit.get(name, 0) * MILLI:
                return True
        return False

    def _models(self, tenant: str) -> list[str]:
        spec = self.tenants.get(tenant)
        return sorted(spec.quota) if spec and spec.quota else [""]

    def lent_milli(self, tenant: str, model: str) -> int:
        """The part of the tenant's unused quota that others borrow now, shared in order of name."""
        borrowed = sum(h.borrowed for (_, m), h in self.held.items() if m == model)
        for name in sorted(self.tenants):
            nominal = self.nominal_milli(name, model) or 0
            unused = max(0, nominal - self.holding(name, model).guaranteed)
            lent = min(unused, borrowed)
            if name == tenant:
                return lent
            borrowed -= lent
        return 0

    # --- fairness ---------------------------------------------------------------------------------

    def charge(self, tenant: str, gpu_s: float, now: float, weights: RankWeights) -> None:
        """Add finished work to a tenant's decayed usage."""
        self._decay(now, weights)
        self.used_gpu_s[tenant] = self.used_gpu_s.get(tenant, 0.0) + gpu_s

    def _decay(self, now: float, weights: RankWeights) -> None:
        factor = 0.5 ** (max(0.0, now - self._decayed_at_s) / weights.usage_half_life_s)
        for tenant in self.used_gpu_s:
            self.used_gpu_s[tenant] *= factor
        self._decayed_at_s = now

    def fairness(self, tenant: str) -> float:
        """1 for a tenant that used nothing, 0 for one at or above its fair share."""
        used = sum(self.used_gpu_s.values())
        weights = sum(t.weight for t in self.tenants.values())
        if used <= 0.0 or weights <= 0.0 or tenant not in self.tenants:
            return 1.0
        fair_share = self.tenants[tenant].weight / weights
        if fair_share <= 0.0:
            return 0.0
        usage_share = self.used_gpu_s.get(tenant, 0.0) / used
        return min(1.0, max(0.0, 1.0 - usage_share / fair_share))

    def decayed(self) -> tuple[float, dict[str, float]]:
        """Decayed usage and the time it refers to, for a snapshot."""
        return self._decayed_at_s, dict(self.used_gpu_s)

    def set_decayed(self, at_s: float, used_gpu_s: dict[str, float]) -> None:
        """Take up usage from a snapshot."""
        self._decayed_at_s, self.used_gpu_s = at_s, dict(used_gpu_s)
