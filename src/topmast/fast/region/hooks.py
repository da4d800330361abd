"""Hooks for sharing GPUs: the region calls them, and knows none of them."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from topmast.fast.region.inventory.allocation import Allocation
from topmast.fast.region.inventory.columns import Affinity
from topmast.model import messages as m
from topmast.model.plan import PlacementRequest, Plan
from topmast.model.reason import PendingReason


class Going(Struct, frozen=True):
    """An attempt that is to move."""

    allocation: Allocation
    to: Plan
    why: str
    """In words."""


class SharingHooks:
    """What is asked and told where gangs may share GPUs. As it stands here, none does."""

    in_turns = False
    """Whether gangs take turns on the same GPUs."""
    affinity: Affinity | None = None
    """Which of equally good GPUs a gang should have, where that is not all the same."""

    def colocate(self, ask: PlacementRequest, job: str) -> m.Bid:
        """The place on the GPUs of another job."""
        return m.Bid(ask.job, None, PendingReason.INSUFFICIENT_CAPACITY)

    def why_not(self, plan: Plan) -> str:
        """Why a gang cannot go on the GPUs of another; empty if it can, or if it has its own."""
        return ""

    def on_freed(self, job: str) -> None:
        """A fact: an attempt has let go of its seats. Nothing is decided here."""

    def moves(self) -> Iterable[Going]:
        """The attempts that had better be elsewhere, after something came free."""
        return ()

    def is_due(self) -> bool:
        """Whether `moves` is to be asked though nothing came free."""
        return False

    def grows(self, allocation: Allocation, most: int) -> Going | None:
        """Where a gang in turns goes on with more tasks."""
        return None

    def gives_way(self) -> Iterable[Going]:
        """The gangs that go on with fewer tasks, so that others have GPUs of their own."""
        return ()

    def may_resize(self, allocation: Allocation) -> bool:
        """Whether a gang may change its size for others now."""
        return True

    def note_gain(self, one: Allocation, two: Allocation, gain: float) -> None:
        """What two were measured to do together."""

    def note_parted(self, job: str, other: str) -> None:
        """Two that both go on do not go well together."""

    def note_rate(self, event: m.AttemptPaced) -> Going | None:
        """How fast a gang is; its way back, if it was faster where it was."""
        return None
