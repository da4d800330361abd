"""Rebalancing `introspective`: a trial that is measured to be better stays, any other is undone."""

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
    """Keeps pairs that do more together than in turns; moves gangs to faster idle GPUs."""

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
        """Which gangs should move, by how much all gangs gain for the cost. O(n log n).

        The gang's work moves to idle GPUs, and the gangs that it leaves share what it had. No gang
        may get slower.
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
        """Gangs that gain more from a joint trial than the move costs, best first. O(n log n)."""
        options = self._options
        left_s = np.minimum(view.age_s, options.horizon_s)
        known = ~np.isnan(view.expected)
        gain = np.where(known, view.expected - 1.0, options.expected_gain)
        worth = view.gpus * (gain * left_s - view.cost_s)
        # Where no gangs are tried together there is nothing to be gained.
        rows = np.flatnonzero((worth > 0) & self._tries)
        return np.asarray(rows[np.lexsort((rows, -worth[rows]))], np.int64)

    def sizes(self, view: SizesView) -> Ints:
        """Gangs that gain more by a new size than the restart costs, best first. O(n log n).

        Growing has to gain a multiple of the cost, since idle GPUs may soon be wanted. A gang that
        gives way need not: each minute of delay loses work.
        """
        left_s = np.minimum(view.age_s, self._options.horizon_s)
        needed = np.where(view.grows, self._least_gain, 1.0)
        worth = view.gained * left_s - needed * view.gpus * view.cost_s
        rows = np.flatnonzero(worth > 0)
        return np.asarray(rows[np.lexsort((rows, -worth[rows]))], np.int64)

    def good(self, view: MovedView) -> Bools:
        """Whether each does as much as before, but for what a measurement may be wrong by. O(n)."""
        return np.asarray(view.after >= view.before * (1.0 - self._options.move_loss), np.bool_)
