"""Pauses between trials, each longer than the last."""

from __future__ import annotations


class Backoff:
    """Pauses from ``first_s`` up to ``longest_s``, each ``factor`` times the one before."""

    def __init__(self, first_s: float, longest_s: float, factor: float = 2.0) -> None:
        self._first_s, self._longest_s, self._factor = first_s, longest_s, factor
        self.next_s = first_s

    def take(self) -> float:
        """The pause to make now, in seconds; the next will be longer."""
        pause_s = self.next_s
        self.next_s = min(self._factor * pause_s, self._longest_s)
        return pause_s

    def reset(self) -> None:
        """Begin anew with the first pause: a trial succeeded."""
        self.next_s = self._first_s
