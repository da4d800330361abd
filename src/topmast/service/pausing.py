"""Tenants that are paused: nothing of theirs starts, and if that is wanted what runs stops."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec import UNSET
from msgspec.structs import replace

from topmast.fast.queue import Effect, drained, in_branch
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.access import Caller, Permission
from topmast.model.act_views import JobEffect, TenantPause
from topmast.model.files.fields import no_such
from topmast.model.fleet_selector import meant
from topmast.model.job import MILLI
from topmast.model.views import TenantView
from topmast.service.access import act, json_text
from topmast.service.limits import JOBS_PER_TAKE
from topmast.service.verbs import Verbs


class Pausing(Verbs):
    """What people do to the queue of a tenant."""

    async def pause_tenant(
        self, caller: Caller, tenant: str, by: str, reason: str, *, drain: bool, dry_run: bool
    ) -> TenantPause:
        """Let nothing of a tenant start, and ``drain`` what runs; or say what that would do."""
        self.limits.take(caller, "submit")
        return await self._paused(caller, tenant, by, reason, drain, dry_run)

    async def _paused(
        self, caller: Caller, tenant: str, by: str, reason: str, drain: bool, dry_run: bool
    ) -> TenantPause:
        by = self.access.by(caller, by)
        order = m.PauseTenant(tenant, by, reason or UNSET, drain)
        verb = "drain-tenant" if drain else "pause-tenant"
        return await self._pause(caller, verb, order, reason, drain, dry_run)

    async def resume_tenant(
        self, caller: Caller, tenant: str, by: str, reason: str, *, dry_run: bool
    ) -> TenantPause:
        """Let the jobs of a tenant start again; or say how many wait for that."""
        self.limits.take(caller, "submit")
        return await self._resumed(caller, tenant, by, reason, dry_run)

    async def _resumed(
        self, caller: Caller, tenant: str, by: str, reason: str, dry_run: bool
    ) -> TenantPause:
        order = m.ResumeTenant(tenant, self.access.by(caller, by), reason or UNSET)
        return await self._pause(caller, "resume-tenant", order, reason, False, dry_run)

    async def pause_tenants(
        self, caller: Caller, tenants: Sequence[str], selector: str, by: str, reason: str, *,
        drain: bool, dry_run: bool,
    ) -> tuple[TenantPause, ...]:  # fmt: skip
        """Pause tenants as `pause_tenant`; none if one of them is not the caller's to pause."""
        names = await self._tenants_meant(caller, tenants, selector)
        found = [await self._paused(caller, name, by, reason, drain, dry_run) for name in names]
        return tuple(found)

    async def resume_tenants(
        self, caller: Caller, tenants: Sequence[str], selector: str, by: str, reason: str, *,
        dry_run: bool,
    ) -> tuple[TenantPause, ...]:  # fmt: skip
        """Resume tenants as `resume_tenant`, likewise."""
        names = await self._tenants_meant(caller, tenants, selector)
        found = [await self._resumed(caller, name, by, reason, dry_run) for name in names]
        return tuple(found)

    async def _tenants_meant(
        self, caller: Caller, tenants: Sequence[str], selector: str
    ) -> list[str]:
        """Those that are named, or selected of the ones that the caller may see."""
        seen = self.access.tenants(caller, Permission.JOBS_VIEW)
        rows: tuple[TenantView, ...] = await self._list("tenants")
        views = {row.name: row for row in rows if seen is None or row.name in seen}
        names = [view.name for view in meant("tenant", tenants, selector, list(views.values()))]
        self.limits.take(caller, "submit", 1.0 + len(names) / JOBS_PER_TAKE)
        for name in names:
            self.access.require(caller, Permission.JOBS_OTHERS, name)
        return names

    async def _pause(
        self,
        caller: Caller,
        verb: str,
        order: m.PauseTenant | m.ResumeTenant,
        reason: str,
        drain: bool,
        dry_run: bool,
    ) -> TenantPause:
        tenant = order.tenant
        known = await self._ask(lambda: list(self.machines.queue.tenancy.ledger.tenants))
        self.access.require(caller, Permission.JOBS_OTHERS, tenant)
        if tenant not in known:
            raise no_such("tenant", tenant, known)
        ends = isinstance(order, m.ResumeTenant)
        before = await self._ask(partial(self._meant, tenant, drain, dry_run, ends=ends))
        if dry_run:
            return before
        jobs = [effect.job for effect in before.stops]
        after = json_text(reason=reason, waiting=before.waiting, stops=len(jobs))
        tenancy = self.machines.queue.tenancy
        done = act(
            caller, verb, tenant, tenant, after=after,
            look=lambda: json_text(paused=tenancy.paused_by(tenant)),
        )  # fmt: skip
        await self._tell(ids.QUEUE, order, done)
        now = await self._ask(lambda: tenancy.paused_by(tenant))
        return replace(before, paused=now)

    def _meant(self, tenant: str, drain: bool, dry_run: bool, *, ends: bool) -> TenantPause:
        queue = self.machines.queue
        stopped = drained(queue, tenant) if drain else []
        branch = [record.plan is not None for record in in_branch(queue, tenant)]
        done, unchanged = Effect.DONE.value, Effect.UNCHANGED.value
        changes = bool(stopped) or (tenant in queue.tenancy.paused) == ends
        stops = tuple(
            JobEffect(
                record.id, done, "",
                record.plan.gpus_milli / MILLI if record.plan is not None else 0.0,
                self._lost_gpu_h("preempt", record),
            )
            for record in stopped
        )  # fmt: skip
        return TenantPause(
            tenant, queue.tenancy.paused_by(tenant), dry_run, branch.count(False),
            branch.count(True), stops, sum(stop.gpus for stop in stops),
            sum(stop.lost_gpu_h for stop in stops), done if changes else unchanged,
        )  # fmt: skip
