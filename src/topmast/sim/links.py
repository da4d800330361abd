"""Links between the queue and the placers: latency, jitter and loss, from seeded streams.

Messages of one direction of one link keep their order. Delivery between processes is at least
once, so a lost message costs a timeout and is sent again; but a question about plans, and its
answer, are simply lost: the queue passes over a region that stays silent.
"""

from __future__ import annotations

from topmast.model import ids
from topmast.model.ids import Address
from topmast.model.messages import Message, RegionBids, RequestRegionBids
from topmast.sim.clock import VirtualClock
from topmast.sim.heap import EventHeap, Priority
from topmast.sim.loop import Loop
from topmast.sim.settings import Settings
from topmast.sim.streams import Streams

RESEND_S = 1.0
"""How long a sender waits for an acknowledgement before it sends again, beside the way and back."""
HOME = (ids.QUEUE, ids.FLEET_PLACER)
PLACER = "placer/"


class Links:
    """Carries what goes between the queue and the placers."""

    def __init__(
        self, settings: Settings, streams: Streams, clock: VirtualClock, heap: EventHeap, loop: Loop
    ) -> None:
        self._settings = settings
        self._streams = streams
        self._clock = clock
        self._heap = heap
        self._loop = loop
        self._last_s: dict[tuple[Address, Address], float] = {}
        self.in_flight = 0
        self.lost = 0

    @staticmethod
    def wanted(settings: Settings) -> bool:
        """Whether the settings make these links other than perfect."""
        return bool(settings.latency_s or settings.jitter_s or settings.loss)

    def carries(self, sender: Address, to: Address) -> bool:
        """Between the queue (or its desk) and a placer, whichever way."""
        return sender.startswith(PLACER) != to.startswith(PLACER) and (sender in HOME or to in HOME)

    def send(self, sender: Address, to: Address, message: Message) -> None:
        """Deliver after the latency; what is lost is sent again, or not."""
        settings = self._settings
        region = (to if sender in HOME else sender).removeprefix(PLACER)
        chance = self._streams.of(f"link/{region}")
        takes_s = self._way_s(region)
        while settings.loss and chance.random() < settings.loss:
            self.lost += 1
            if isinstance(message, RequestRegionBids | RegionBids):
                return
            takes_s += RESEND_S + 2 * settings.latency_s
        key = (sender, to)
        at_s = max(self._clock.now_s + takes_s, self._last_s.get(key, 0.0))
        self._last_s[key] = at_s
        self.in_flight += 1
        self._heap.put(at_s, Priority.NEWS, self._deliver, (to, message))

    def _way_s(self, region: str) -> float:
        settings = self._settings
        if not settings.jitter_s:
            return settings.latency_s
        jitter = self._streams.of(f"jitter/{region}")
        return settings.latency_s + jitter.expovariate(1.0 / settings.jitter_s)

    def _deliver(self, mail: tuple[Address, Message]) -> None:
        self.in_flight -= 1
        to, message = mail
        self._loop.post(to, (message,))
