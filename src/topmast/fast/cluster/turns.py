"""Time slices: gangs that were placed on the same GPUs run in turns (Gandiva, OSDI '18: suspend and resume).

The placer puts each gang whole into one layer; gangs of different layers may lie over one another. At the end of each
quantum those who had the least service run, each with all of its tasks, as many as have room; the others are
suspended. A newcomer starts with the least service of those that it lies over, and at once. Who stops or starts cannot
be suspended: the others wait, also those that stand still and are to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from topmast.fast.cluster.attempt import Attempt, AttemptPhase, Turn
from topmast.fast.cluster.facts import (
    Closed,
    Continued,
    Joined,
    Suspended,
    TaskDown,
)
from topmast.fast.cluster.machine import (
    LAUNCH_DEADLINE_S,
    RECONCILE_S,
    STOP_MARGIN_S,
)
from topmast.fast.cluster.pairing import PairedManager
from topmast.fast.cluster.room import Room, slots_of
from topmast.fast.machine import Fact
from topmast.model import messages as m
from topmast.policies.options import SliceOptions


class SlicingManager(PairedManager):
    """A cluster manager whose gangs may take turns; where nobody does, the plain one."""

    def __init__(
        self,
        name: str,
        reconcile_s: float | None = RECONCILE_S,
        slices: SliceOptions | None = None,
    ) -> None:
        super().__init__(name, reconcile_s)
        self.slices = slices or SliceOptions()
        self._in_turns = 0
        """Attempts that take turns."""
        self._turn_s: float | None = None
        """When turns were given last, all of them; None: not since this process began."""
        self._waits = False
        """Whether anybody stands still."""

    @property
    def _shares(self) -> bool:
        return self.slices.layers > 1 or self._in_turns > 0

    # --- launching ------------------------------------------------------------------------------

    def _start(self, attempt: Attempt) -> None:
        """Start a gang when it is its turn: a newcomer's is now, if its GPUs can be freed at once."""
        if attempt.held:
            return
        if attempt.turns is not None or self.slices.layers == 1:
            super()._start(attempt)
            return
        self.decide(Joined(attempt.job, attempt.epoch, self._least_served_s(attempt)))
        self._give_turns()

    def _least_served_s(self, attempt: Attempt) -> float:
        """The least service of those that lie on the same GPUs, so that nobody gains by coming late."""
        mine = slots_of(attempt)
        found = [
            turns.served_s(self.now)
            for other in self.state.attempts.values()
            if (turns := other.turns) is not None
            and other is not attempt
            and not mine.isdisjoint(slots_of(other))
        ]
        return min(found, default=0.0)

    def _note_up(self, attempt: Attempt) -> None:
        super()._note_up(attempt)
        if self._waits and attempt.phase is AttemptPhase.RUNNING:
            self._give_turns()  # it may be suspended now, and some may wait for that

    # --- stopping -------------------------------------------------------------------------------

    def _stop_tasks(self, attempt: Attempt, grace_s: float | None = None) -> None:
        """What was never started has nothing to stop; who stands still needs its GPUs to checkpoint, and waits for them."""
        if attempt.held:
            for rank in range(len(attempt.tasks)):
                self.decide(TaskDown(attempt.job, attempt.epoch, rank, None))
            self._close(attempt)
            return
        if attempt.still:
            self._give_turns()  # it goes first, and stops when it goes on
            return
        super()._stop_tasks(attempt, grace_s)

    def _close(self, attempt: Attempt) -> None:
        super()._close(attempt)
        if self._waits:
            self._give_turns()

    # --- turns ----------------------------------------------------------------------------------

    def _give_turns(self, *, anew: bool = False) -> None:
        """Let run who may; ``anew``: all change places, else those who run stay. O(attempts log attempts + slots)."""
        waited = self._waits
        attempts = [a for a in self.state.attempts.values() if not a.ended]
        hosts = self.state.cluster.hosts if self.state.cluster is not None else ()
        going = who_run(attempts, Room(hosts), self._in_turn(anew))
        for attempt in attempts:
            if not attempt.still and attempt.job not in going:
                self._stand_still(attempt)
        for attempt in attempts:
            if attempt.still and attempt.job in going:
                self._go_on(attempt)
        self._waits = any(attempt.still for attempt in attempts)
        if self._waits and not waited:
            self._turn_s = self.now

    def _in_turn(self, anew: bool) -> Callable[[Attempt], tuple[Any, ...]]:
        """Who goes first: those who wait for their start; then, if not ``anew``, who runs; then by service."""
        now = self.now

        def key(attempt: Attempt) -> tuple[Any, ...]:
            turns = attempt.turns
            served_s = now - attempt.opened_s if turns is None else turns.served_s(now)
            return (not attempt.held, not anew and attempt.still, served_s, attempt.job)

        return key

    def _stand_still(self, attempt: Attempt) -> None:
        job, epoch = attempt.job, attempt.epoch
        if attempt.turns is None:
            self.decide(Joined(job, epoch, self.now - attempt.opened_s))
        self.decide(Suspended(job, epoch))
        self._order(attempt, m.SuspendGang(job, epoch))
        self._tell(m.AttemptSuspended(job, epoch))

    def _go_on(self, attempt: Attempt) -> None:
        job, epoch, first = attempt.job, attempt.epoch, attempt.held
        self.decide(Continued(job, epoch))
        if first:
            super()._start(attempt)
        else:
            self._order(attempt, m.ResumeGang(job, epoch))
        self._tell(m.AttemptContinued(job, epoch))
        if attempt.phase is AttemptPhase.STOPPING:
            self._stop_tasks(attempt)

    # --- time -----------------------------------------------------------------------------------

    def next_wakeup_s(self) -> float | None:
        """As the plain one, or the next turn."""
        first_s = super().next_wakeup_s()
        turn_s = self._next_turn_s()
        if turn_s is None:
            return first_s
        return turn_s if first_s is None else min(first_s, turn_s)

    def _next_turn_s(self) -> float | None:
        """When all change places, if anybody waits for that."""
        if not self._waits:
            return None
        return (self._turn_s or 0.0) + self.slices.quantum_s

    def _wake(self, event: m.Wake) -> None:
        super()._wake(event)
        turn_s = self._next_turn_s()
        if turn_s is not None and turn_s <= self.now:
            self._turn_s = self.now
            self._give_turns(anew=True)

    def _last_too_long(self, attempt: Attempt) -> None:
        """Nothing lasts too long that has not its turn: its time counts when it goes on."""
        if not attempt.still:
            super()._last_too_long(attempt)

    def _recovered(self, event: m.Recovered) -> None:
        """Say again who stands still and who does not."""
        super()._recovered(event)
        for attempt in self.state.attempts.values():
            if attempt.turns is None or attempt.held or attempt.phase is AttemptPhase.STOPPING:
                continue
            order = m.SuspendGang if attempt.still else m.ResumeGang
            self._order(attempt, order(attempt.job, attempt.epoch))
        if self._shares:
            self._give_turns()

    # --- facts ----------------------------------------------------------------------------------

    def _apply_joined(self, fact: Joined, event: m.Message) -> None:
        attempt = self.state.attempts[fact.job]
        waits = attempt.phase is AttemptPhase.STARTING
        attempt.turn = Turn(
            fact.service_s, self.now, held=waits, still_s=self.now if waits else None
        )
        self._in_turns += 1

    def _apply_suspended(self, fact: Suspended, event: m.Message) -> None:
        turns = self.state.attempts[fact.job].turns
        assert turns is not None
        turns.stop(self.now)
        self._waits = True

    def _apply_continued(self, fact: Continued, event: m.Message) -> None:
        """The launch, the stop and the time limit count the time that the gang has its GPUs."""
        attempt = self.state.attempts[fact.job]
        turns = attempt.turns
        assert turns is not None
        assert turns.still_s is not None
        passed_s = self.now - turns.still_s
        if attempt.held:
            attempt.deadline_s = self.now + LAUNCH_DEADLINE_S
        elif attempt.phase is AttemptPhase.STOPPING:
            attempt.deadline_s = self.now + attempt.spec.checkpoint.grace_s + STOP_MARGIN_S
        if attempt.time_left_s is not None:
            attempt.time_left_s += passed_s
        turns.go(self.now)
        self._watch(attempt)

    def _apply_closed(self, fact: Closed, event: m.Message) -> None:
        self._in_turns -= self.state.attempts[fact.job].turns is not None
        super()._apply_closed(fact, event)

    def restore(self, blob: bytes) -> None:
        """Take up a state written by ``snapshot``."""
        super().restore(blob)
        attempts = self.state.attempts.values()
        self._in_turns = sum(attempt.turns is not None for attempt in attempts)
        self._waits = any(attempt.still for attempt in attempts) or self.slices.layers > 1
        self._turn_s = None

    handlers: ClassVar[dict[type[m.Message], Callable[..., Any]]] = {
        **PairedManager.handlers,
        m.Recovered: _recovered,
        m.Wake: _wake,
    }
    appliers: ClassVar[dict[type[Fact], Callable[..., None]]] = {
        **PairedManager.appliers,
        Joined: _apply_joined,
        Suspended: _apply_suspended,
        Continued: _apply_continued,
        Closed: _apply_closed,
    }


def who_run(
    attempts: Iterable[Attempt], room: Room, key: Callable[[Attempt], tuple[Any, ...]]
) -> dict[str, bool]:
    """The jobs that have their GPUs: who starts or stops anyway, who waits to stop, then as many as fit, in order."""
    going: dict[str, bool] = {}
    rest = []
    for attempt in attempts:
        if attempt.phase is AttemptPhase.RUNNING or attempt.still:
            rest.append(attempt)
        else:
            room.take(attempt)
            going[attempt.job] = True
    for attempt in sorted(rest, key=lambda a: (a.phase is not AttemptPhase.STOPPING, key(a))):
        if room.fits(attempt):
            room.take(attempt)
            going[attempt.job] = True
    return going
