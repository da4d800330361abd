"""Quotas for a while: checked as a fleet file is, shown before they are given."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from topmast.fast.queue import Ledger, in_branch
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.access import ROOT, Caller, Permission
from topmast.model.act_views import QuotaActed
from topmast.model.budget import BudgetView
from topmast.model.errors import Faults, NotFound, restated
from topmast.model.files.fields import no_such
from topmast.model.files.fleetdump import dump_fleet
from topmast.model.files.fleetfile import parse_fleet
from topmast.model.fleet import Fleet, TenantSpec
from topmast.model.job import MILLI
from topmast.model.timed_quota import TimedQuota
from topmast.service.access import act, json_text
from topmast.service.fleet_changes import FleetChanges
from topmast.service.warnings import quotas_beyond


class Quoting(FleetChanges):
    """What operators do with the quotas of tenants for a while."""

    async def set_quota(
        self, caller: Caller, wanted: TimedQuota, *, dry_run: bool = False
    ) -> QuotaActed:
        """Give a tenant another quota for a while, or say what that would be."""
        self.limits.take(caller, "submit")
        self.access.require(caller, Permission.FLEET_EDIT, ROOT)
        now = self.clock.now()
        wanted = replace(wanted, from_s=wanted.from_s or now, by=self.access.by(caller, wanted.by))
        spec, warnings = await self._checked_quota(wanted, now)
        known = await self._ask(lambda: self._timed(wanted.tenant))
        if not dry_run:
            note = json_text(
                quota=wanted.quota, from_s=wanted.from_s, until_s=wanted.until_s,
                reason=wanted.reason,
            )  # fmt: skip
            seen: list[TimedQuota | None] = []

            def look() -> str:  # just before the act, and after it
                seen.append(self._timed(wanted.tenant))
                return self._quota_of(wanted.tenant)

            line = act(caller, "set-quota", wanted.tenant, wanted.tenant, look=look, after=note)
            await self._tell(ids.QUEUE, m.SetQuota(wanted), line)
            known = seen[0]
        usual = await self._usual(wanted.tenant)
        found = QuotaActed(
            wanted.tenant, dry_run, spec.quota or {}, {**usual, **wanted.quota}, wanted.from_s,
            wanted.until_s, wanted.reason, 0, 0, None if known == wanted else known,
            warnings,
        )  # fmt: skip
        return await self._with_jobs_of(found)

    async def end_quota(
        self, caller: Caller, tenant: str, by: str, reason: str, *, dry_run: bool = False
    ) -> QuotaActed:
        """Give a tenant the quota of the fleet again, before the time."""
        self.limits.take(caller, "submit")
        self.access.require(caller, Permission.FLEET_EDIT, ROOT)
        spec = await self._tenant(tenant)
        known = await self._ask(lambda: self._timed(tenant))
        if known is None:
            raise NotFound(f"tenant '{tenant}' has no quota for a while")
        usual = await self._usual(tenant)
        if not dry_run:
            order = m.EndQuota(tenant, self.access.by(caller, by), reason or UNSET)
            note, look = json_text(reason=reason), partial(self._quota_of, tenant)
            line = act(caller, "end-quota", tenant, tenant, look=look, after=note)
            await self._tell(ids.QUEUE, order, line)
        found = QuotaActed(
            tenant, dry_run, spec.quota or {}, usual, None, None, reason, 0, 0, known
        )
        return await self._with_jobs_of(found)

    async def list_budgets(self, caller: Caller) -> tuple[BudgetView, ...]:
        """The budgets that the caller may see, and what is used of them this month."""
        self.limits.take(caller, "list")
        found = () if self.budgets is None else await asyncio.to_thread(self.budgets.views)
        seen = self.access.tenants(caller, Permission.USAGE_VIEW)
        return tuple(view for view in found if seen is None or view.tenant in seen)

    def _quota_of(self, tenant: str) -> str:
        """The quota that a tenant has now, for the audit log."""
        spec = self.machines.queue.tenancy.ledger.tenants.get(tenant)
        return "" if spec is None else json_text(in_force=spec.quota)

    def _timed(self, tenant: str) -> TimedQuota | None:
        """The quota for a while that a tenant has, or is to have."""
        known = self.machines.queue.tenancy.timed.get(tenant)
        return None if known is None else known.timed

    async def _usual(self, tenant: str) -> dict[str, int]:
        """The quota of a tenant by the fleet, whatever it has for a while."""
        tenants = await self._ask(lambda: self.machines.queue.fleet.tenants)
        return next((one.quota or {} for one in tenants if one.name == tenant), {})

    async def _tenant(self, tenant: str) -> TenantSpec:
        """A tenant with the quota that it has now. Raises NotFound."""
        tenants = await self._ask(lambda: dict(self.machines.queue.tenancy.ledger.tenants))
        return _known(tenant, tenants)

    async def _checked_quota(
        self, wanted: TimedQuota, now: float
    ) -> tuple[TenantSpec, tuple[str, ...]]:
        """The tenant with the quota that it has now, and what the quotas then promise too much.

        Raises InvalidInput, NotFound, for all.
        """
        queue, faults = self.machines.queue, Faults()
        tenants = await self._ask(lambda: dict(queue.tenancy.ledger.tenants))
        spec = faults.of(partial(_known, wanted.tenant, tenants))
        if wanted.until_s <= max(now, wanted.from_s):
            message, remedy = "it would end before it begins", "a time to come, after its begin"
            faults.add(message, "until_s", remedy)
        if not wanted.quota:
            faults.add("names no GPU model", "quota", "GPUs by model, such as {H100: 16}")
        later = faults.of(partial(_with_quota, await self._ask(lambda: queue.fleet), wanted))
        faults.refuse()
        return spec, quotas_beyond(later, wanted.quota)

    async def _with_jobs_of(self, found: QuotaActed) -> QuotaActed:
        queue = self.machines.queue
        placed = await self._ask(
            lambda: [record.plan is not None for record in in_branch(queue, found.tenant)]
        )
        return replace(found, waiting=placed.count(False), running=placed.count(True))


def _known(tenant: str, tenants: Mapping[str, TenantSpec]) -> TenantSpec:
    if tenant not in tenants:
        raise no_such("tenant", tenant, tenants)
    return tenants[tenant]


def _with_quota(fleet: Fleet, wanted: TimedQuota) -> Fleet:
    """The fleet with a quota for a while as one for good. Raises InvalidInput, as for its file."""
    document: dict[str, Any] = dump_fleet(fleet)
    tenants: dict[str, Any] = document.get("tenants") or {}
    described = dict(tenants.get(wanted.tenant) or {})
    usual = described.get("quota")
    if usual is None:
        # Of other models it goes on as if it stated none: as much as those below it have.
        given = Ledger(fleet.tenants).tree.node(wanted.tenant).given
        usual = {model: milli // MILLI for model, milli in given.items()}
    described["quota"] = {**usual, **wanted.quota}
    document["tenants"] = {**tenants, wanted.tenant: described}
    own = f"tenants.{wanted.tenant}."
    with restated(lambda error: error.at(field=error.field.removeprefix(own))):
        return parse_fleet(document)
