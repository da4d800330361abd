"""What the scheduler says of the hosts of a far cluster, and the news it makes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from topmast.adapters.engines.far.launcher import Host
from topmast.model import messages as m

MISSES = 2
"""In so many looks in a row a host must not answer before that counts."""
REFUSED_S = 60.0
"""A cluster that refuses everything, or a host that cannot be prepared, gets no work for so long;
twice that at the next time.
"""
REFUSED_MOST_S = 960.0
NO_ANSWER = "the scheduler's daemon on the host does not answer"


@dataclass
class _Pause:
    """No new work for a while, each time for longer, until something is taken again."""

    why: str = ""
    """Empty: there is none."""
    length_s: float = 0.0
    """0: what came last was taken."""
    until_s: float = 0.0
    at_s: float = 0.0
    """When it was last found to be needed."""

    def begin(self, why: str, now_s: float) -> None:
        """It is needed; what is found while it lasts does not make it longer."""
        self.at_s = now_s
        if now_s >= self.until_s:
            self.length_s = min(max(2 * self.length_s, REFUSED_S), REFUSED_MOST_S)
            self.until_s = now_s + self.length_s
        self.why = f"{why}; it is tried again after {self.length_s:g} s"

    def pass_time(self, now_s: float) -> None:
        """Once it is over, one more try decides."""
        if now_s >= self.until_s:
            self.why = ""

    def end(self, began_s: float) -> None:
        """What began then was taken. What came before the pause proves nothing."""
        if began_s > self.at_s:
            self.why, self.length_s, self.until_s = "", 0.0, 0.0


@dataclass
class _Seen:
    """One configured host."""

    up: bool | None = None
    """None: nothing has been told of it."""
    misses: int = 0
    answers_since_s: float | None = None
    """On the monotonic clock; None: it did not answer at the last look."""
    shut: str = ""
    """Why the scheduler itself gave it no new work at the last look; empty: it does."""
    closed: str = ""
    """Why it takes no new work, as told; empty: it does."""
    pause: _Pause = field(default_factory=_Pause)
    """After a runner could not prepare it."""


class Hosts:
    """The configured hosts, in their order. A host is *down* once nothing can live there."""

    DOWN = NO_ANSWER

    def __init__(self, names: tuple[str, ...]) -> None:
        self._seen = {name: _Seen() for name in names}
        self._refusal = _Pause()
        """After the scheduler refused what it would refuse in any job."""
        self.looked_s = -math.inf
        """When the last complete look arrived; before the first one, nothing is trusted."""
        self.failure = ""
        """Why a question since then had no answer; empty: none failed."""

    def set_names(self, names: tuple[str, ...]) -> list[m.Message]:
        """Have these and no others from now on; the next look tells of the new ones."""
        self._seen = {name: self._seen.get(name, _Seen()) for name in names}
        return [m.HostUp(name) for name, seen in self._seen.items() if seen.up]

    def unfit(self, names: Iterable[str]) -> str:
        """Why nothing can start on one of these hosts; empty: it can."""
        for name in names:
            if name not in self._seen:
                return f"this cluster has no host {name!r}"
            if self._seen[name].up is False:
                return f"host {name} is down: {NO_ANSWER}"
        return ""

    def shut(self, names: Iterable[str]) -> str:
        """Why what waits for these hosts may wait for long, as the last look showed; empty: no."""
        seen = ((name, self._seen[name].shut) for name in names if name in self._seen)
        said = (f"host {name} was closed before it started: {why}" for name, why in seen if why)
        return next(said, "")

    def look(self, hosts: tuple[Host, ...], now_s: float) -> list[m.Message]:
        """Take up a complete answer."""
        self.looked_s, self.failure = now_s, ""
        found = {host.name: host for host in hosts}
        self._refusal.pass_time(now_s)
        news: list[m.Message] = []
        for name, seen in self._seen.items():
            seen.pause.pass_time(now_s)
            host = found.get(name)
            answers = host is not None and host.answers
            if not answers:
                seen.answers_since_s = None
            elif seen.answers_since_s is None:
                seen.answers_since_s = now_s
            seen.misses = 0 if answers else seen.misses + 1
            closed = host.closed if host is not None else "the scheduler does not know the host"
            seen.shut = closed
            if answers and not seen.up:
                seen.up = True
                news.append(m.HostUp(name))
            if not answers and seen.misses >= MISSES:
                closed = closed or NO_ANSWER
            elif not answers:
                closed = closed or seen.closed
            news += self._close(name, seen, closed or self._refusal.why or seen.pause.why)
        return news

    def refuse(self, why: str, now_s: float) -> list[m.Message]:
        """Nothing that is submitted is taken: no host takes new work, until it is tried again."""
        self._refusal.begin(f"the scheduler refuses whatever is submitted: {why}", now_s)
        news: list[m.Message] = []
        for name, seen in self._seen.items():
            news += self._close(name, seen, seen.closed or self._refusal.why)
        return news

    def accept(self, submitted_s: float) -> None:
        """What was submitted then is taken: the next look opens what was closed for refusals."""
        self._refusal.end(submitted_s)

    def unprepared(self, name: str, why: str, now_s: float) -> list[m.Message]:
        """A runner could not prepare the host: it takes no new work, until it is tried again."""
        seen = self._seen.get(name)
        if seen is None:
            return []
        seen.pause.begin(why, now_s)
        return self._close(name, seen, seen.closed or seen.pause.why)

    def prepared(self, name: str, claimed_s: float) -> None:
        """A runner that claimed then could: the next look opens the host, if that closed it."""
        if name in self._seen:
            self._seen[name].pause.end(claimed_s)

    def look_failed(self, why: str) -> None:
        """A look had no complete answer: `trust` says when that counts.

        A daemon may have been silent meanwhile, and be back at the next look.
        """
        self.failure = why
        for seen in self._seen.values():
            seen.answers_since_s = None

    def unsure(self, why: str) -> None:
        """A submission had no answer, which may be the first sign; of looks more is known."""
        self.failure = self.failure or why

    def trust(self, now_s: float, patience_s: float) -> list[m.Message]:
        """If no complete answer came for so long, and a question failed, no host takes new work."""
        if not self.failure or now_s - self.looked_s <= patience_s:
            return []
        closed = f"the scheduler gives no complete answer: {self.failure}"
        return [n for name, seen in self._seen.items() for n in self._close(name, seen, closed)]

    def _close(self, name: str, seen: _Seen, closed: str) -> list[m.Message]:
        before, seen.closed = seen.closed, closed
        if closed == before:
            return []
        return [m.HostClosed(name, closed) if closed else m.HostOpened(name)]

    def answered_since(self, name: str, began_s: float) -> bool:
        """Whether the scheduler's daemon on a host answered at all looks since ``began_s``.

        One that comes back needs a while to end what its scheduler takes for ended.
        """
        since_s = self._seen[name].answers_since_s if name in self._seen else None
        return since_s is not None and since_s <= began_s

    def gone(self) -> list[str]:
        """Hosts that do not answer, and were not told to be down."""
        return [
            n for n, seen in self._seen.items() if seen.misses >= MISSES and seen.up is not False
        ]

    def down(self, name: str) -> m.HostDown:
        """Nothing lives there any more: the news that say so."""
        self._seen[name].up = False
        return m.HostDown(name, NO_ANSWER)

    def down_names(self) -> tuple[str, ...]:
        """Those that were told to be down."""
        return tuple(name for name, seen in self._seen.items() if seen.up is False)

    def closed(self) -> dict[str, str]:
        """Why which hosts take no new work."""
        return {name: seen.closed for name, seen in self._seen.items() if seen.closed}
