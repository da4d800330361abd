"""What happened, and what happens: the events that a caller may see."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import TypeVar

from topmast.model import views as v
from topmast.model.access import Caller, Permission
from topmast.service.core import Core
from topmast.service.event_stream import Batch

STREAM_LOOK_S, QUIET_LOOKS = 2.0, 7
"""How often an open stream is compared with what its reader may see; how often it says nothing."""

T = TypeVar("T")


class Following(Core):
    """The newest events, and the stream of them."""

    def recent_events(
        self, caller: Caller, limit: int, kind: str = "", job: str = "", before: int | None = None
    ) -> tuple[v.EventView, ...]:
        """The newest events that the caller may see, the newest first; of a kind or job, if named.

        ``before``: only those with a lower number.
        O(events that are newer than the last of them).
        """
        self.limits.take(caller, "list")
        hides = self.redaction(caller)
        found: list[v.EventView] = []
        for told in self.event_stream.newest():
            event = told.event
            if before is not None and event.seq >= before:
                continue
            if kind not in ("", event.kind) or job not in ("", event.job):
                continue
            if hides is None:
                found.append(event)
            elif told.tenant is None or hides.has(told.tenant):
                found.append(hides.of(event))
            if len(found) == limit:
                break
        return tuple(found)

    async def events(
        self,
        caller: Caller,
        after: int,
        written: Callable[[Sequence[v.EventView]], T],
    ) -> AsyncIterator[T]:
        """Batches of events that the caller may see; an empty one now and then without any.

        It ends when the proof that the caller showed is good no more, or its last role is gone.
        ``written``: what is given of each batch; it is called once for all that see the same.
        """
        quiet = 0
        async for batch in self.event_stream.follow(after, STREAM_LOOK_S):
            reader = caller if not caller.token else self.logins.renewed(caller)
            if reader is None or not reader.principal.may_somewhere(Permission.JOBS_VIEW):
                return
            quiet = 0 if batch else quiet + 1
            if quiet % QUIET_LOOKS:
                continue
            seen = self.access.tenants(reader, Permission.JOBS_VIEW)
            yield batch.once((seen, written), partial(self._written, batch, seen, written))

    def _written(
        self,
        batch: Batch,
        seen: frozenset[str] | None,
        written: Callable[[Sequence[v.EventView]], T],
    ) -> T:
        if seen is None:
            return written([told.event for told in batch])
        hides = self.redacting(seen)
        of_own = (t.event for t in batch if t.tenant is None or hides.has(t.tenant))
        return written([hides.of(event) for event in of_own])
