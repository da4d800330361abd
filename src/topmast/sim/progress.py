"""How far an attempt has come: work, checkpoints and start-up as functions of time, in closed form.

From its launch an attempt starts up, takes up what was kept before, and then works ``interval_s`` at a
time, each time followed by a checkpoint; the last stretch is shorter and ends the job. So one event, the
end, is enough for an attempt; everything else is reckoned when somebody asks.
"""

from __future__ import annotations

import math

from msgspec import Struct


class Progress(Struct):
    """One attempt. ``work_s`` is what is left, in seconds on the reference GPU; ``rate`` how fast it goes."""

    begun_s: float
    """When work begins, after start-up and restore."""
    work_s: float
    rate: float
    interval_s: float
    checkpoint_s: float

    def end_s(self) -> float:
        """When all work is done, if nothing comes between. O(1)."""
        run_s = self.work_s / self.rate
        stops = max(0, math.ceil(run_s / self.interval_s) - 1) if self.checkpoint_s else 0
        return self.begun_s + run_s + stops * self.checkpoint_s

    def done_s(self, now: float) -> float:
        """Work done by ``now``, kept or not. O(1)."""
        ran_s = now - self.begun_s
        if ran_s <= 0:
            return 0.0
        cycle_s = self.interval_s + self.checkpoint_s
        cycles = math.floor(ran_s / cycle_s)
        worked_s = cycles * self.interval_s + min(ran_s - cycles * cycle_s, self.interval_s)
        return min(self.work_s, worked_s * self.rate)

    def kept(self, now: float) -> tuple[float, float] | None:
        """The work of the last complete checkpoint, and when that was; None before the first. O(1)."""
        cycle_s = self.interval_s + self.checkpoint_s
        cycles = math.floor((now - self.begun_s) / cycle_s)
        if cycles < 1:
            return None
        work_s = min(self.work_s, cycles * self.interval_s * self.rate)
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
