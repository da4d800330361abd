"""What the jobs of accounts may take of the server's memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from threading import Lock

from topmast.fast.queue import GlobalQueue, most_bytes_of, said_bytes
from topmast.model.access import Caller
from topmast.model.errors import Full
from topmast.model.expansion import size_of
from topmast.model.job import JobSpec
from topmast.model.units import format_bytes
from topmast.service.sharing import RULE, below, left_bytes

MOST_BYTES = 2 * 1024**3
"""All jobs that have not ended, unless the server was told another bound: 900,000 short ones."""

Sums = dict[tuple[str, str], int]
"""Bytes by tenant and user."""


class QueueRoom:
    """Refuses jobs that would leave too little memory to the jobs of others.

    Jobs count from when there is room for them until they end, and never twice: first as what is
    coming, of the claim of their request, and, from when they are in the queue, as what is there.
    Judged on the event loop; `applied` is of the thread that decides.
    """

    def __init__(self, queue: GlobalQueue, path: Callable[[str], Sequence[str]]) -> None:
        """``path``: a tenant and all above it, the top last."""
        self.most_bytes = MOST_BYTES
        self._queue = queue
        self._path = path
        self._coming: Sums = {}
        """What claims hold that are not in the queue yet."""
        self._before: Sums = {}
        """What users had in the queue before it took in the jobs that it takes in now."""
        self._lock = Lock()
        """Of the two; the queue's own sums are copied in one step of the interpreter."""

    @contextmanager
    def for_some(self, specs: Iterable[JobSpec]) -> Iterator[Sums]:
        """A claim for jobs that are admitted within. Raises Full if there is no room for some.

        O(specs + users with jobs x depth of the tree, for each user of the specs).
        """
        wanted: Sums = {}
        for spec in specs:
            key = (spec.tenant, spec.user)
            wanted[key] = (
                wanted.get(key, 0) + size_of((spec,)) * most_bytes_of(spec) + said_bytes(spec)
            )
        self._judge(wanted)
        with self._lock:
            _add(self._coming, wanted, 1)
        try:
            yield wanted
        finally:
            with self._lock:
                _add(self._coming, wanted, -1)
                wanted.clear()

    @contextmanager
    def applied(self, claim: Sums) -> Iterator[None]:
        """While the queue takes in jobs of a claim: then they are there, and no longer coming.

        O(users of the claim).
        """
        users = self._queue.jobs.weights.by_user
        with self._lock:
            self._before = before = {name: users.get(name, 0) for name in claim}
        try:
            yield
        finally:
            with self._lock:
                self._before = {}
                come: Sums = {}
                for name, had in before.items():
                    come[name] = max(0, min(claim.get(name, 0), users.get(name, 0) - had))
                _add(self._coming, come, -1)
                _add(claim, come, -1)

    def for_again(self, caller: Caller, jobs: Iterable[str]) -> AbstractContextManager[Sums]:
        """The same for jobs that ended, and are to wait again."""
        known = (self._queue.jobs.records.get(job) for job in jobs)
        ended = [record.spec for record in known if record is not None and record.finished]
        return self.for_some(() if caller.principal.trusted else ended)

    def _judge(self, wanted: Sums) -> None:
        with self._lock:
            users = self._queue.jobs.weights.by_user | self._before
            _add(users, self._coming, 1)
        for (tenant, user), size_bytes in wanted.items():
            own_bytes = users.get((tenant, user), 0)
            sums = below(((name, had) for (name, _), had in users.items()), self._path)
            free_bytes = self.most_bytes - sum(users.values())
            most_bytes = left_bytes(self._path(tenant), sums, own_bytes, free_bytes)
            if size_bytes > most_bytes:
                raise Full(_refusal(user, tenant, own_bytes, size_bytes, max(0, most_bytes)))
            users[tenant, user] = own_bytes + size_bytes


def _add(sums: Sums, more: Mapping[tuple[str, str], int], times: int) -> None:
    for name, size_bytes in more.items():
        sums[name] = sums.get(name, 0) + times * size_bytes
        if not sums[name]:
            del sums[name]


def _refusal(user: str, tenant: str, own_bytes: int, size_bytes: int, most_bytes: int) -> str:
    own, more, size = (format_bytes(n) for n in (own_bytes, most_bytes, size_bytes))
    remedy = "cancel what need not run, wait for jobs to end, or ask for topmast up --queue-memory"
    return (
        f"the server takes no more jobs of {user} for tenant {tenant}: those that have not ended "
        f"take {own} of its memory, these would take {size}, and {more} is left for them: {RULE} "
        f"({remedy})"
    )
