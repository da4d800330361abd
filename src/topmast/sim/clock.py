"""The virtual clock."""

from __future__ import annotations


class VirtualClock:
    """Seconds since the start of the trace; moved by the loop alone, and never backwards."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now(self) -> float:
        """The time, in seconds."""
        return self.now_s
