"""The part that rounds take in the queue."""

from __future__ import annotations

from collections.abc import Mapping

from topmast.fast.queue.backlog.blocked import Anything
from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.hooks import QueueHooks
from topmast.fast.queue.jobs.record import JobRecord
from topmast.fast.queue.rounds.kinds import Kinds
from topmast.fast.queue.rounds.rounds import Rounds
from topmast.fast.queue.rounds.turns import RoundState, account_for, begin_round, partner_of
from topmast.fast.queue.tenancy.entitlements import Entitlements
from topmast.model.fleet import Fleet
from topmast.policies.base import PairSpeeds


class RoundHooks(QueueHooks):
    """Begins rounds; ``pair_speeds``: what is known of two jobs on the same GPUs."""

    def __init__(
        self,
        queue: QueueViews,
        rounds: Rounds,
        entitlements: Entitlements,
        pair_speeds: PairSpeeds | None,
    ) -> None:
        self._queue = queue
        self._rounds = rounds
        self._own = RoundState(rounds, Kinds(Fleet(()), entitlements), pair_speeds)

    def on_fleet(self, fleet: Fleet, entitlements: Entitlements) -> None:
        """Nothing that is known of rounds holds any more."""
        self.on_owners(fleet, entitlements)
        self._rounds.reset()

    def on_owners(self, fleet: Fleet, entitlements: Entitlements) -> None:
        """Other clusters may hold other gangs; what a round granted holds on."""
        self._own.kinds = Kinds(fleet, entitlements)

    def on_enqueued(self, record: JobRecord) -> None:
        """Fractions are to be computed anew."""
        self._rounds.changed = True

    def on_expected(self, record: JobRecord) -> None:
        """Some policies divide the time by what is left."""
        self._rounds.changed = True

    def on_over(self, job: str) -> None:
        """It has no part of the time any more."""
        self._rounds.forget(job)

    def on_out_of_service(self, region: str, gpus: Mapping[str, int]) -> None:
        """What the next round can grant is something else."""
        self._rounds.serves(region, gpus)

    def on_wake(self) -> None:
        """The next round begins when it is due, and no answer is waited for."""
        if self._rounds.is_due(self._queue.now) and self._queue.cycle.decision is None:
            begin_round(self._queue, self._own)

    def on_committed(self, record: JobRecord) -> None:
        """The other job of its pair can have its place now."""
        if secondary := self._rounds.guest_of(record.id):
            self._queue.backlog.let_try(secondary)

    def before_end(self, record: JobRecord) -> None:
        """Account for what it received, with the other of its pair."""
        partner = partner_of(self._queue, record)
        both = [record] if partner is None else [record, partner]
        account_for(self._queue, self._own, both)

    def on_ended(self, record: JobRecord) -> None:
        """When all that had to stop have stopped, what is free is there for all."""
        if self._rounds.left(record.id):
            self._queue.backlog.unblock(Anything())

    def next_s(self) -> float | None:
        """When the next round begins, if there is any job to share time."""
        if not (self._queue.jobs.placed or len(self._queue.backlog.ranking)):
            return None
        return self._rounds.next_s(self._queue.now)
