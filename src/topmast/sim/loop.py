"""The loop under a virtual clock: machines hear what happens, and what follows from it, in memory.

Like the live loop it hands an event to a machine and then all that it causes to the machines of the
process; unlike it, it keeps no journal and takes the time from the heap. After a cascade only the
machines that took part are asked when they want to be woken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from topmast.model.ids import Address
from topmast.model.messages import Message, Wake
from topmast.ports import Machine
from topmast.runtime.machines import Machines
from topmast.sim.clock import VirtualClock
from topmast.sim.heap import EventHeap, Priority, not_before

Outside = Callable[[Message], None]
"""Takes a message that leaves the machines: an engine, a mover."""
Ahead = Callable[[Any], Sequence[tuple[Address, Message]]]
"""News that reaches its machines, with all that follows, before a message is handled."""
Ticks = Callable[[], float]
WAKES = (Wake(),)
SCOPES = {"queue": "queue", "desk": "placers", "placer": "placers", "cluster": "clusters"}
"""Whose time it is that a machine takes, by the kind of its address."""


Hear = Callable[[Address, Any, Sequence[Struct], float], None]
"""Hears that a machine took a message of one type, what it decided, and when."""


class Carrier(Protocol):
    """The links between scopes."""

    def carries(self, sender: Address, to: Address) -> bool:
        """Whether a message between the two takes time or may be lost."""
        ...

    def send(self, sender: Address, to: Address, message: Message) -> None:
        """Take a message; it is delivered later, or never."""
        ...


class Loop:
    """Delivers messages at virtual times.

    ``hears``: who keeps the books, by type of message. ``ticks``, if given, measures what each scope takes.
    """

    def __init__(
        self,
        machines: Machines,
        clock: VirtualClock,
        heap: EventHeap,
        hears: Mapping[type[Message], Hear],
        ticks: Ticks | None = None,
    ) -> None:
        self.machines = machines
        self.clock = clock
        self.heap = heap
        self.outside: dict[Address, Outside] = {}
        self.carrier: Carrier | None = None
        self.ahead: dict[type[Message], Ahead] = {}
        self.events = 0
        """Messages handled."""
        self.wakes = 0
        self.spent_s: dict[str, float] = dict.fromkeys(SCOPES.values(), 0.0)
        self._hears = hears
        self._ticks = ticks
        self._due: dict[Address, float] = {}
        self._scope: dict[Address, str] = {}
        self._inbox: deque[tuple[Address, Message]] = deque()
        self._running = False

    def post(self, to: Address, messages: Sequence[Message]) -> Any:
        """Hand messages to a machine now, with all that follows; returns the answer to the first.

        During a cascade they join it, last.
        """
        self._inbox.extend((to, message) for message in messages)
        if self._running or not messages:
            return None
        self._running = True
        try:
            return self._cascade()
        finally:
            self._running = False

    def _cascade(self) -> Any:
        """Deliver what is in the inbox and all that follows. It runs for every message of a run, so it
        is one plain loop.
        """
        now, inbox, at = self.clock.now_s, self._inbox, self.machines.at
        hears, carrier, ticks, spent_s = self._hears, self.carrier, self._ticks, self.spent_s
        touched: dict[Address, Machine] = {}
        ahead = self.ahead
        reply, first = None, True
        while inbox:
            address, event = inbox.popleft()
            machine = at(address)
            if machine is None:
                self.outside[address](event)
                continue
            if ahead and type(event) in ahead:
                self._first(ahead[type(event)](event))
            touched[address] = machine
            self.events += 1
            if ticks is None:
                outcome = machine.handle(event, now)
            else:
                begun_s = ticks()
                outcome = machine.handle(event, now)
                spent_s[self._scope_of(address)] += ticks() - begun_s
            hear = hears.get(type(event))
            if hear is not None:
                hear(address, event, outcome.facts, now)
            if first:
                reply, first = outcome.reply, False
            for send in outcome.sends:
                if carrier is not None and carrier.carries(address, send.to):
                    carrier.send(address, send.to, send.message)
                else:
                    inbox.append((send.to, send.message))
        for address, machine in touched.items():
            at_s = machine.next_wakeup_s()
            if at_s is not None or address in self._due:
                self._note_wakeup(address, at_s)
        return reply

    def _first(self, news: Sequence[tuple[Address, Message]]) -> None:
        """A cascade within a cascade."""
        if news:
            later, self._inbox = self._inbox, deque(news)
            self._cascade()
            self._inbox = later

    def _scope_of(self, address: Address) -> str:
        scope = self._scope.get(address)
        if scope is None:
            scope = self._scope[address] = SCOPES[address.partition("/")[0]]
        return scope

    def _note_wakeup(self, address: Address, at_s: float | None) -> None:
        if at_s is None:
            self._due.pop(address, None)
            return
        at_s = not_before(max(at_s, self.clock.now_s))
        if self._due.get(address) != at_s:
            self._due[address] = at_s
            self.heap.put(at_s, Priority.WAKE, self._wake, (address, at_s))

    def _wake(self, due: tuple[Address, float]) -> None:
        address, at_s = due
        if self._due.get(address) != at_s:
            return  # the machine wanted something else since
        del self._due[address]
        self.wakes += 1
        self.post(address, WAKES)

    def step(self) -> None:
        """The next thing happens."""
        at_s, _, _, do, what = self.heap.take()
        self.clock.now_s = at_s
        do(what)
