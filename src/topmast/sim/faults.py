"""Faults from seeded rates: tasks that die, hosts that go and come back."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from topmast.sim.engine import Mortality, SimulatedEngine
from topmast.sim.heap import EventHeap, Priority
from topmast.sim.settings import Settings
from topmast.sim.streams import Streams


def mortality(settings: Settings, streams: Streams) -> Mortality | None:
    """When gangs fail by themselves: the first of their tasks to die ends them."""
    mtbf_s = settings.task_mtbf_s
    if mtbf_s is None:
        return None
    chance = streams.of("task-failures")
    return lambda tasks: chance.expovariate(tasks / mtbf_s)


class HostFaults:
    """Hosts fail and are repaired, each after times drawn from exponential distributions."""

    def __init__(
        self, settings: Settings, streams: Streams, heap: EventHeap, now: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._streams = streams
        self._heap = heap
        self._now = now
        self.pending_repairs = 0
        self._engines: Mapping[str, SimulatedEngine] = {}

    def begin(self, engines: Mapping[str, SimulatedEngine]) -> None:
        """Let every host live its life; ``engines``: by host, the one that has it now."""
        self._engines = engines
        for host in engines if self._settings.host_mtbf_s is not None else ():
            self._plan_failure(host)

    def _plan_failure(self, host: str) -> None:
        assert self._settings.host_mtbf_s is not None
        after_s = self._draw("host-failures", host, self._settings.host_mtbf_s)
        self._heap.put(self._now() + after_s, Priority.FAULT, self._fail, host)

    def _fail(self, host: str) -> None:
        self._engines[host].host_down(host)
        self.pending_repairs += 1
        after_s = self._draw("host-repairs", host, self._settings.host_repair_s)
        self._heap.put(self._now() + after_s, Priority.FAULT, self._repair, host)

    def _repair(self, host: str) -> None:
        self.pending_repairs -= 1
        self._engines[host].host_up(host)
        self._plan_failure(host)

    def _draw(self, purpose: str, host: str, mean_s: float) -> float:
        return self._streams.of(f"{purpose}/{host}").expovariate(1.0 / mean_s)
