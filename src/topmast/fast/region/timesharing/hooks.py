"""The part that pairs, turns and their rebalancing take in a region."""

from __future__ import annotations

from topmast.fast.region.hooks import SharingHooks
from topmast.fast.region.state import RegionState
from topmast.fast.region.timesharing import pairs
from topmast.fast.region.timesharing.rebalancer import SharingRebalancer
from topmast.fast.region.timesharing.slot_affinity import SlotAffinity
from topmast.model import messages as m
from topmast.model.plan import PlacementRequest, Plan


class Sharing(SharingRebalancer, SharingHooks):
    """Gangs that share GPUs: the rebalancer of those that take turns, and the pairs of plans."""

    def __init__(self, placer: RegionState) -> None:
        super().__init__(placer)
        self.in_turns = placer.profile.slices.layers > 1
        self.affinity = SlotAffinity() if self.in_turns else None

    def colocate(self, ask: PlacementRequest, job: str) -> m.Bid:
        """The seats of the other job, if the gang can have them now."""
        return pairs.offer(self._placer, ask, job)

    def why_not(self, plan: Plan) -> str:
        """Why a secondary cannot have its place."""
        return pairs.why_not(self._placer, plan)

    def on_freed(self, job: str) -> None:
        """The secondary of the job has the GPUs for itself."""
        pairs.inherit(self._placer, job)
