"""Rebalancing `introspective`: what was tried is kept if it is measured to be better, else taken back."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from topmast.policies.base import (
    Bools,
    Ints,
    JoinView,
    MovedView,
    PairsView,
    SharingView,
    SizesView,
)
from topmast.policies.options import Profile


class Introspective:
    """Keeps pairs that do more together than in turns; moves who would be faster there to idle ones."""

    source: ClassVar[str] = "Gandiva (Xiao et al., OSDI '18): introspective mode"
    options: ClassVar[tuple[str, ...]] = ("rebalancing", "elastic")

    def __init__(self, profile: Profile) -> None:
        self._options = profile.rebalancing
        self._least_gain = profile.elastic.gain
        self._tries = profile.pack != "none"

    def keep(self, view: PairsView) -> Bools:
        """Whether each pair stays together: in turns both would do the work of one. O(n)."""
        together = view.first_beside / view.first_alone + view.second_beside / view.second_alone
        return np.asarray(together >= self._options.gain, np.bool_)

    def moves(self, view: SharingView) -> Ints:
        """Which gangs had better move, the best first: what more is done by all, for what it costs. O(n log n).

        Idle GPUs do its work; those that it had do that of the others there, if there are any. Nobody is to do less than before.
        """
        options = self._options
        if not options.migrate:
            return np.zeros(0, np.int64)
        old = (view.age_s >= options.migrate_after_s) & ~view.moved_lately
        gained = view.gpus * (view.idle_speed - (view.sharing <= 1))
        # What it has run is the guess of what it will still run, as far as that goes.
        left_s = np.minimum(view.age_s, options.horizon_s)
        worth = gained * left_s - view.gpus * view.cost_s
        faster = view.idle_speed * view.sharing > 1.0
        rows = np.flatnonzero(old & faster & (worth > 0))
        return np.asarray(rows[np.lexsort((rows, -worth[rows]))], np.int64)

    def joins(self, view: JoinView) -> Ints:
        """Whose trial is expected to gain more than the move costs, the best first. O(n log n)."""
        options = self._options
        left_s = np.minimum(view.age_s, options.horizon_s)
        known = ~np.isnan(view.expected)
        gain = np.where(known, view.expected - 1.0, options.expected_gain)
        worth = view.gpus * (gain * left_s - view.cost_s)
        # Where nobody is tried beside another there is nothing to be gained.
        rows = np.flatnonzero((worth > 0) & self._tries)
        return np.asarray(rows[np.lexsort((rows, -worth[rows]))], np.int64)

    def sizes(self, view: SizesView) -> Ints:
        """Whose other size gains more than the restart costs, or so many times that if it grows, the best first.

        Idle GPUs may be wanted soon; who gives way loses each minute that it is put off. O(n log n).
        """
        left_s = np.minimum(view.age_s, self._options.horizon_s)
        needed = np.where(view.grows, self._least_gain, 1.0)
        worth = view.gained * left_s - needed * view.gpus * view.cost_s
        rows = np.flatnonzero(worth > 0)
        return np.asarray(rows[np.lexsort((rows, -worth[rows]))], np.int64)

    def good(self, view: MovedView) -> Bools:
        """Whether each does as much as before, but for what a measurement may be wrong by. O(n)."""
        return np.asarray(view.after >= view.before * (1.0 - self._options.move_loss), np.bool_)
