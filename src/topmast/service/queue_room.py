"""What the jobs of accounts may take of the server's memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from topmast.fast.queue import GlobalQueue, most_bytes_of
from topmast.model.errors import Full
from topmast.model.expansion import size_of
from topmast.model.job import JobSpec
from topmast.model.units import format_bytes
from topmast.service.sharing import RULE, below, left_bytes

MOST_BYTES = 2 * 1024**3
"""All jobs that have not ended, unless the server was told another bound: a million short ones."""


class QueueRoom:
    """Refuses jobs that would leave too little memory to the jobs of others."""

    def __init__(self, queue: GlobalQueue, path: Callable[[str], Sequence[str]]) -> None:
        """``path``: a tenant and all above it, the top last."""
        self.most_bytes = MOST_BYTES
        self._queue = queue
        self._path = path

    def take(self, specs: Iterable[JobSpec]) -> None:
        """Raises Full if some of these have no room. O(specs + tenants x depth of the tree).

        Requests that come together may take a little more. May be called beside the thread that
        decides: the sums are copied in one step of the interpreter.
        """
        wanted: dict[tuple[str, str], int] = {}
        for spec in specs:
            key = (spec.tenant, spec.user)
            wanted[key] = wanted.get(key, 0) + size_of((spec,)) * most_bytes_of(spec)
        weights = self._queue.jobs.weights
        tenants, users = weights.by_tenant.copy(), weights.by_user.copy()
        for (tenant, user), size_bytes in wanted.items():
            own_bytes, all_bytes = users.get((tenant, user), 0), sum(tenants.values())
            path, sums = self._path(tenant), below(tenants.items(), self._path)
            free_bytes = self.most_bytes - all_bytes
            most_bytes = left_bytes(path, sums, own_bytes, free_bytes)
            if size_bytes > most_bytes:
                raise Full(_refusal(user, tenant, own_bytes, size_bytes, max(0, most_bytes)))
            tenants[tenant] = tenants.get(tenant, 0) + size_bytes
            users[tenant, user] = own_bytes + size_bytes

    def take_again(self, jobs: Iterable[str]) -> None:
        """The same for jobs that ended, and are to wait again."""
        known = (self._queue.jobs.records.get(job) for job in jobs)
        self.take(record.spec for record in known if record is not None and record.finished)


def _refusal(user: str, tenant: str, own_bytes: int, size_bytes: int, most_bytes: int) -> str:
    own, more, size = (format_bytes(n) for n in (own_bytes, most_bytes, size_bytes))
    remedy = "cancel what need not run, wait for jobs to end, or ask for topmast up --queue-memory"
    return (
        f"the server takes no more jobs of {user} for tenant {tenant}: those that have not ended "
        f"take {own} of its memory, these would take {size}, and {more} is left for them: {RULE} "
        f"({remedy})"
    )
