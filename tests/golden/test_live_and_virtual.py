"""The live loop and the virtual one, given the same world, decide the same."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import pytest
from msgspec import Struct

from tests.support.journal import MemoryJournal
from tests.support.simulated import Run, mixed_trace, run, small_fleet
from topmast.model.messages import Message, Send, Wake
from topmast.runtime.loop import Runtime
from topmast.runtime.machines import Machines
from topmast.sim import ahead, simulation
from topmast.sim.clock import VirtualClock
from topmast.sim.heap import EventHeap, Priority, not_before
from topmast.sim.settings import Settings

Hear = Callable[[str, Any, Sequence[Struct], float], None]
WORLDS = {
    "mast": ("mast", Settings()),
    "mast with faults": ("mast", Settings(host_mtbf_s=30_000.0, task_mtbf_s=40_000.0)),
    "easy": ("easy", Settings()),
    "srtf": ("srtf", Settings()),
}


class WatchedRuntime(Runtime):
    """The live loop, which tells what it notes in its journal."""

    hears: Mapping[type[Message], Hear]

    def _note(
        self,
        address: str,
        event: Message,
        facts: Sequence[Struct],
        now: float,
        data: bytes | None = None,
    ) -> None:
        super()._note(address, event, facts, now, data)
        if type(event) in self.hears:
            self.hears[type(event)](address, event, facts, now)


class LiveLoop:
    """What a `Simulation` asks of its loop, done by the live one: cascades, commits, then release."""

    def __init__(
        self,
        machines: Machines,
        clock: VirtualClock,
        heap: EventHeap,
        hears: Mapping[type[Message], Hear],
        ticks: object = None,
    ) -> None:
        self.machines, self.clock, self.heap = machines, clock, heap
        self.outside: dict[str, Callable[[Message], None]] = {}
        self.ahead: dict[type[Message], Any] = {}
        self.events, self.spent_s = 0, dict[str, float]()
        self.journal = MemoryJournal()
        self.runtime = WatchedRuntime(
            machines, self.journal, clock, self._release, lambda rows: None, _fail, _drop,
            lambda: None,
        )  # fmt: skip
        self.runtime.hears = hears
        self._inbox: deque[tuple[str, Message]] = deque()
        self._busy = False
        self._due: dict[str, float] = {}

    def post(self, to: str, messages: Sequence[Message]) -> None:
        """Each message is a cascade and a commit of its own."""
        self._inbox.extend((to, message) for message in messages)
        if self._busy:
            return
        self._busy = True
        while self._inbox:
            address, message = self._inbox.popleft()
            self.runtime._cascade(address, message)
            self.runtime._commit()
        self._busy = False
        for address, machine in self.machines.addressed():
            at_s = machine.next_wakeup_s()
            if at_s is not None:
                at_s = not_before(max(at_s, self.clock.now_s))
                if self._due.get(address) != at_s:
                    self._due[address] = at_s
                    self.heap.put(at_s, Priority.WAKE, self._wake, (address, at_s))

    def _wake(self, due: tuple[str, float]) -> None:
        if self._due.get(due[0]) == due[1]:
            del self._due[due[0]]
            wanted_s = dict(self.machines.addressed())[due[0]].next_wakeup_s()
            if wanted_s is not None and wanted_s <= self.clock.now_s:
                self.post(due[0], (Wake(),))

    def _release(self, send: Send) -> None:
        self.outside[send.to](send.message)

    def step(self) -> None:
        """The next thing happens."""
        at_s, _, _, do, what = self.heap.take()
        self.clock.now_s = at_s
        do(what)


def _drop(message: Message, error: Exception) -> None:
    raise AssertionError(f"{message} cannot be written") from error


def _fail(error: BaseException) -> NoReturn:
    raise error


def world(case: str) -> Run:
    """A run of a case, by whichever loop is in place."""
    profile, settings = WORLDS[case]
    options = {"reserve_after_s": "600"} if profile == "mast" else {}
    return run(mixed_trace(50, seed=11), small_fleet(), profile, settings, seed=2, **options)


@pytest.mark.parametrize("case", WORLDS)
def test_the_live_loop_decides_what_the_virtual_one_does(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same trace, same world: the same attempts on the same hosts at the same times."""
    monkeypatch.setattr(ahead, "REPORT_S", float("inf"))  # nobody reports ahead when live
    virtual = world(case)
    monkeypatch.setattr(simulation, "Loop", LiveLoop)
    live = world(case)
    assert len(live.allocations) >= 49
    assert live.allocations == virtual.allocations
    assert live.jobs == virtual.jobs
    assert live.copies == virtual.copies
