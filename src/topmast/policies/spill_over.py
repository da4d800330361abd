"""Binding `spill-over`: the home sub-cluster first, another after a long wait (Hydra, NSDI '19)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from topmast.policies.base import BindView
from topmast.policies.options import Profile


class SpillOver:
    """The least loaded cluster at home; after each patience, the least loaded other one."""

    source: ClassVar[str] = "Hydra (Curino et al., NSDI '19): home sub-clusters that spill over"
    options: ClassVar[tuple[str, ...]] = ("bind",)
    whole_region = False

    def __init__(self, profile: Profile) -> None:
        pass

    def choose(self, view: BindView) -> int:
        """Home the first time; later among the others, those with the data first. O(k)."""
        fits = np.ones(len(view.load), dtype=np.bool_)
        if view.times:
            if view.bound >= 0 and len(fits) > 1:
                fits[view.bound] = False
        elif view.at_home.any():
            fits &= view.at_home
        if (fits & view.has_data).any():
            fits &= view.has_data
        rows = np.flatnonzero(fits)
        return int(rows[np.argmin(view.load[rows])])
