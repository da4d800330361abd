"""Engines that break a promise, by which rounds of chaos show that they would see it broken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from topmast.adapters.engines.far import events as e
from topmast.adapters.engines.far.attempts import Attempt, Place
from topmast.adapters.engines.far.launcher import Launcher, Listed, Part
from topmast.adapters.engines.far.protocol import Protocol
from topmast.model import messages as m


class Credulous(Protocol):
    """Grants every claim of a runner; below it each part is submitted twice."""

    def _find(self, event: Any) -> tuple[Attempt | None, Place | None, int]:
        found = self.attempts.part(event.part)
        place = found[1].places.get(event.host) if found else None
        if found is None or place is None:
            return None, None, e.OVER
        return found[0], place, e.GRANTED


class Hasty(Protocol):
    """Takes what was silent from one look to the next for dead."""

    def _looked(self, event: e.Looked) -> None:
        for attempt, part in list(self.attempts.open_parts()):
            for place in part.running:
                if place.heard_s < self.hosts.looked_s:
                    self._lose(attempt, place, "its runner was silent at a look")
        super()._looked(event)


class Forgetful(Protocol):
    """Never tells the end of the first rank."""

    def _say(self, *messages: m.Message) -> None:
        ends = (m.TaskEvicted, m.TaskLost, m.TaskExited)
        super()._say(*(one for one in messages if not isinstance(one, ends) or one.rank > 0))


PROTOCOLS: Mapping[str, type[Protocol]] = {
    "": Protocol, "credulous": Credulous, "hasty": Hasty, "forgetful": Forgetful,
}  # fmt: skip
SEEN = [
    ("credulous", "bodies_twice"),
    ("hasty", "told_dead_while_alive"),
    ("forgetful", "lost_acknowledged"),
]
"""What of the result must not be 0 with which of them."""


def careless(launcher: type[Launcher]) -> type[Launcher]:
    """A launcher that submits each part twice, under two names, and lets both run."""

    class Careless(launcher):  # type: ignore[misc, valid-type]
        def submit(self, part: Part) -> str:
            super().submit(replace(part, name=f"{part.name}x", hold=False))
            id: str = super().submit(replace(part, hold=False))
            return id

        def release(self, listed: Sequence[Listed]) -> None:
            others = {f"{one.name}x" for one in listed}
            super().release([*listed, *(one for one in self.list() if one.name in others)])

    return Careless
