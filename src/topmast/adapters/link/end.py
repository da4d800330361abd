"""One end of a link: a thread that sends what its relay hands it, one request after the other.

Envelopes that must arrive are kept until the other end has them on its disk. They are sent again,
in order, whenever a request fails. Those that may be lost go along in the same order, once. While
there is nothing to send, an empty batch every second tells whether the other end is there.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

import msgspec
import structlog
from msgspec import Struct

from topmast.adapters.backoff import Backoff
from topmast.adapters.link.peer import NotUnderstood, Peer
from topmast.adapters.link.wire import Batch, decode_receipt, encode_batch, encode_envelope
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import Conflict, TopmastError, Unavailable
from topmast.runtime.relay import REMEDIES

HEARTBEAT_S = 1.0
SILENCE_S = 10.0
"""The other end sends something every second; after this long without, it does not reach us."""
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
OTHER_VERSION_PAUSE_S = 30.0
"""An end of another version takes the empty batch of the next trial, and refuses the next message
again: the link would come and go each second."""
CLOSING_S = 2.0
ENVELOPES_PER_BATCH = 1_000
BATCH_BYTES = 4 * 1024 * 1024

log = structlog.get_logger(__name__)


class Inbox(Protocol):
    """What an end needs of the runtime."""

    def post(self, to: str, message: m.Message) -> None:
        """Hand a message to a machine."""
        ...

    def call(self, to: str, message: m.Message) -> Future[Any]:
        """Hand a message to a machine; the future has its answer once it is durable."""
        ...


class _Waiting(Struct):
    """An envelope on its way, as JSON already."""

    seq: int
    data: bytes


class LinkEnd:
    """The end of a link here, between the relay ``name`` and the machine ``to`` that it serves.

    ``changed`` is called, from this end's thread, when the other end can be reached and when it
    cannot, and why; also when it turns out to be of another version. At the start it counts as
    unreachable.
    """

    def __init__(
        self,
        name: str,
        to: ids.Address,
        peer: Peer,
        inbox: Inbox,
        changed: Callable[[bool, str], None],
        leader: int = 0,
    ) -> None:
        """``leader``: the epoch of this process, which goes along with what it sends."""
        self.name = name
        self.to = to
        self.peer = peer
        self.up = False
        self.why = "not reached since this process started"
        self.columns = False
        """Whether the other end takes and makes plans in columns."""
        self._inbox = inbox
        self._changed = changed
        self._leader = leader
        self._lock = threading.Lock()
        self._bell = threading.Event()
        self._waiting: deque[_Waiting] = deque()
        self._stream = ""
        self._peer_stream = ""
        self._applied = 0
        self._heard_s = 0.0
        self._closed = False
        self._thread: threading.Thread | None = None

    # --- any thread -----------------------------------------------------------------------------

    def open(self, stream: str) -> None:
        """Begin. ``stream`` names what is sent from here, if the journal has no name for it yet."""
        self._heard_s = time.monotonic()
        opened = self._inbox.call(ids.relay(self.name), m.OpenStream(stream))
        self._thread = threading.Thread(
            target=self._run, args=(opened,), name=f"link {self.name}", daemon=True
        )
        self._thread.start()

    def carry(self, order: m.Forward) -> None:
        """Take a message on its way; one that may be lost is lost while the link is down."""
        if not order.seq and not self.up:
            return
        envelope = _Waiting(order.seq, encode_envelope(order.seq, order.message))
        with self._lock:
            self._waiting.append(envelope)
        self._bell.set()

    def receive(self, batch: Batch) -> Future[m.Receipt]:
        """Take a batch from the other end; its receipt comes once it is on the disk."""
        self._heard_s = time.monotonic()
        relay = ids.relay(self.name)
        order = m.Deliver(self.to, batch.stream, batch.peer, batch.applied, batch.envelopes)
        receipt: Future[m.Receipt] = self._inbox.call(relay, order)
        receipt.add_done_callback(self._note_applied)
        return receipt

    def _note_applied(self, receipt: Future[m.Receipt]) -> None:
        if not receipt.cancelled() and receipt.exception() is None:
            with self._lock:
                self._applied = max(self._applied, receipt.result().applied)

    def close(self) -> None:
        """Send no more; what waits is in the journal."""
        self._closed = True
        self._bell.set()
        if self._thread is not None:
            self._thread.join(CLOSING_S)
        self.peer.close()

    # --- the thread of this end -----------------------------------------------------------------

    def _run(self, opened: Future[m.Receipt]) -> None:
        own = opened.result()
        self._stream = own.stream
        with self._lock:
            self._applied = max(self._applied, own.applied)
        try:
            self._go_on()
        except Exception:
            if not self._closed:  # else its connections were closed under it
                raise

    def _go_on(self) -> None:
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while not self._closed:
            try:
                self._exchange()
            except TopmastError as error:
                self._note(False, str(error))
                self._drop_what_may_be_lost()
                other_version = isinstance(error, NotUnderstood)
                self._sleep(OTHER_VERSION_PAUSE_S if other_version else backoff.take())
            else:
                backoff.reset()
                self._bell.wait(HEARTBEAT_S)
                self._bell.clear()

    def _sleep(self, pause_s: float) -> None:
        """Pause, unless it is time to close."""
        until_s = time.monotonic() + pause_s
        while not self._closed and (left_s := until_s - time.monotonic()) > 0:
            self._bell.wait(left_s)
            self._bell.clear()

    def _exchange(self) -> None:
        """Send until nothing waits; the first batch of all, and after a failure, is empty.

        Where messages wait, the link is up once some of them are taken: a side that does not know
        this one yet, or does not know what they say, takes an empty batch all the same.
        """
        envelopes = self._next_batch() if self.up else []
        while not self._closed:
            receipt = self._send(envelopes)
            self._settle(envelopes, receipt)
            silent = time.monotonic() - self._heard_s > SILENCE_S
            if silent:
                raise Unavailable(f"{self.peer.url} answers, but does not reach this side")
            waiting = self._next_batch()
            if envelopes or not waiting:
                self._note(True, "")
            if not waiting:
                return
            envelopes = waiting

    def _next_batch(self) -> list[_Waiting]:
        with self._lock:
            batch: list[_Waiting] = []
            size = 0
            for envelope in self._waiting:
                if batch and (len(batch) == ENVELOPES_PER_BATCH or size > BATCH_BYTES):
                    break
                batch.append(envelope)
                size += len(envelope.data)
            return batch

    def _send(self, envelopes: list[_Waiting]) -> m.Receipt:
        with self._lock:
            applied = self._applied
        data = [envelope.data for envelope in envelopes]
        batch = encode_batch(self._stream, self._peer_stream, applied, data, self._leader)
        answer = self.peer.post(batch)
        try:
            receipt = decode_receipt(answer)
        except msgspec.DecodeError:
            raise Unavailable(f"{self.peer.url} is not a Topmast server of this version") from None
        if receipt.refused:
            raise Conflict(f"{self.peer.url} refuses: {receipt.refused}")
        return receipt

    def _settle(self, envelopes: list[_Waiting], receipt: m.Receipt) -> None:
        """Make sure that it is the one we know, and forget what it has."""
        relay = ids.relay(self.name)
        back = not self.up or receipt.stream != self._peer_stream
        if back:
            self._inbox.call(relay, m.Pair(receipt.stream, receipt.applied)).result()
            self._peer_stream = receipt.stream
        if receipt.columns != self.columns:
            self.columns = receipt.columns
            if self.up:
                self._changed(True, self.why)
        left = [envelope for envelope in envelopes if envelope.seq > receipt.applied]
        with self._lock:
            for _ in envelopes:
                self._waiting.popleft()
            self._waiting.extendleft(reversed(left))
            if back:
                arrived = receipt.applied
                self._waiting = deque(p for p in self._waiting if not 0 < p.seq <= arrived)
        self._inbox.post(relay, m.Acked(receipt.applied))
        if left and len(left) == sum(1 for envelope in envelopes if envelope.seq):
            raise Unavailable(f"{self.peer.url} does not accept the next message")

    def _drop_what_may_be_lost(self) -> None:
        with self._lock:
            self._waiting = deque(envelope for envelope in self._waiting if envelope.seq)

    def _note(self, up: bool, why: str) -> None:
        if (self.up, self.why) == (up, why):
            return
        turned = self.up != up
        self.up, self.why = up, why
        remedy = next((REMEDIES[last] for last in REMEDIES if why.endswith(last)), "")
        if remedy:  # each time that it changes: it may be so from the start
            log.error("the link is refused", link=self.name, why=why, remedy=remedy)
        elif turned:
            log.info("the link is up" if up else "the link is down", link=self.name, why=why)
        self._changed(up, why)
