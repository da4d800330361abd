"""A limit on bytes per second, shared by the threads of one copy."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

MIN_SLICE_BYTES = 4 * 2**10
MAX_SLICE_BYTES = 4 * 2**20
SLICES_PER_S = 8
UNLED_S = 0.05
"""How often it is asked again whether this process leads."""


class Halted(Exception):
    """The copy has to stop."""


class Halt(threading.Event):
    """Set when work has to stop for good. To ask for it waits while this process does not lead."""

    def __init__(self, leads: Callable[[], bool]) -> None:
        super().__init__()
        self._leads = leads

    def is_set(self) -> bool:
        """Whether to stop."""
        while not super().is_set() and not self._leads():
            super().wait(UNLED_S)
        return super().is_set()

    def told(self) -> bool:
        """The same without waiting."""
        return super().is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is time to stop, or the time-out is over; says which."""
        super().wait(timeout)
        return self.is_set()


class Throttle:
    """Grants bytes at a rate (None: at once); idle time is not saved up for a burst."""

    def __init__(self, bytes_per_s: float | None, halt: threading.Event) -> None:
        limited = bytes_per_s is not None and 0 < bytes_per_s < math.inf
        self._bytes_per_s = bytes_per_s if limited else None
        self._halt = halt
        self._lock = threading.Lock()
        self._free_at_s = 0.0

    @property
    def slice_bytes(self) -> int:
        """How much to ask for at a time, so that the link is used evenly."""
        if self._bytes_per_s is None:
            return MAX_SLICE_BYTES
        return min(MAX_SLICE_BYTES, max(MIN_SLICE_BYTES, int(self._bytes_per_s / SLICES_PER_S)))

    def take(self, size_bytes: int) -> None:
        """Wait until ``size_bytes`` may have passed; raises `Halted` when told to stop."""
        wait_s = 0.0
        if self._bytes_per_s is not None:
            with self._lock:
                now_s = time.monotonic()
                self._free_at_s = max(self._free_at_s, now_s) + size_bytes / self._bytes_per_s
                wait_s = self._free_at_s - now_s
        if self._halt.wait(wait_s) if wait_s > 0 else self._halt.is_set():
            raise Halted
