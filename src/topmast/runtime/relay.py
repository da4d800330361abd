"""A relay stands for a machine of another process (ADR: remote placers).

What is sent to that machine is numbered and journalled in the commit that caused it. It is sent
again until the other end has it on its disk. What comes from there is applied in order, each
message once: the number of the last one is journalled in the commit that applies it. Questions and
their answers change no state; they pass without a number, at most once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from topmast.fast.machine import EventMachine, Fact
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import Conflict
from topmast.ports import Decision

MAY_BE_LOST: tuple[type[m.Message], ...] = (
    m.RequestRegionBids, m.RegionBids, m.RequestRegionPlans, m.RegionPlans, m.DropLeases,
    m.ScaleUpAttempt, m.Progress, m.TaskPreparing,
)  # fmt: skip
"""Questions, answers, hints: nothing durable follows from them, and silence is provided for."""

OTHER_JOURNAL = "it answers with another journal than before"
NOT_OPEN = "it is still starting"
NOT_PAIRED = "it has not connected to this side yet"
LOST_HISTORY = "a journal lacks what was exchanged: it was replaced by an old copy"
NOT_HERE = "ends here"
OTHER_VERSION = "is of another version, without a link to this one"
REMEDIES = {
    NOT_HERE: "start both sides with the name of the region in the fleet file: "
    "the queue with --placer REGION=URL, its placer with --region REGION",
    OTHER_JOURNAL: "stop the side that has a new state folder, "
    "and start it with the folder that has its old journal",
    LOST_HISTORY: "this link is severed for good: "
    "add the region under another name, and start its placer"
    " with a new state folder",
    OTHER_VERSION: "run the same version on both sides; what runs there goes on",
}
"""What to do where waiting does not help."""


class StreamOpened(Fact, frozen=True):
    """What this relay sends has a name."""

    stream: str


class Paired(Fact, frozen=True):
    """The other end is known, and no other one is accepted from now on."""

    peer: str


class Severed(Fact, frozen=True):
    """One of the two journals lacks what was exchanged: the link is closed for good."""

    why: str


class Posted(Fact, frozen=True):
    """The event is a message to the other end."""

    seq: int
    """Its number."""


class Applied(Fact, frozen=True):
    """Messages from the other end are applied."""

    seq: int
    """The last of them."""


class _State(Struct):
    stream: str = ""
    peer: str = ""
    sent: int = 0
    applied: int = 0
    severed: str = ""
    outbox: list[m.Envelope] = []
    """Sent, and not known to have arrived."""


class Relay(EventMachine):
    """Stands for a machine of another process; silent until `Recovered`: old messages go first."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.state = _State()
        self._speaks = False

    def handle(self, event: m.Message, now: float) -> Decision:
        """Handle what concerns the link itself; any other event is for the machine elsewhere."""
        if type(event) in self.handlers:
            return super().handle(event, now)
        self.now, self._event, self._facts, self._sends = now, event, [], []
        self._post(event)
        return Decision(tuple(self._facts), tuple(self._sends))

    # --- sending --------------------------------------------------------------------------------

    def _post(self, event: m.Message) -> None:
        if isinstance(event, MAY_BE_LOST):
            self.send(ids.link(self.name), m.Forward(0, event))
            return
        self.decide(Posted(self.state.sent + 1))
        if self._speaks:
            self.send(ids.link(self.name), m.Forward(self.state.sent, event))

    def _recovered(self, event: m.Recovered) -> None:
        """Say again what the other end may not have."""
        self._speaks = True
        for envelope in self.state.outbox:
            self.send(ids.link(self.name), m.Forward(envelope.seq, envelope.message))

    def _acked(self, event: m.Acked) -> None:
        """Drop what has arrived; not journalled: after a restart it is sent again, harmlessly."""
        outbox = self.state.outbox
        arrived = sum(1 for envelope in outbox if envelope.seq <= event.seq)
        del outbox[:arrived]

    # --- receiving ------------------------------------------------------------------------------

    def _deliver(self, event: m.Deliver) -> m.Receipt:
        """Apply what is next in order; ignore what was applied before, and what follows a gap."""
        state = self.state
        refused = self._refusal(event)
        if refused:
            return m.Receipt(state.stream, state.applied, refused, columns=True)
        last = state.applied
        for envelope in event.envelopes:
            if envelope.seq > last + 1:
                break
            if envelope.seq in (0, last + 1):
                self.send(event.to, envelope.message)
            last = max(last, envelope.seq)
        if last > state.applied:
            # It comes last in the cascade, and so into the commit that has all of them.
            self.send(ids.relay(self.name), m.Heard(last))
        return m.Receipt(state.stream, last, columns=True)

    def _refusal(self, event: m.Deliver) -> str:
        state = self.state
        if not state.stream:
            return NOT_OPEN
        if event.peer not in ("", state.stream) or (state.peer and event.stream != state.peer):
            return OTHER_JOURNAL
        if not state.severed and state.peer and event.applied > state.sent:
            self.decide(Severed(LOST_HISTORY))
        if not state.peer and event.envelopes:
            return NOT_PAIRED
        return state.severed

    def _heard(self, event: m.Heard) -> None:
        self.decide(Applied(event.seq))

    # --- pairing --------------------------------------------------------------------------------

    def _open(self, event: m.OpenStream) -> m.Receipt:
        if not self.state.stream:
            self.decide(StreamOpened(event.stream))
        return m.Receipt(self.state.stream, self.state.applied, self.state.severed)

    def _pair(self, event: m.Pair) -> Conflict | None:
        """Accept the other end, if its journal goes with this one.

        It may not lack what it has acknowledged, nor know what was never sent. Neither can appear
        by mistake: what is sent here only grows, and acknowledgements come in the order of the
        answers.
        """
        state = self.state
        if state.peer and event.stream != state.peer:
            return Conflict(OTHER_JOURNAL)
        first = state.outbox[0].seq if state.outbox else state.sent + 1
        if not state.severed and not first - 1 <= event.applied <= state.sent:
            self.decide(Severed(LOST_HISTORY))
        if state.severed:
            return Conflict(state.severed)
        if not state.peer:
            self.decide(Paired(event.stream))
        return None

    # --- facts ----------------------------------------------------------------------------------

    def _apply_opened(self, fact: StreamOpened, event: m.Message) -> None:
        self.state.stream = fact.stream

    def _apply_paired(self, fact: Paired, event: m.Message) -> None:
        self.state.peer = fact.peer

    def _apply_severed(self, fact: Severed, event: m.Message) -> None:
        self.state.severed = fact.why

    def _apply_posted(self, fact: Posted, event: Any) -> None:
        self.state.sent = fact.seq
        self.state.outbox.append(m.Envelope(fact.seq, event))

    def _apply_applied(self, fact: Applied, event: m.Message) -> None:
        self.state.applied = fact.seq

    # --- time and snapshots ---------------------------------------------------------------------

    def next_wakeup_s(self) -> float | None:
        """Never: the link has the clock."""
        return None

    def snapshot(self) -> bytes:
        """The counters and what has not arrived, as JSON."""
        return msgspec.json.encode(self.state)

    def restore(self, blob: bytes) -> None:
        """Take up a state written by ``snapshot``."""
        self.state = msgspec.json.decode(blob, type=_State)

    handlers: ClassVar[dict[type[m.Message], Callable[..., Any]]] = {
        m.Recovered: _recovered,
        m.Acked: _acked,
        m.Deliver: _deliver,
        m.Heard: _heard,
        m.OpenStream: _open,
        m.Pair: _pair,
    }
    appliers: ClassVar[dict[type[Fact], Callable[..., None]]] = {
        StreamOpened: _apply_opened,
        Paired: _apply_paired,
        Severed: _apply_severed,
        Posted: _apply_posted,
        Applied: _apply_applied,
    }
