"""Whether agents are halted: while one is, its host takes no new work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from topmast.adapters.engines.closings import Closings
from topmast.adapters.engines.local.hosts import AgentState, Host
from topmast.model.messages import HostClosed, HostOpened

LOOK_S = 2.0
REST = 50.0
"""A look is followed by at least so many times what it took."""
_LIVING = (AgentState.CONNECTING, AgentState.UP)


class Halts:
    """Closes a host while its agent is halted by a signal or a debugger.

    What runs there runs on, but nothing would start. Belongs to the engine's thread.
    """

    def __init__(
        self, hosts: Callable[[], Iterable[Host]], closings: Closings, is_shut: Callable[[], bool]
    ) -> None:
        """``is_shut``: all hosts are closed for another reason, and are opened when that ends."""
        self._hosts = hosts
        self._closings = closings
        self._is_shut = is_shut
        self.closed: dict[str, str] = {}
        """Why which hosts take no new work."""
        self.next_s: float | None = None
        """When to look again, by the monotonic clock; None: no agent lives."""

    def tick(self) -> None:
        """Look at the agents if it is time to. O(hosts)."""
        begun_s = time.monotonic()
        if self.next_s is not None and self.next_s > begun_s:
            return
        living = [host for host in self._hosts() if host.state in _LIVING]
        before, self.closed = self.closed, {}
        for host in living:
            pid, is_halted = host.process or (0, False)
            if is_halted:
                self.closed[host.name] = (
                    f"its agent is halted, by a signal or a debugger (kill -CONT {pid} lets it go "
                    "on)"
                )
        now_s = time.monotonic()
        self.next_s = now_s + max(LOOK_S, REST * (now_s - begun_s)) if living else None
        for name, why in self.closed.items():
            if name not in before:
                self._closings.post(HostClosed(name, why))
        for name in before:
            if name not in self.closed and not self._is_shut():
                self._closings.post(HostOpened(name))

    def tell(self) -> None:
        """Say it again of all hosts, also of new ones."""
        self.closed, self.next_s = {}, None
        self.tick()
