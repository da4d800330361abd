"""The wall clock."""

from __future__ import annotations

import time


class SystemClock:
    """Seconds since the UTC epoch, as the operating system has them."""

    def now(self) -> float:
        """The time, in seconds."""
        return time.time()
