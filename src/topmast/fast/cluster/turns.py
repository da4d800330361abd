"""Time slices: gangs on the same GPUs run in turns (Gandiva, OSDI '18: suspend and resume).

The placer puts each gang whole into one time slice; gangs of different slices may lie over one
another. At the end of each quantum the gangs with the least service run, whole, as many as have
room; the others are suspended. A newcomer starts at once, with the least service of those that it
lies over. A gang that stops or starts cannot be suspended: the others wait, also suspended ones
that are to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from topmast.fast.cluster import facts as f
from topmast.fast.cluster.attempt import Attempt, AttemptPhase, Turn, turns_of
from topmast.fast.cluster.gangs import GangLifecycle
from topmast.fast.cluster.hooks import GangHooks
from topmast.fast.cluster.packing import PackingJudge
from topmast.fast.cluster.room import Room, slots_of
from topmast.fast.machine import Fact
from topmast.model import messages as m
from topmast.policies.options import SliceOptions


class TurnTaker(GangHooks):
    """Gives turns to the gangs of a cluster; its ``judge`` says which two have one together."""

    def __init__(self, gangs: GangLifecycle, slices: SliceOptions, judge: PackingJudge) -> None:
        self._gangs = gangs
        self._slices = slices
        self._judge = judge
        self._turn_s: float | None = None
        """When turns were given last, all of them; None: not since this process began."""
        self._waits = False
        """Whether any gang stands still."""

    # --- launching ------------------------------------------------------------------------------

    def may_start(self, attempt: Attempt) -> bool:
        """A gang starts at its turn: a newcomer's is now, if its GPUs can be freed at once."""
        if attempt.held:
            return False
        if attempt.turns is not None or self._slices.layers == 1:
            return True
        self._gangs.decide(f.Joined(attempt.job, attempt.epoch, self._least_served_s(attempt)))
        self._give_turns()
        return False

    def _least_served_s(self, attempt: Attempt) -> float:
        """The least service on the same GPUs, so that no gang gains by coming late."""
        mine = slots_of(attempt)
        found = [
            turns.served_s(self._gangs.now)
            for other in self._gangs.state.attempts.values()
            if (turns := other.turns) is not None
            and other is not attempt
            and not mine.isdisjoint(slots_of(other))
        ]
        return min(found, default=0.0)

    def on_up(self, attempt: Attempt) -> None:
        """Once a gang is up, it may be suspended."""
        if self._waits and attempt.phase is AttemptPhase.RUNNING:
            self._give_turns()  # some may wait for that

    # --- stopping -------------------------------------------------------------------------------

    def may_stop(self, attempt: Attempt) -> bool:
        """A gang never started has nothing to stop; a suspended one waits for GPUs to save."""
        if attempt.held:
            for rank in range(len(attempt.tasks)):
                self._gangs.decide(f.TaskDown(attempt.job, attempt.epoch, rank, None))
            self._gangs.close(attempt)
            return False
        if attempt.still:
            self._give_turns()  # it goes first, and stops when it goes on
            return False
        return True

    def on_closed(self, attempt: Attempt) -> None:
        """There is room for those that wait."""
        if self._waits:
            self._give_turns()
        self._judge.closed(attempt)

    # --- turns ----------------------------------------------------------------------------------

    def _give_turns(self, *, anew: bool = False) -> None:
        """Give turns; ``anew``: all gangs may change, else those that run stay.

        O(attempts log attempts + slots).
        """
        waited, state = self._waits, self._gangs.state
        attempts = [a for a in state.attempts.values() if not a.ended]
        hosts = state.cluster.hosts if state.cluster is not None else ()
        going = who_run(attempts, Room(hosts), self._in_turn(anew))
        for attempt in attempts:
            if not attempt.still and attempt.job not in going:
                self._stand_still(attempt)
        for attempt in attempts:
            if attempt.still and attempt.job in going:
                self._go_on(attempt)
        self._waits = any(attempt.still for attempt in attempts)
        if self._waits and not waited:
            self._turn_s = self._gangs.now

    def _in_turn(self, anew: bool) -> Callable[[Attempt], tuple[Any, ...]]:
        """The order: pairs on trial, so that both can be measured; gangs that wait for their start;
        then, if not ``anew``, those that run; then by service.
        """
        now = self._gangs.now

        def key(attempt: Attempt) -> tuple[Any, ...]:
            turns = attempt.turns
            served_s = now - attempt.opened_s if turns is None else turns.served_s(now)
            tried = turns is not None and turns.trial_s is not None
            waits = not anew and attempt.still
            return (not tried, not attempt.held, waits, served_s, attempt.job)

        return key

    def _stand_still(self, attempt: Attempt) -> None:
        gangs, job, epoch = self._gangs, attempt.job, attempt.epoch
        self._judge.measure(attempt)
        if attempt.turns is None:
            gangs.decide(f.Joined(job, epoch, gangs.now - attempt.opened_s))
        gangs.decide(f.Suspended(job, epoch))
        gangs.order(attempt, m.SuspendGang(job, epoch))
        gangs.tell(m.AttemptSuspended(job, epoch))

    def _go_on(self, attempt: Attempt) -> None:
        gangs, job, epoch = self._gangs, attempt.job, attempt.epoch
        first = attempt.held
        self._judge.goes_on(attempt)
        gangs.decide(f.Continued(job, epoch))
        if first:
            gangs.start_tasks(attempt)
        else:
            gangs.order(attempt, m.ResumeGang(job, epoch))
        gangs.tell(m.AttemptContinued(job, epoch))
        if attempt.phase is AttemptPhase.STOPPING:
            gangs.stop_tasks(attempt)
        self._judge.measure(attempt)

    def progress(self, event: m.ProgressReport) -> None:
        """The engine tells a gang's step: two that do not go well together take turns again."""
        if self._judge.progress(event):
            self._give_turns()

    # --- time -----------------------------------------------------------------------------------

    def next_wakeup_s(self) -> float | None:
        """When all change places, if any gang waits for that or is to be measured."""
        if not (self._waits or self._judge.looks):
            return None
        return (self._turn_s or 0.0) + self._slices.quantum_s

    def _is_due(self) -> bool:
        turn_s = self.next_wakeup_s()
        return turn_s is not None and turn_s <= self._gangs.now

    def before_wake(self) -> None:
        """At the end of a quantum those that ran are measured."""
        if self._is_due():
            self._judge.ends_quantum()

    def on_wake(self) -> None:
        """At the end of a quantum all change places."""
        if self._is_due():
            self._turn_s = self._gangs.now
            self._give_turns(anew=True)

    def on_recovered(self) -> None:
        """Say again which gangs stand still and which do not."""
        in_turns = self._slices.layers > 1
        for attempt in self._gangs.state.attempts.values():
            in_turns = in_turns or attempt.turns is not None
            if attempt.turns is None or attempt.held or attempt.phase is AttemptPhase.STOPPING:
                continue
            order = m.SuspendGang if attempt.still else m.ResumeGang
            self._gangs.order(attempt, order(attempt.job, attempt.epoch))
        if in_turns:
            self._give_turns()

    # --- facts ----------------------------------------------------------------------------------

    def apply(self, fact: Fact) -> None:
        """Change the state by a fact about gangs that share GPUs."""
        match fact:
            case f.Joined():
                self._apply_joined(fact)
            case f.Suspended():
                turns_of(self._gangs.state.attempts[fact.job]).stop(self._gangs.now)
                self._waits = True
            case f.Continued():
                self._apply_continued(fact)
            case _:
                self._judge.apply(fact)

    def _apply_joined(self, fact: f.Joined) -> None:
        attempt, now = self._gangs.state.attempts[fact.job], self._gangs.now
        waits = attempt.phase is AttemptPhase.STARTING
        attempt.turn = Turn(fact.service_s, now, held=waits, still_s=now if waits else None)

    def _apply_continued(self, fact: f.Continued) -> None:
        """The launch, the stop and the time limit count the time that the gang has its GPUs."""
        attempt, now = self._gangs.state.attempts[fact.job], self._gangs.now
        turns = turns_of(attempt)
        assert turns.still_s is not None
        passed_s = now - turns.still_s
        if attempt.held:
            attempt.deadline_s = now + self._gangs.limits.start_within_s
        elif attempt.phase is AttemptPhase.STOPPING:
            grace_s = attempt.spec.checkpoint.grace_s
            attempt.deadline_s = now + grace_s + self._gangs.limits.stop_within_s
        if attempt.time_left_s is not None:
            attempt.time_left_s += passed_s
        turns.go(now)
        self._gangs.watch(attempt)

    def apply_closed(self, attempt: Attempt) -> None:
        """The gang that was on its GPUs with it has its turns for itself."""
        self._judge.apply_closed(attempt)

    def restored(self) -> None:
        """The state was read from a snapshot."""
        attempts = self._gangs.state.attempts.values()
        self._waits = any(attempt.still for attempt in attempts) or self._slices.layers > 1
        self._turn_s = None
        self._judge.restored()


def who_run(
    attempts: Iterable[Attempt], room: Room, key: Callable[[Attempt], tuple[Any, ...]]
) -> dict[str, bool]:
    """Jobs with their GPUs: those that start or stop anyway or wait to stop, then all that fit."""
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
