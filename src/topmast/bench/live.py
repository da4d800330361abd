"""The live loop without journal and threads, on a clock that skips idle time.

It takes events as `runtime.loop` does: all that have arrived, each with what it causes, then the
wake-ups that are due. The measured time of the machines is the time that passes; an event that
arrives meanwhile waits. What happens outside (engines, clients) takes no time of the loop.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence

from msgspec import Struct

from topmast.model import ids
from topmast.model import messages as m
from topmast.model.fleet import HostSpec
from topmast.model.ids import Address
from topmast.ports import EngineOrders, Machine
from topmast.runtime.loop import EVENTS_PER_COMMIT
from topmast.runtime.machines import Machines
from topmast.runtime.meter import Meter

Hear = Callable[[m.Message, Sequence[Struct]], None]
"""Hears what the queue was told and what it decided."""
SWITCH_S = 1.0
"""An engine starts and ends tasks so long after it was told."""


class Live:
    """The machines of one process, and engines that do as they are told."""

    def __init__(self, machines: Machines, hear: Hear) -> None:
        self.machines = machines
        self.meter = Meter(machines.queue, time.perf_counter)
        self.metered_s = 0.0
        """How much of `busy_s` went into counting for the metrics."""
        self.now_s = 0.0
        self.busy_s = 0.0
        self.turns = 0
        self.spent_s: dict[str, float] = {}
        """By message; ``(wake-ups)`` is the time to ask all machines for their next wake-up."""
        self.handled: dict[str, int] = {}
        self.engines: dict[Address, Engine] = {}
        self._hear = hear
        self._arriving: list[tuple[float, int, Address, m.Message]] = []
        self._numbers = itertools.count()

    def post(self, at_s: float, to: Address, message: m.Message) -> None:
        """Let a message arrive at a time."""
        heapq.heappush(self._arriving, (at_s, next(self._numbers), to, message))

    def run(self, until_s: float, *, or_rest: bool = False) -> None:
        """Let time pass; ``or_rest``: only until nothing is due for a minute."""
        while self.now_s < until_s:
            self._turn()
            next_s = self._next_s()
            if or_rest and next_s > self.now_s + 2 * SWITCH_S:
                return
            self.now_s = max(self.now_s, min(until_s, next_s))

    def forget(self) -> None:
        """Count what was spent from now on."""
        self.busy_s, self.metered_s, self.turns = 0.0, 0.0, 0
        self.spent_s, self.handled = {}, {}

    def _turn(self) -> None:
        self.turns += 1
        for _ in range(EVENTS_PER_COMMIT):
            if not self._arriving or self._arriving[0][0] > self.now_s:
                break
            _, _, to, message = heapq.heappop(self._arriving)
            self._cascade(to, message)
        begun_s = time.perf_counter()
        due = [
            address for address, machine in self.machines.addressed()
            if (at_s := machine.next_wakeup_s()) is not None and at_s <= self.now_s
        ]  # fmt: skip
        self._pass("(wake-ups)", time.perf_counter() - begun_s)
        for address in due:
            self._cascade(address, m.Wake())

    def _next_s(self) -> float:
        begun_s = time.perf_counter()
        times = [machine.next_wakeup_s() for _, machine in self.machines.addressed()]
        if self._arriving:
            times.append(self._arriving[0][0])
        next_s = min((at_s for at_s in times if at_s is not None), default=float("inf"))
        self._pass("(wake-ups)", time.perf_counter() - begun_s)
        return next_s

    def _cascade(self, to: Address, message: m.Message) -> None:
        now_s = self.now_s
        waiting = deque([(to, message)])
        while waiting:
            address, event = waiting.popleft()
            machine = self.machines.at(address)
            if machine is None:
                self.engines[address].order(event)
                continue
            waiting.extend(self._handle(address, machine, event, now_s))

    def _handle(
        self, address: Address, machine: Machine, event: m.Message, now_s: float
    ) -> list[tuple[Address, m.Message]]:
        begun_s = time.perf_counter()
        outcome = machine.handle(event, now_s)
        handled_s = time.perf_counter()
        self.meter.handled(address, begun_s)  # as `Runtime` does
        if outcome.facts:
            self.meter.note(event, outcome.facts)
        ended_s = time.perf_counter()
        kind = address.partition("/")[0]
        self.metered_s += ended_s - handled_s
        self._pass(f"{kind} {type(event).__name__}", ended_s - begun_s)
        if address == ids.QUEUE:
            self._hear(event, outcome.facts)
        return [(send.to, send.message) for send in outcome.sends]

    def _pass(self, what: str, took_s: float) -> None:
        self.now_s += took_s
        self.busy_s += took_s
        self.spent_s[what] = self.spent_s.get(what, 0.0) + took_s
        self.handled[what] = self.handled.get(what, 0) + 1


class Engine(EngineOrders):
    """One cluster's engine: tasks start and end SWITCH_S after they were told to."""

    def __init__(self, live: Live, cluster: str) -> None:
        self.live = live
        self.address = ids.cluster(cluster)
        self.gangs: dict[tuple[str, int], int] = {}
        """Tasks of the gangs that run."""
        live.engines[ids.engine(cluster)] = self

    def start_gang(self, gang: m.StartGang) -> None:
        """All tasks start together."""
        self.gangs[gang.job, gang.epoch] = len(gang.seats)
        at_s = self.live.now_s + SWITCH_S
        for rank in range(len(gang.seats)):
            self.live.post(at_s, self.address, m.TaskStarted(gang.job, gang.epoch, rank, at_s))

    def stop(self, job: str, epoch: int, grace_s: float) -> None:
        """All tasks end together."""
        self.end((job, epoch), 143, self.live.now_s + SWITCH_S)

    def list_tasks(self) -> None:
        """What was started and has not ended runs."""
        tasks = tuple(
            m.TruthTask(*gang, rank, running=True)
            for gang, count in self.gangs.items() for rank in range(count)
        )  # fmt: skip
        self.live.post(self.live.now_s, self.address, m.TaskList(tasks))

    def set_hosts(self, hosts: Sequence[HostSpec]) -> None:
        """Hosts come and go without a word."""

    def end(self, gang: tuple[str, int], code: int, at_s: float) -> None:
        """Every task of a gang exits then, if it runs."""
        for rank in range(self.gangs.pop(gang, 0)):
            self.live.post(at_s, self.address, m.TaskExited(*gang, rank, code, at_s))
