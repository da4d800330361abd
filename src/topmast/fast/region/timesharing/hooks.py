"""The part that pairs, turns and their rebalancing take in a region."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topmast.fast.region.hooks import SharingHooks
from topmast.fast.region.timesharing import pairs
from topmast.fast.region.timesharing.rebalancer import SharingRebalancer
from topmast.model import messages as m
from topmast.model.plan import PlacementRequest, Plan

if TYPE_CHECKING:
    from topmast.fast.region.state import RegionState


class Sharing(SharingRebalancer, SharingHooks):
    """Gangs that share GPUs: the rebalancer of those that take turns, and the pairs of plans."""

    def offer_beside(self, placer: RegionState, ask: PlacementRequest, job: str) -> m.Bid:
        """The seats of the other job, if the gang can have them now."""
        return pairs.offer(placer, ask, job)

    def why_not(self, placer: RegionState, plan: Plan) -> str:
        """Why a secondary cannot have its place."""
        return pairs.why_not(placer, plan)

    def on_freed(self, placer: RegionState, job: str) -> None:
        """The secondary of the job has the GPUs for itself."""
        pairs.inherit(placer, job)
