"""What tenants hold, and what each of them may start now: quota, loans, models that are kept."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Self

from topmast.fast.queue.tenancy.entitlements import Entitlements, QuotaGate
from topmast.fast.queue.tenancy.ledger import Ledger
from topmast.model.fleet import Fleet
from topmast.model.job import MILLI, JobSpec
from topmast.model.plan import Plan, RegionTerms
from topmast.model.timed_quota import KnownQuota, with_timed
from topmast.policies.base import ReservePolicy


class Tenancy:
    """The books of all tenants.

    ``reserve``: the policy that keeps GPU models for the jobs that need them. ``patience_s``: how
    long another job waits for that; None: for good.
    """

    def __init__(self, reserve: ReservePolicy | None, patience_s: float | None) -> None:
        self.ledger = Ledger(())
        self.entitlements = Entitlements(self.ledger)
        self._reserve, self._patience_s = reserve, patience_s
        self.gpus_by_region: dict[str, int] = {}
        self.paused: dict[str, str] = {}
        """Tenants of which no job may start, nor any of those below them, and why."""
        self.budgets_noted: dict[str, tuple[str, int]] = {}
        """By tenant, the month and the per cent of its budget that people were told of last."""
        self.timed: dict[str, KnownQuota] = {}
        """By tenant, quotas for a while."""
        self._fleet = Fleet(())
        self._plain_terms: dict[str, RegionTerms] = {}

    def configure(self, fleet: Fleet) -> None:
        """Take up a fleet. O(hosts)."""
        self._fleet = fleet
        self.ledger.set_tenants(with_timed(fleet.tenants, self.timed), fleet.gpus())
        self.entitlements.configure(fleet)
        known = self.ledger.tenants
        self.paused = {tenant: why for tenant, why in self.paused.items() if tenant in known}
        self.timed = {tenant: one for tenant, one in self.timed.items() if tenant in known}
        self.gpus_by_region = {
            r.name: sum(h.gpus for c in r.clusters for h in c.hosts) for r in fleet.regions
        }
        self._plain_terms = self._terms_of(sorted(self.gpus_by_region))

    @property
    def keeps_models(self) -> bool:
        """Whether GPU models may be kept for the jobs that need them."""
        return self._reserve is not None

    def paused_by(self, tenant: str) -> str:
        """Why no job of a tenant may start, if it or one above it is paused. O(depth)."""
        if not self.paused:
            return ""
        above = (node.name for node in self.ledger.tree.node(tenant).up())
        return next((self.paused[name] for name in above if name in self.paused), "")

    def by(self, ledger: Ledger) -> Self:
        """The same with another ledger, to look at. O(1)."""
        other = copy.copy(self)
        other.ledger, other.entitlements = ledger, self.entitlements.by(ledger)
        other._plain_terms = other._terms_of(self._plain_terms)
        return other

    def book(self, held: Iterable[tuple[str, Plan, bool]]) -> None:
        """Count what plans hold: of which tenant, and whether over quota.

        O(plans x models + kinds of those x depth).
        """
        sums: dict[tuple[str, str, str, bool], int] = {}
        for tenant, plan, over_quota in held:
            for model, milli in plan.held().items():
                key = (tenant, plan.region, model, over_quota)
                sums[key] = sums.get(key, 0) + milli
        for (tenant, region, model, over_quota), total in sums.items():
            self.ledger.take(tenant, region, model, total, over_quota)

    def unbook(self, tenant: str, plan: Plan, over_quota: bool) -> None:
        """Give back what a plan held. O(models x depth)."""
        for model, milli in plan.held().items():
            self.ledger.give_back(tenant, plan.region, model, milli, over_quota)

    def choices(self, spec: JobSpec, over_quota: bool) -> tuple[int, ...]:
        """Which of a job's accelerators its tenant may use now, within quota or beyond it.

        O(accelerators x groups x depth of the tenant); *any model* counts as all of the fleet's.
        """
        entitlements = self.entitlements
        return entitlements.choices_of(spec, entitlements.wanted(spec))[over_quota]

    def choices_of(self, gate: QuotaGate) -> dict[bool, tuple[int, ...]]:
        """By mode, what a gate lets use; looked up while nothing was booked in its branch."""
        as_of = self.ledger.as_of(gate.spec.tenant)
        if gate.as_of != as_of:
            gate.as_of = as_of
            if gate.fleet is not self._fleet:
                gate.fleet, gate.wanted = self._fleet, self.entitlements.wanted(gate.spec)
            gate.choices = self.entitlements.choices_of(gate.spec, gate.wanted)
        return gate.choices

    def kept_until_s(self, spec: JobSpec, submit_s: float, now: float) -> float | None:
        """When a job may use what is kept for others now; None if nothing is, or for good."""
        if self._patience_s is None or not self.kept(spec, submit_s, now):
            return None
        return submit_s + self._patience_s

    def kept(self, spec: JobSpec, submit_s: float, now: float) -> tuple[int, ...]:
        """The accelerators that a job may not use yet. O(accelerators).

        Until the very time that `kept_until_s` tells: a difference of times may be rounded below
        the patience, and the job would be tried at that time again and again.
        """
        patient = self._patience_s is None or now < submit_s + self._patience_s
        if self._reserve is None or not patient:
            return ()
        listed = self.entitlements.accelerators(spec)
        if len(listed) < 2:
            return ()
        return self._reserve.held_back(listed, spec.gpus_milli() / MILLI)

    def loads(self, regions: Iterable[str]) -> dict[str, float]:
        """By region, GPUs held or promised over the GPUs present. O(regions)."""
        gpus, held_milli = self.gpus_by_region, self.ledger.by_region
        return {
            region: held_milli.get(region, 0) / MILLI / supply if supply else 0.0
            for region in regions
            for supply in (gpus.get(region, 0),)
        }

    def plain_terms(self) -> dict[str, RegionTerms]:
        """By region, by name: its terms for a job without data to copy. Not to be changed.

        O(1) if nothing was booked since the last call, else O(regions) at the speed of a copy.
        """
        booked = self.ledger.booked_in
        if booked:
            here = [region for region in booked if region in self._plain_terms]
            self._plain_terms = {**self._plain_terms, **self._terms_of(here)}
            booked.clear()
        return self._plain_terms

    def _terms_of(self, regions: Iterable[str]) -> dict[str, RegionTerms]:
        return {region: RegionTerms(balance=load) for region, load in self.loads(regions).items()}
