"""The part that pairs, turns and their rebalancing take in a region."""

from __future__ import annotations

from topmast.fast.region.state import RegionState
from topmast.fast.region.timesharing.pairs import PairHooks
from topmast.fast.region.timesharing.rebalancer import SharingRebalancer
from topmast.fast.region.timesharing.slot_affinity import SlotAffinity


class Sharing(SharingRebalancer, PairHooks):
    """Gangs that share GPUs: the rebalancer of those that take turns, and the pairs of plans."""

    def __init__(self, placer: RegionState) -> None:
        super().__init__(placer)
        self.in_turns = placer.profile.slices.layers > 1
        self.affinity = SlotAffinity() if self.in_turns else None
