"""The methods of a client that act on many jobs in one request."""

from __future__ import annotations

from collections.abc import Iterable

from topmast.client.transport import Transport
from topmast.model.act_views import JobsActed


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

    def _act(
        self, verb: str, jobs: Iterable[str], selector: str, reason: str, dry_run: bool
    ) -> JobsActed:
        named = [jobs] if isinstance(jobs, str) else list(jobs)
        body = {
            "jobs": named, "selector": selector, "reason": reason, "dry_run": dry_run,
            "user": self.user,
        }  # fmt: skip
        return self._transport.post(JobsActed, f"/jobs/{verb}", body)
