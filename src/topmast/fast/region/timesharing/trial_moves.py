"""Whether a move was good: a gang's steps per second before and after it, and the way back.

Gandiva (OSDI '18), introspection: a move is measured, and taken back if the gang's rate fell. The
work of a gang is its rate alone on its GPUs times its part of the time: one over the number of
gangs there when it came, or when it was to leave.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from topmast.model.plan import Plan
from topmast.policies.base import MovedView

KEPT = 4
"""Jobs remembered for each attempt there is; beyond, the oldest is forgotten."""


class Move(Struct, frozen=True):
    """A move not judged yet: where from, how fast there, and among how many, there and here."""

    plan: Plan
    epoch: int
    rate: float
    sharing: int
    sharing_here: int
    back: bool


class TrialMoves:
    """The rates of gangs, and their moves. Working memory: after a restart a move goes unjudged."""

    def __init__(self) -> None:
        self._rates: dict[str, float] = {}
        self._moves: dict[str, Move] = {}
        self._sized: dict[str, int] = {}
        """By job, the last attempt of the size before: its measurements do not count any more."""
        self._slow: dict[str, dict[str, bool]] = {}
        """By job, hosts where it was measured to do less."""

    def note_move(
        self, job: str, epoch: int, plan: Plan, sharing: int, there: int, *, back: bool = False
    ) -> None:
        """A gang that was measured where it is leaves its ``plan``."""
        if (rate := self._rates.pop(job, None)) is not None:
            self._moves[job] = Move(plan, epoch, rate, sharing, there, back)

    def note_rate(self, job: str, epoch: int, rate: float) -> MovedView | None:
        """A gang was measured; if for the first time since its move, what there is to judge."""
        if epoch <= self._sized.get(job, 0):
            return None
        self._rates[job] = rate
        move = self._moves.get(job)
        if move is None or epoch <= move.epoch or move.back:
            return None
        return MovedView(np.array([move.rate / move.sharing]), np.array([rate / move.sharing_here]))

    def note_size(self, job: str, epoch: int) -> None:
        """A gang goes on with another number of tasks: its rate is another, and measured anew."""
        self._rates.pop(job, None)
        self._moves.pop(job, None)
        self._sized.pop(job, None)
        self._sized[job] = epoch

    def is_unjudged(self, job: str, epoch: int) -> bool:
        """Whether a gang was moved and has yet to be measured where it is."""
        move = self._moves.get(job)
        return move is not None and move.epoch < epoch and not move.back

    def judged(self, job: str, here: Plan, *, good: bool) -> Move | None:
        """The move is judged. Where it came from, if bad: these hosts are not for this job."""
        move = self._moves.pop(job)
        if good:
            return None
        slow = self._slow.setdefault(job, {})
        slow.update(dict.fromkeys(here.hosts, True))
        for host in move.plan.hosts:
            slow.pop(host, None)
        return move

    def slow_hosts(self, job: str) -> tuple[str, ...]:
        """Where the job is not to be moved again."""
        return tuple(self._slow.get(job, ()))

    def forget(self, attempts: int) -> None:
        """Keep no more than is likely to be asked about. O(what is forgotten)."""
        for memory in (self._rates, self._moves, self._sized, self._slow):
            while len(memory) > KEPT * (16 + attempts):
                del memory[next(iter(memory))]
