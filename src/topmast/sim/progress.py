"""How far an attempt has come: work, checkpoints and start-up as functions of time, in closed form.

From its launch an attempt starts up, takes up what was kept before, and then works ``interval_s``
at a time, each time followed by a checkpoint; the last stretch is shorter and ends the job. So
one event, the end, is enough for an attempt; everything else is computed on request. When
its speed changes on the way, the stretches of time stay as they are, and the work done in them is
piecewise linear.
"""

from __future__ import annotations

import math

from msgspec import Struct


class Progress(Struct, gc=False):
    """One attempt. ``work_s`` is what is left, in seconds on the reference GPU; ``rate`` how fast
    it goes.
    """

    begun_s: float
    """When work begins, after start-up and restore."""
    work_s: float
    rate: float
    interval_s: float
    checkpoint_s: float
    pieces: tuple[tuple[float, float, float], ...] = ()
    """Changes of speed: from how many seconds of work on, the work done by then, and the speed
    since.
    """

    def go(self, now: float, rate: float) -> None:
        """Go at another speed from ``now`` on. O(1)."""
        worked_s = self._worked_s(now)
        if worked_s <= 0:
            self.rate, self.pieces = rate, ()
            return
        self.pieces = (*self.pieces, (worked_s, self._work_in(worked_s), rate))

    def speed(self) -> float:
        """How fast it goes now."""
        return self.pieces[-1][2] if self.pieces else self.rate

    def _worked_s(self, now: float) -> float:
        """Seconds of work by ``now``, without start-up and checkpoints."""
        ran_s = now - self.begun_s
        if ran_s <= 0:
            return 0.0
        cycle_s = self.interval_s + self.checkpoint_s
        cycles = math.floor(ran_s / cycle_s)
        return cycles * self.interval_s + min(ran_s - cycles * cycle_s, self.interval_s)

    def _work_in(self, worked_s: float) -> float:
        """Work done in the first seconds of work. O(changes of speed)."""
        for since_s, before, rate in reversed(self.pieces):
            if worked_s >= since_s:
                return before + (worked_s - since_s) * rate
        return worked_s * self.rate

    def _run_s(self) -> float:
        """Seconds of work in all, where the speed has changed."""
        since_s, before, rate = self.pieces[-1]
        return since_s + max(0.0, self.work_s - before) / rate

    def when_s(self, work_s: float) -> float:
        """When so much work will have been done, or was, if nothing comes between. O(changes of
        speed).
        """
        run_s, before, rate = 0.0, 0.0, self.rate
        for since_s, done_s, speed in self.pieces:
            if done_s >= work_s:
                break
            run_s, before, rate = since_s, done_s, speed
        return self._at_s(run_s + max(0.0, work_s - before) / rate)

    def end_s(self) -> float:
        """When all work is done, if nothing comes between. O(1)."""
        run_s = self._run_s() if self.pieces else self.work_s / self.rate
        stops = max(0, math.ceil(run_s / self.interval_s) - 1) if self.checkpoint_s else 0
        return self.begun_s + run_s + stops * self.checkpoint_s

    def _at_s(self, run_s: float) -> float:
        """When so many seconds were worked, with the checkpoints between."""
        stops = max(0, math.ceil(run_s / self.interval_s) - 1) if self.checkpoint_s else 0
        return self.begun_s + run_s + stops * self.checkpoint_s

    def done_s(self, now: float) -> float:
        """Work done by ``now``, kept or not. O(1)."""
        return min(self.work_s, self._work_in(self._worked_s(now)))

    def kept(self, now: float) -> tuple[float, float] | None:
        """The work of the last complete checkpoint, and when that was; None before the first.
        O(1).
        """
        cycle_s = self.interval_s + self.checkpoint_s
        cycles = math.floor((now - self.begun_s) / cycle_s)
        if cycles < 1:
            return None
        work_s = min(self.work_s, self._work_in(cycles * self.interval_s))
        return work_s, self.begun_s + cycles * cycle_s

    def saved_s(self, now: float) -> float:
        """When a checkpoint of all that was done by ``now`` would be complete. O(1)."""
        ran_s = now - self.begun_s
        if ran_s <= 0:
            return now
        cycle_s = self.interval_s + self.checkpoint_s
        in_cycle_s = ran_s - math.floor(ran_s / cycle_s) * cycle_s
        if in_cycle_s > self.interval_s:
            return now + cycle_s - in_cycle_s  # one is being written
        return now + self.checkpoint_s
