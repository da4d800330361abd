"""The methods of a client that act on many jobs in one request."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from topmast.client.transport import Transport, path_of
from topmast.model import ids
from topmast.model.act_views import (
    ONCE,
    FleetDiff,
    FleetView,
    JobsActed,
    QuotaActed,
    TenantPause,
)
from topmast.model.budget import BudgetView


class ActsOnJobs(Protocol):
    """What a verb of the client is called with."""

    def __call__(
        self,
        jobs: Iterable[str] = (),
        *,
        selector: str = "",
        reason: str = "",
        dry_run: bool = False,
    ) -> JobsActed:
        """Act on ``jobs``, or on those that ``selector`` finds."""
        ...


class JobsVerb:
    """A method of the client for each verb that takes nothing but which jobs, and why."""

    def __init__(self, verb: str, doc: str) -> None:
        self._verb = verb
        self.__doc__ = doc

    def __get__(self, client: VerbsCalls, owner: type[VerbsCalls]) -> ActsOnJobs:
        def call(
            jobs: Iterable[str] = (),
            *,
            selector: str = "",
            reason: str = "",
            dry_run: bool = False,
        ) -> JobsActed:
            return client.act_on_jobs(self._verb, jobs, selector, reason, dry_run)

        call.__doc__ = self.__doc__
        return call


class VerbsCalls:
    """A method for each act. It says which ``jobs`` are meant, or which ``selector`` finds them.

    A selector such as ``tenant=vision,state=PENDING,name=train-*`` means jobs that have not ended,
    unless it names states. With ``dry_run`` nothing is done, and the answer says what would be.
    """

    _transport: Transport

    @property
    def user(self) -> str:
        """The user that acts."""
        raise NotImplementedError

    cancel_jobs = JobsVerb("cancel", "Cancel jobs; what runs gets its grace period.")
    hold = JobsVerb("hold", "Keep jobs from starting until they are released; what runs goes on.")
    release = JobsVerb("release", "Let jobs start that are held.")
    suspend = JobsVerb("suspend", "Stop jobs at their checkpoints, and hold them.")
    resume = JobsVerb("resume", "Let jobs go on that are suspended.")
    preempt = JobsVerb("preempt", "Stop jobs at their checkpoints; they wait again.")
    requeue = JobsVerb("requeue", "Try jobs anew: those that failed, wait out a delay or run.")

    def edit_jobs(
        self,
        jobs: Iterable[str] = (),
        *,
        changes: Mapping[str, Any],
        selector: str = "",
        reason: str = "",
        dry_run: bool = False,
    ) -> JobsActed:
        """Change what jobs ask for: ``priority``, ``time_limit_s``, ``max_restarts``,
        ``preemptible``. Of a job that has GPUs it takes effect with the next attempt. Or how long
        they are expected to run, ``expected_duration_s``: that holds at once.
        """
        return self.act_on_jobs("edit", jobs, selector, reason, dry_run, changes=dict(changes))

    def reprioritize(
        self,
        jobs: Iterable[str] = (),
        *,
        priority: str,
        selector: str = "",
        reason: str = "",
        dry_run: bool = False,
    ) -> JobsActed:
        """Give jobs another priority, as `edit_jobs` does."""
        changes = {"priority": priority}
        return self.edit_jobs(
            jobs, changes=changes, selector=selector, reason=reason, dry_run=dry_run
        )

    def pause_tenant(
        self, tenant: str, *, drain: bool = False, reason: str = "", dry_run: bool = False
    ) -> TenantPause:
        """Let no job of a tenant start, or of one below it; with ``drain``, stop those that run."""
        return self._pause(tenant, "pause", reason, dry_run, **({"drain": True} if drain else {}))

    def resume_tenant(self, tenant: str, *, reason: str = "", dry_run: bool = False) -> TenantPause:
        """Let the jobs of a tenant start again."""
        return self._pause(tenant, "resume", reason, dry_run)

    def pause_tenants(
        self,
        tenants: Iterable[str] = (),
        *,
        selector: str = "",
        drain: bool = False,
        reason: str = "",
        dry_run: bool = False,
    ) -> list[TenantPause]:
        """Pause tenants as `pause_tenant`; by a selector such as ``parent=research``."""
        more = {"drain": True} if drain else {}
        return self._pause_many("pause", tenants, selector, reason, dry_run, **more)

    def resume_tenants(
        self,
        tenants: Iterable[str] = (),
        *,
        selector: str = "",
        reason: str = "",
        dry_run: bool = False,
    ) -> list[TenantPause]:
        """Let the jobs of tenants start again."""
        return self._pause_many("resume", tenants, selector, reason, dry_run)

    def budgets(self) -> list[BudgetView]:
        """The budgets of tenants, and what is used of them this month."""
        return self._transport.get(dict[str, list[BudgetView]], "/budgets")["budgets"]

    def set_quota(
        self,
        tenant: str,
        quota: Mapping[str, int],
        *,
        until_s: float,
        from_s: float | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> QuotaActed:
        """Give a tenant other GPUs by model from a time on (by default now) until another."""
        body = {
            "user": self.user, "quota": dict(quota), "until_s": until_s, "reason": reason,
            "from_s": time.time() if from_s is None else from_s, "dry_run": dry_run,
        }  # fmt: skip
        return self._transport.post(QuotaActed, path_of("tenants", tenant, "quota"), body)

    def end_quota(self, tenant: str, *, reason: str = "", dry_run: bool = False) -> QuotaActed:
        """Give a tenant the quota of the fleet again, before the time."""
        body = {"user": self.user, "reason": reason, "dry_run": dry_run}
        return self._transport.post(QuotaActed, path_of("tenants", tenant, "quota", "end"), body)

    def _pause(
        self, tenant: str, verb: str, reason: str, dry_run: bool, **more: object
    ) -> TenantPause:
        body = {"user": self.user, "reason": reason, "dry_run": dry_run, **more}
        return self._transport.post(TenantPause, path_of("tenants", tenant, verb), body)

    def _pause_many(
        self,
        verb: str,
        tenants: Iterable[str],
        selector: str,
        reason: str,
        dry_run: bool,
        **more: object,
    ) -> list[TenantPause]:
        named = [tenants] if isinstance(tenants, str) else list(tenants)
        body = {
            "tenants": named, "selector": selector, "reason": reason, "dry_run": dry_run,
            "user": self.user, **more,
        }  # fmt: skip
        kind = dict[str, list[TenantPause]]
        return self._transport.post(kind, f"/tenants/{verb}", body)["tenants"]

    def fleet(self) -> FleetView:
        """The fleet as a fleet file, and its version."""
        return self._transport.get(FleetView, "/fleet")

    def fleet_diff(
        self, *, fleet: Mapping[str, Any] | None = None, tenants: Mapping[str, Any] | None = None
    ) -> FleetDiff:
        """What another fleet file would change, or other ``tenants`` in the fleet as it is."""
        body = {"fleet": fleet} if tenants is None else {"tenants": tenants}
        return self._transport.post(FleetDiff, "/fleet/diff", body)

    def fleet_apply(
        self,
        *,
        fleet: Mapping[str, Any] | None = None,
        tenants: Mapping[str, Any] | None = None,
        base: str | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> FleetDiff:
        """Change the fleet, or its ``tenants``, while the server runs.

        It is refused if the fleet is not that of version ``base`` any more; without, it is not
        compared. A ``dry_run`` changes nothing, and is refused as the act would be.
        """
        body = {"fleet": fleet} if tenants is None else {"tenants": tenants}
        more: dict[str, object] = {"reason": reason, **({} if base is None else {"base": base})}
        if dry_run:
            more["dry_run"] = True
        return self._transport.post(FleetDiff, "/fleet/apply", {**body, **more}, repeatable=False)

    def act_on_jobs(
        self,
        verb: str,
        jobs: Iterable[str] = (),
        selector: str = "",
        reason: str = "",
        dry_run: bool = False,
        **more: object,
    ) -> JobsActed:
        """Do what a verb of ``POST /jobs/VERB`` says; ``more`` is what it takes beside.

        If the answer is lost, it is asked for again; of `ONCE` that raises Unavailable.
        """
        named = [jobs] if isinstance(jobs, str) else list(jobs)
        body = {
            "jobs": named, "selector": selector, "reason": reason, "dry_run": dry_run,
            "user": self.user, **more,
        }  # fmt: skip
        again = dry_run or verb not in ONCE
        many = bool(selector) or len(named) > 1 or any(ids.sweep_number(job) >= 0 for job in named)
        path = path_of("jobs", verb)
        return self._transport.post(JobsActed, path, body, repeatable=again, many=many)
