"""The loop under a virtual clock: machines hear what happens, and what follows from it, in memory.

Like the live loop it hands an event to a machine and then all that it causes to the machines of the
process; unlike it, it keeps no journal and takes the time from the heap. After a cascade only the
machines that took part are asked when they want to be woken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from topmast.model.ids import Address
from topmast.model.messages import LaunchGang, LaunchGangs, Message, Send, Wake
from topmast.ports import Machine
from topmast.runtime.around import Around
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
"""The scope that a machine's time counts for, by the kind of its address."""


Hear = Callable[[Address, Any, Sequence[Struct], float], None]
"""Hears that a machine took a message of one type, what it decided, and when."""


def _with_gangs(hears: Mapping[type[Message], Hear]) -> Mapping[type[Message], Hear]:
    """What listens to launches of gangs hears of several as of one after the other."""
    hear = hears.get(LaunchGang)
    if hear is None:
        return hears

    def each(to: Address, event: LaunchGangs, facts: Sequence[Struct], now: float) -> None:
        if facts:
            for gang in event.one_by_one():
                hear(to, gang, facts, now)

    return {**hears, LaunchGangs: each}


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

    ``hears``: listeners, by type of message. ``ticks`` measures what each scope takes.
    """

    def __init__(
        self,
        machines: Machines,
        clock: VirtualClock,
        heap: EventHeap,
        hears: Mapping[type[Message], Hear],
        ticks: Ticks = lambda: 0.0,
    ) -> None:
        self.machines = machines
        self.clock = clock
        self.heap = heap
        self.outside: dict[Address, Outside] = {}
        self.carrier: Carrier | None = None
        self.ahead: dict[type[Message], Ahead] = {}
        self.before_victims: Callable[[], object] = bool
        """Called where regions would choose attempts to stop, if there were enough."""
        self.note: Hear | None = None
        """Hears of every message that a machine decided something about, in order."""
        self.events = 0
        """Messages handled."""
        self.wakes = 0
        self.spent_s: dict[str, float] = dict.fromkeys(SCOPES.values(), 0.0)
        self._hears = _with_gangs(hears)
        self._ticks = ticks
        self._due: dict[Address, float] = {}
        self._scope: dict[Address, str] = {}
        self._inbox: deque[Send] = deque()
        self._running = False
        machines.queue.look_around(Around(machines.fleet_placer, self))

    def under_way(self) -> Iterable[Message]:
        """The messages that wait to be handled."""
        return [send.message for send in self._inbox]

    def victims_weighed(self) -> None:
        """Regions would have been asked which attempts to stop."""
        self.before_victims()

    def post(self, to: Address, messages: Sequence[Message]) -> Any:
        """Hand messages to a machine now, with all that follows; returns the answer to the first.

        During a cascade they join it, last.
        """
        for message in messages:
            self._inbox.append(Send(to, message))
        if self._running or not messages:
            return None
        self._running = True
        try:
            return self._cascade()
        finally:
            self._running = False

    def _cascade(self) -> Any:
        """Deliver what is in the inbox and all that follows. It runs for every message of a run,
        so it is one plain loop.
        """
        now, inbox, known, outside = (
            self.clock.now_s,
            self._inbox,
            self.machines.known,
            self.outside,
        )
        take, hears, carrier, ticks = inbox.popleft, self._hears, self.carrier, self._ticks
        touched: dict[Address, Machine] = {}
        ahead, note = self.ahead, self.note
        scopes, spent_s = self._scope, self.spent_s
        reply, first, handled = None, True, 0
        while inbox:
            sent = take()
            address, event = sent.to, sent.message
            machine = known.get(address)
            if machine is None:
                if address in outside:
                    outside[address](event)
                    continue
                machine = self._machine_at(address)
            kind = type(event)
            if kind in ahead:
                self._first(ahead[kind](event))
            touched[address] = machine
            handled += 1
            begun_s = ticks()
            outcome = machine.handle(event, now)
            spent_s[scopes.get(address) or self._scope_of(address)] += ticks() - begun_s
            facts, sends = outcome.facts, outcome.sends
            if note is not None and facts:
                note(address, event, facts, now)
            if kind in hears:
                hears[kind](address, event, facts, now)
            if first:
                reply, first = outcome.reply, False
            if carrier is not None:
                self._carry(carrier, address, sends)
            elif sends:
                inbox.extend(sends)
        self.events += handled
        self._look_at_clocks(touched)
        return reply

    def _machine_at(self, address: Address) -> Machine:
        """One that was not spoken to yet."""
        machine = self.machines.at(address)
        if machine is None:
            raise KeyError(address)
        return machine

    def _carry(self, carrier: Carrier, sender: Address, sends: Sequence[Send]) -> None:
        for send in sends:
            if carrier.carries(sender, send.to):
                carrier.send(sender, send.to, send.message)
            else:
                self._inbox.append(send)

    def _look_at_clocks(self, touched: Mapping[Address, Machine]) -> None:
        """Note when machines that took part want to be woken."""
        due = self._due
        for address, machine in touched.items():
            at_s = machine.next_wakeup_s()
            if at_s is not None or address in due:
                self._note_wakeup(address, at_s)

    def _first(self, news: Sequence[tuple[Address, Message]]) -> None:
        """A cascade within a cascade."""
        if news:
            later, self._inbox = self._inbox, deque(Send(to, message) for to, message in news)
            self._cascade()
            self._inbox = later

    def _scope_of(self, address: Address) -> str:
        """The scope of an address that was not spoken to yet."""
        scope = self._scope[address] = SCOPES[address.partition("/")[0]]
        return scope

    def _note_wakeup(self, address: Address, at_s: float | None) -> None:
        if at_s is None:
            self._due.pop(address, None)
            return
        now = self.clock.now_s
        at_s = not_before(at_s) if at_s > now else now
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
