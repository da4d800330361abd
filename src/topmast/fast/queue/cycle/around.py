"""What the queue may know of its own process beside what it is told: a port."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from topmast.model import messages as m


class Around(Protocol):
    """What the queue may know of its own process beside what it is told."""

    def under_way(self) -> Iterable[m.Message]:
        """The messages that wait to be handled, besides those that the queue is about to send."""
        ...

    def free_milli(self, region: str) -> int | None:
        """GPUs of a region that nothing holds, in thousandths; None: not known.

        O(1) unless something changed there.
        """
        ...

    def refused_again(
        self, placement_class: int, models: tuple[int, ...] | None, since: int, *, stops: bool
    ) -> bool:
        """A class that was refused before is refused again for the same; False: it is not known.

        ``since``: the request that was refused. ``stops``: its jobs might have stopped others.
        O(1).
        """
        ...

    def victims_weighed(self) -> None:
        """Regions would have been asked which jobs may be stopped: what they do then is due."""
        ...
