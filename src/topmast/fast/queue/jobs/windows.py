"""Which windows there are, and which hosts a job may not start on because of them."""

from __future__ import annotations

import math
from collections.abc import Iterable

from msgspec import UNSET, Struct, UnsetType

from topmast.model.fleet import Fleet
from topmast.model.window import Stay, Window

STEPS_S = ((7_200.0, 60.0), (86_400.0, 600.0), (math.inf, 3_600.0))
"""Times up to the first are rounded up to the second: jobs of one class run equally long."""


class KnownWindow(Struct):
    """A window as a snapshot has it."""

    window: Window
    begun: bool | UnsetType = UNSET
    """Whether its time has come; absent: not yet."""


class Windows:
    """All windows, by name. Without one, nothing here costs anything."""

    def __init__(self, known: dict[str, KnownWindow] | None = None, next_number: int = 1) -> None:
        self.known = known or {}
        self.next_number = next_number
        self._fleet = Fleet(())
        self._hosts: dict[tuple[str, ...], tuple[str, ...]] = {}
        """By windows, the hosts of all of them; counted when asked for."""

    def configure(self, fleet: Fleet) -> None:
        """Hosts came, went, or belong to other clusters."""
        self._fleet, self._hosts = fleet, {}

    def set(self, window: Window) -> None:
        """Take up a new window."""
        self.known[window.name] = KnownWindow(window)
        self.next_number += 1
        self._hosts = {}

    def end(self, name: str) -> None:
        """A window is no more."""
        self.known.pop(name, None)
        self._hosts = {}

    def stay(self, lasts_s: float, tenants: Iterable[str]) -> Stay:
        """What counts of a job that would run so long, of a tenant and those above it."""
        above = frozenset(tenants)
        exempt = tuple(
            name for name, one in self.known.items() if not above.isdisjoint(one.window.tenants)
        )
        step_s = next(step_s for most_s, step_s in STEPS_S if lasts_s <= most_s)
        return Stay(math.ceil(lasts_s / step_s) * step_s, exempt)

    def reserved(self, stay: Stay, now: float) -> tuple[str, ...]:
        """The hosts where a job may not start now. O(windows), or O(hosts) for a new answer."""
        names = tuple(
            name
            for name, one in self.known.items()
            if name not in stay.exempt and now + stay.lasts_s > one.window.from_s
        )
        if names not in self._hosts:
            windows = [self.known[name].window for name in names]
            every = [host for window in windows for host in window.hosts_in(self._fleet)]
            self._hosts[names] = tuple(dict.fromkeys(every))
        return self._hosts[names]
