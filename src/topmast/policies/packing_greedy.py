"""Packing `greedy`: which gangs are tried on the same GPUs: small ones and new ones first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from topmast.policies.base import PackView
from topmast.policies.options import Profile


class Greedy:
    """Pairs in the order of: fewer trials, fewer GPUs, less GPU memory, earlier start.

    A gang's partner is the one with the most expected gain. If nothing was measured for their two
    kinds, the pair is simply tried and measured.
    """

    source: ClassVar[str] = "Gandiva (Xiao et al., OSDI '18): packing in introspective mode"
    options: ClassVar[tuple[str, ...]] = ("pack_trial_s",)

    def __init__(self, profile: Profile) -> None:
        self._least = profile.rebalancing.gain
        self._unknown = 1.0 + profile.rebalancing.expected_gain

    def pairs(self, view: PackView) -> Sequence[tuple[int, int]]:
        """Each row at most once. O(n log n), and n^2 within one place, of which there are few."""
        order = np.lexsort((np.arange(len(view.place)), view.memory, view.gpus, view.failures))
        unknown = np.isnan(view.expected)
        expected = np.where(unknown, self._unknown, view.expected)
        able_to = view.may_join & (unknown | (expected >= self._least))
        waiting: dict[int, list[int]] = {}
        found: list[tuple[int, int]] = []
        for row in order.tolist():
            here = waiting.setdefault(int(view.place[row]), [])
            able = [x for x in here if able_to[x, row]]
            other = max(able, key=lambda x: (expected[x, row], -here.index(x)), default=None)
            if other is None:
                here.append(row)
            else:
                here.remove(other)
                found.append((other, row))
        return found
