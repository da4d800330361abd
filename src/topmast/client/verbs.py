"""The methods of a client that act on many jobs in one request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from topmast.client.transport import Transport
from topmast.model.act_views import FleetDiff, FleetView, JobsActed


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

    def cancel_jobs(
        self,
        jobs: Iterable[str] = (),
        *,
        selector: str = "",
        reason: str = "",
        dry_run: bool = False,
    ) -> JobsActed:
        """Cancel jobs; what runs gets its grace period."""
        return self._act("cancel", jobs, selector, reason, dry_run)

    def hold(
        self,
        jobs: Iterable[str] = (),
        *,
        selector: str = "",
        reason: str = "",
        dry_run: bool = False,
    ) -> JobsActed:
        """Keep jobs from starting until they are released; what runs goes on."""
        return self._act("hold", jobs, selector, reason, dry_run)

    def release(
        self,
        jobs: Iterable[str] = (),
        *,
        selector: str = "",
        reason: str = "",
        dry_run: bool = False,
    ) -> JobsActed:
        """Let jobs start that are held."""
        return self._act("release", jobs, selector, reason, dry_run)

    def suspend(
        self,
        jobs: Iterable[str] = (),
        *,
        selector: str = "",
        reason: str = "",
        dry_run: bool = False,
    ) -> JobsActed:
        """Stop jobs at their checkpoints, and hold them."""
        return self._act("suspend", jobs, selector, reason, dry_run)

    def resume(
        self,
        jobs: Iterable[str] = (),
        *,
        selector: str = "",
        reason: str = "",
        dry_run: bool = False,
    ) -> JobsActed:
        """Let jobs go on that are suspended."""
        return self._act("resume", jobs, selector, reason, dry_run)

    def preempt(
        self,
        jobs: Iterable[str] = (),
        *,
        selector: str = "",
        reason: str = "",
        dry_run: bool = False,
    ) -> JobsActed:
        """Stop jobs at their checkpoints; they wait again."""
        return self._act("preempt", jobs, selector, reason, dry_run)

    def requeue(
        self,
        jobs: Iterable[str] = (),
        *,
        selector: str = "",
        reason: str = "",
        dry_run: bool = False,
    ) -> JobsActed:
        """Try jobs anew: those that failed, wait out a delay or run."""
        return self._act("requeue", jobs, selector, reason, dry_run)

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
        ``preemptible``. Of a job that has GPUs it takes effect with the next attempt.
        """
        return self._act("edit", jobs, selector, reason, dry_run, changes=dict(changes))

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
        base: str = "",
        reason: str = "",
    ) -> FleetDiff:
        """Change the fleet, or its ``tenants``, while the server runs.

        It is refused if the fleet is not that of version ``base`` any more.
        """
        body = {"fleet": fleet} if tenants is None else {"tenants": tenants}
        more = {"base": base, "reason": reason}
        return self._transport.post(FleetDiff, "/fleet/apply", {**body, **more}, repeatable=False)

    def _act(
        self,
        verb: str,
        jobs: Iterable[str],
        selector: str,
        reason: str,
        dry_run: bool,
        **more: object,
    ) -> JobsActed:
        named = [jobs] if isinstance(jobs, str) else list(jobs)
        body = {
            "jobs": named, "selector": selector, "reason": reason, "dry_run": dry_run,
            "user": self.user, **more,
        }  # fmt: skip
        return self._transport.post(JobsActed, f"/jobs/{verb}", body)
