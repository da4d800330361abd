"""The wall clock, made fit for deadlines: it never goes back, and never jumps during a process."""

from __future__ import annotations

import threading
import time

import structlog

LOOK_S = 1.0
"""How often the clock of the machine is compared with ours."""
STEP_S = 1.0
"""A larger change means that the clock was set; it is noted."""
SLEW = 0.01
"""How much faster or slower than time ours goes to come back to that of the machine."""

log = structlog.get_logger(__name__)


def wall_s() -> float:
    """Seconds since the UTC epoch, as the machine has them; they can be set."""
    return time.time()


def elapsed_s() -> float:
    """Seconds since the machine's start, sleep included; they cannot be set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SystemClock:
    """Seconds since the UTC epoch: the machine's at the start, and from then on as time passes.

    When the clock of the machine is set, deadlines stay as far away as they were. This clock then
    approaches it by 1 % of the time that passes. A restart takes the machine's time at once, unless
    that would be going back (`not_before`). Any thread may ask.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._from_s = elapsed_s()
        self._at_s = wall_s()
        self._behind_s = 0.0
        """How far the machine's clock was ahead of ours when last compared."""

    def now(self) -> float:
        """The time, in seconds; never less than before."""
        with self._lock:
            passed_s = elapsed_s() - self._from_s
            room_s = SLEW * passed_s
            now = self._at_s + passed_s + min(max(self._behind_s, -room_s), room_s)
            if passed_s >= LOOK_S:
                self._compare(now, passed_s)
            return now

    def not_before(self, at_s: float) -> None:
        """Begin no earlier than at a time that was written down: it has been that time already."""
        ahead_s = at_s - self.now()
        if ahead_s <= 0:
            return
        with self._lock:
            self._at_s += ahead_s
            self._behind_s -= ahead_s
        if ahead_s > STEP_S:
            log.warning(
                "the clock of this machine is behind what was recorded: times go on from there",
                behind_s=round(ahead_s, 3),
            )

    def _compare(self, now: float, passed_s: float) -> None:
        left_s = self._behind_s - (now - self._at_s - passed_s)
        self._from_s += passed_s
        self._at_s = now
        self._behind_s = wall_s() - now
        if abs(self._behind_s - left_s) > STEP_S:
            log.warning(
                "the clock of this machine was set: deadlines stay, times shown follow slowly",
                by_s=round(self._behind_s - left_s, 3),
            )


def thread_cpu_s() -> float:
    """The processor time that the calling thread has had."""
    return time.thread_time()
