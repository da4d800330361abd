"""One gang that a region has no place for, and whether it would have one in another world.

Explanations change one thing and look again. Only whether there is a place counts, not which is
best, so that a trial costs the sums over the hosts and no scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from topmast.fast.region.inventory.allocation import Allocation
from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.preemption.price import eligible_victims
from topmast.fast.region.preemption.search import PreemptiveSearch
from topmast.fast.region.search.domains import Space
from topmast.model.job import Band
from topmast.model.plan import PlacementRequest, Preempt
from topmast.model.reason import Change, ChangeKind
from topmast.model.units import format_duration


class Spot(Struct, frozen=True):
    """Where a gang would sit."""

    region: str
    cluster: str
    preempting: bool

    def __str__(self) -> str:
        how = " if other jobs are preempted" if self.preempting else ""
        return f"there is room in {self.region}/{self.cluster}{how}"


class Trials:
    """The gang and the region. ``unheld``: the columns with the room kept for another gang, if any.
    ``ends``: when jobs will be over by a forecast, if there is one.

    Complexities below are for H hosts with their slots and A attempts.
    """

    def __init__(
        self,
        search: PreemptiveSearch,
        ask: PlacementRequest,
        *,
        preempt: bool,
        unheld: Columns | None = None,
        ends: Mapping[str, float] | None = None,
    ) -> None:
        self.search = search
        self.ask = ask
        self.preempt = preempt and ask.band > Band.OPPORTUNISTIC
        self.unheld = unheld
        self.ends = ends

    @property
    def _excluded(self) -> list[int]:
        return self.search.columns.excluded(self.ask)

    @cached_property
    def space(self) -> Space:
        """The region as it is."""
        return Space(self.search.columns, self._excluded)

    def place(self, ask: PlacementRequest) -> Spot | None:
        """Where a gang has a place as things are: on free GPUs, else by preemption. O(H)."""
        free = self.spot(self.space, ask)
        if free is not None or not self.preempt:
            return free
        return self.spot(self.without_victims, ask, preempting=True)

    def holds(self, columns: Columns, *, preempting: bool = False) -> Spot | None:
        """Where the gang would sit in other columns, on free GPUs. O(H)."""
        return self.spot(Space(columns, self._excluded), preempting=preempting)

    def spot(
        self, space: Space, ask: PlacementRequest | None = None, *, preempting: bool = False
    ) -> Spot | None:
        """Where the gang, or another one, would sit. O(H)."""
        domain = space.place_for(ask or self.ask)
        return None if domain is None else Spot(self.search.region, domain.cluster, preempting)

    @cached_property
    def without_victims(self) -> Space:
        """The region once everything is gone that may be stopped for the gang. O(A) once."""
        return Space(self.search.columns.without(self.victims(self.search.now)), self._excluded)

    def victims(self, now: float) -> list[Allocation]:
        """Attempts that may be stopped for the gang, by band, and are old enough then. O(A)."""
        held, ask = self.search.allocations, replace(self.ask, mode=Preempt())
        return eligible_victims(held, ask, self.search.profile, now)

    def change(
        self, kind: ChangeKind, text: str, size: float, place: Spot, **more: object
    ) -> Change:
        """A change after which there is a place."""
        told, stops = f"{text}: {place}", place.preempting
        return Change(
            kind, told, size, place.region, place.cluster, preempting=stops,
            **more,  # type: ignore[arg-type]
        )  # fmt: skip


def when_over(
    jobs: Sequence[str], at_s: float, now: float, ends: Mapping[str, float] | None
) -> tuple[str, float | None]:
    """How a sentence says when jobs will be over, and when that is.

    ``ends``: by a forecast, so that one job has one time; else ``at_s``, as their region expects
    it, which knows of no history. Nothing where a forecast does not reach so far.
    """
    if ends is not None:
        known = [ends[job] for job in jobs if job in ends]
        if len(known) < len(jobs):
            return "", None
        at_s = max(known)
    return f", expected in {format_duration(max(0.0, at_s - now))}", at_s


def count_of(count: int, one: str, of: str = "") -> str:
    """``1 task``, ``2 tasks of group reader``."""
    return f"{count} {one}{'' if count == 1 else 's'}{of}"


def listed(names: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    few = ", ".join(names[:3])
    return few if len(names) <= 3 else f"{few} and {len(names) - 3} more"
