"""Checkpoints that placers have to know of when they weigh what stopping an attempt would lose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from topmast.model import messages as m
from topmast.model.plan import Mode, Preempt, Shrink
from topmast.sim.clock import VirtualClock
from topmast.sim.engine import SimulatedEngine
from topmast.sim.loop import Loop

REPORT_S = 60.0
"""What placers know of checkpoints when they look for victims is at most so old: as an engine's
news would come late, but not a message for every checkpoint that is never asked about.
"""


class Checkpoints:
    """News that goes ahead of questions that may choose victims.

    ``engine_of``: by job, the engine where it ran last.
    """

    def __init__(
        self, clock: VirtualClock, engine_of: Mapping[str, SimulatedEngine], from_s: float
    ) -> None:
        self._clock = clock
        self._engine_of = engine_of
        self._named_alone = False
        """Only attempts that a question names are ever weighed: nothing is told of the others."""
        self._from_s = self._as_of_s = from_s

    def go_ahead_in(self, loop: Loop) -> None:
        """Have the loop ask for news before such questions."""
        self._named_alone = loop.machines.queue.around is not None
        loop.ahead = {
            m.RequestFleetBids: self._of_fleet,
            m.RequestRegionBids: self._of_plans,
            m.ScaleUpAttempt: self._of_growth,
        }
        loop.before_victims = self._is_due

    def _of_fleet(self, event: m.RequestFleetBids) -> Sequence[tuple[str, m.Message]]:
        return self._of_modes((event.ask.mode,))

    def _of_plans(self, event: m.RequestRegionBids) -> Sequence[tuple[str, m.Message]]:
        return self._of_modes([ask.mode for ask in event.asks])

    def _of_growth(self, event: m.ScaleUpAttempt) -> Sequence[tuple[str, m.Message]]:
        return self._news(self._engine_of) if self._is_due() or self._named_alone else ()

    def _of_modes(self, modes: Iterable[Mode]) -> Sequence[tuple[str, m.Message]]:
        """What is to be known for questions of these kinds."""
        stops = [mode for mode in modes if isinstance(mode, (Preempt, Shrink))]
        if not stops:
            return ()
        is_due = self._is_due()
        if self._named_alone:
            named = [mode.outranked or () for mode in stops if isinstance(mode, Preempt)]
            return self._news(chain.from_iterable(named))
        return self._news(self._engine_of) if is_due else ()

    def _is_due(self) -> bool:
        """Let placers know of checkpoints until now, if what they know is old; whether it was."""
        if self._clock.now_s - self._as_of_s < REPORT_S:
            return False
        self._as_of_s = self._clock.now_s
        return True

    def _news(self, jobs: Iterable[str]) -> list[tuple[str, m.Message]]:
        """The last checkpoint of each of these jobs, if it was not told. O(jobs)."""
        engine_of, as_of_s, news = self._engine_of, self._as_of_s, list[tuple[str, m.Message]]()
        for job in jobs if as_of_s > self._from_s else ():
            engine = engine_of.get(job)
            checkpoint = None if engine is None else engine.report(job, as_of_s)
            if engine is not None and checkpoint is not None:
                news.append((engine.manager, checkpoint))
        return news
