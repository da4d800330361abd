"""What the queue may know of its process: the fleet placer beside it, and what is under way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from topmast.fast.fleet_placer import FleetPlacer
from topmast.model.messages import Message


class Cascade(Protocol):
    """A loop that hands an event to a machine, and then all that follows from it."""

    def under_way(self) -> Iterable[Message]:
        """The messages that wait to be handled."""
        ...

    def victims_weighed(self) -> None:
        """Regions would have been asked which attempts to stop."""
        ...


class Around:
    """As `fast.queue.Around` says, for a queue with the fleet placer in its process."""

    def __init__(self, placer: FleetPlacer, cascade: Cascade) -> None:
        self.under_way = cascade.under_way
        self.victims_weighed = cascade.victims_weighed
        self.free_milli = placer.free_milli
        self.refused_again = placer.refused_again
