"""Decisions in rounds: candidates are tried at multiples of a time only, as many schedulers do.

The public testbeds of Gavel (OSDI '20), Muri (SIGCOMM '22) and Tiresias (NSDI '19) decide every one
to six minutes: what becomes free in between stays idle until the next round. The rounds in which
Gavel's policies grant shares of time are others: `fast/queue/rounds`.
"""

from __future__ import annotations

import math

from topmast.fast.queue.backlog.blocked import Anything
from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.hooks import QueueHooks
from topmast.fast.queue.jobs.record import JobRecord


class DecisionRounds(QueueHooks):
    """Lets candidates be tried from the beginning of a round until all are decided.

    While work stops for one, the next is not tried: what that leaves over is its to have, and no
    more is stopped than the order wants. Working memory: after a restart a round begins at once.
    """

    def __init__(self, queue: QueueViews, rounds_s: float) -> None:
        self._queue, self._rounds_s = queue, rounds_s
        self._due_s = -math.inf
        """When the next round begins, if any job waits for it."""
        self._is_deciding = False
        self._decided_s = -math.inf
        """When the last job of a round was decided."""
        self._stops_for: dict[str, str] = {}
        """By attempt that stops now: the job that gets its place."""

    def may_try(self) -> bool:
        """A round lasts until its jobs are decided, and to the end of that moment.

        What ends at the moment of a round makes room in that round, in whatever order news comes.
        """
        is_round = self._is_deciding or self._queue.now == self._decided_s
        return is_round and not self._stops_for

    def on_enqueued(self, record: JobRecord) -> None:
        """The first that waits brings the next round about; rounds without jobs are left out."""
        if not len(self._queue.backlog.ranking):
            self._due_s = math.ceil(self._queue.now / self._rounds_s) * self._rounds_s

    def on_wake(self) -> None:
        """All waiting jobs are tried again, in the order as it is now. O(jobs log jobs) a round."""
        now = self._queue.now
        if now < self._due_s or not len(self._queue.backlog.ranking):
            return
        self._due_s = (math.floor(now / self._rounds_s) + 1) * self._rounds_s
        self._is_deciding = True
        self._queue.backlog.rerank(now)
        self._queue.backlog.unblock(Anything())

    def on_all_decided(self) -> None:
        """The round is over."""
        self._is_deciding, self._decided_s = False, self._queue.now

    def on_committed(self, record: JobRecord) -> None:
        """What gives way to it stops first."""
        plan = record.plan
        victims = () if plan is None else plan.victims
        self._stops_for.update((victim.job, record.id) for victim in victims)

    def on_ended(self, record: JobRecord) -> None:
        """Its place is free."""
        self._stops_for.pop(record.id, None)

    def on_unbooked(self, job: str) -> None:
        """A plan that came to nothing stops no work, and is not waited for. O(stops)."""
        self._stops_for = {of: to for of, to in self._stops_for.items() if to != job}

    def news(self) -> str:
        """When jobs are tried."""
        return f"jobs are tried every {self._rounds_s:g} s"

    def next_s(self) -> float | None:
        """When the next round begins, if any job waits for it."""
        return self._due_s if len(self._queue.backlog.ranking) else None
