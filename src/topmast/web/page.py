"""What a page is."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from itertools import zip_longest
from typing import Any
from urllib.parse import urlencode

from fastapi.responses import Response
from msgspec import Struct

from topmast.model.access import Caller, Permission
from topmast.model.files.fields import one_of
from topmast.service.service import Service


class Replay(Struct, frozen=True):
    """The moment that all pages show, where they show the past."""

    at_s: float
    first_s: float
    last_s: float
    """The first and the last moment that can be shown."""
    place: str
    """The name of the state folder."""
    stops: tuple[float, ...]
    """The times of the slider, ascending: close to one another where much happened."""

    @property
    def stop(self) -> int:
        """The last stop up to the moment."""
        return max(0, bisect_right(self.stops, self.at_s) - 1)


class Standing(Struct, frozen=True):
    """A server that stands by, where it shows the pages."""

    leader: str
    """The URL of the leader; empty while none is known."""
    age_s: float
    """How long ago it had all that the leader had."""


MOST_ROWS = 200
"""Of a table, on one page."""


class Part(Struct, frozen=True):
    """The rows of a long table that a page shows, and the ways to the others."""

    rows: Sequence[Any]
    first: int
    """How many come before them."""
    total: int
    back: str
    onward: str
    """The addresses of the rows before and after them; empty: there are none."""


class Ask(Struct, frozen=True):
    """A request for a page."""

    service: Service
    caller: Caller
    path: Mapping[str, str]
    """The variable parts of the path, by name."""
    query: Mapping[str, str]
    """What the URL says behind the question mark: the filters; of a repeated name the last."""
    every: Sequence[tuple[str, str]] = ()
    """The same, of repeated names all."""
    alone: bool = False
    """Whether only the content is asked for, by a page that is open already."""

    def filters(self, *names: str) -> dict[str, str]:
        """What the URL says of some names; empty where it says nothing."""
        return {name: self.query.get(name, "").strip() for name in names}

    def rows(self, *names: str) -> list[tuple[str, ...]]:
        """What the URL says of names that it repeats together: a row for each time."""
        columns = [[text.strip() for key, text in self.every if key == name] for name in names]
        return list(zip_longest(*columns, fillvalue=""))

    def part(self, rows: Sequence[Any], name: str = "from", most: int = MOST_ROWS) -> Part:
        """The rows from the one on that the URL names; of too few rows, the last ones."""
        digits = self.query.get(name, "")
        known = digits.isascii() and digits.isdigit() and len(digits) < 16
        last = max(0, len(rows) - 1) // most * most
        first = min(int(digits), last) if known else 0
        after = first + most
        return Part(
            rows[first:after], first, len(rows),
            self.link(self.query, **{name: str(max(0, first - most) or "")}) if first else "",
            self.link(self.query, **{name: str(after)}) if after < len(rows) else "",
        )  # fmt: skip

    def link(self, given: Mapping[str, str], **changes: str) -> str:
        """The address of the same page with other filters; empty ones are left out."""
        kept = {name: value for name, value in {**given, **changes}.items() if value}
        return f"?{urlencode(kept)}" if kept else "?"


def matches_nothing(
    given: Mapping[str, str], known: Mapping[str, tuple[str, Collection[str]]]
) -> list[str]:
    """A sentence on each filter that names what there is not, with what is near.

    ``known``: by filter, what it names, and all that the reader may see of these.
    """
    found = []
    for name, (what, names) in known.items():
        if given[name] and given[name] not in names:
            near = one_of(given[name], sorted(names))
            found.append(f"There is no {what} '{given[name][:40]}'" + (near and f": {near}"))
    return found


View = Callable[[Ask], Awaitable[dict[str, Any] | Response]]
"""What a template shows, or another answer. It raises what the service raises."""


class Page(Struct, frozen=True):
    """A page of the dashboard: the value ``PAGE`` of a module below ``pages/``."""

    path: str
    title: str
    """Its name in the navigation. A view that gives a ``title`` names the window otherwise."""
    permission: Permission
    """What it takes to open it; the service checks each tenant besides, as for REST."""
    template: str
    """A file of ``templates/``, which extends the variable ``frame``."""
    view: View
    place: int | None = None
    """Its place in the navigation, from left to right; None: it is not in it."""
    follows: str = ""
    """The events that draw it anew: ``all``, a list of kinds, or ``job`` for those of the job that
    the path names; empty: none."""
    own: bool = False
    """Whether what it shows depends on which caller asks: then no two share what is drawn."""
