"""Checkpoints that placers have to know of when they weigh what stopping an attempt would lose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from topmast.model import messages as m
from topmast.model.plan import Preempt, Shrink
from topmast.sim.clock import VirtualClock
from topmast.sim.engine import SimulatedEngine
from topmast.sim.loop import Loop

REPORT_S = 60.0
"""Placers hear of checkpoints when they look for victims, at most so often: as an engine's news
would come late, but not a message for every checkpoint that is never asked about.
"""
STOPS = (Preempt, Shrink)
"""Requests for a place that choose which attempts to stop."""


class Checkpoints:
    """News that goes ahead of questions that may choose victims."""

    def __init__(
        self, clock: VirtualClock, engines: Iterable[SimulatedEngine], from_s: float
    ) -> None:
        self._clock = clock
        self._engines = engines
        self._reported_s = from_s

    def go_ahead_in(self, loop: Loop) -> None:
        """Have the loop ask for news before such questions."""
        loop.ahead = {
            m.RequestFleetBids: self._of_fleet,
            m.RequestRegionBids: self._of_plans,
            m.ScaleUpAttempt: self._of_growth,
        }
        loop.before_victims = self._news

    def _of_fleet(self, event: m.RequestFleetBids) -> Sequence[tuple[str, m.Message]]:
        return self._news() if isinstance(event.ask.mode, STOPS) else ()

    def _of_plans(self, event: m.RequestRegionBids) -> Sequence[tuple[str, m.Message]]:
        return self._news() if any(isinstance(ask.mode, STOPS) for ask in event.asks) else ()

    def _of_growth(self, event: m.ScaleUpAttempt) -> Sequence[tuple[str, m.Message]]:
        return self._news()

    def _news(self) -> Sequence[tuple[str, m.Message]]:
        """The checkpoints since the last time. O(attempts), now and then."""
        if self._clock.now_s - self._reported_s < REPORT_S:
            return ()
        self._reported_s = self._clock.now_s
        return [(engine.manager, news) for engine in self._engines for news in engine.reports()]
