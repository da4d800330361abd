"""Binding `near-data`: a project's data is in one region, and its jobs run there (Yugong, VLDB '19)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from topmast.policies.base import BindView
from topmast.policies.options import Profile


class NearData:
    """A region with all the data: at home, if that is one, else the largest cluster; else as near as may be."""

    source: ClassVar[str] = "Yugong (Huang et al., VLDB '19): projects near their data"
    options: ClassVar[tuple[str, ...]] = ("bind.policy",)
    whole_region = True

    def __init__(self, profile: Profile) -> None:
        pass

    def choose(self, view: BindView) -> int:
        """Who has the data, then who is at home, then who is large. O(k log k)."""
        return int(np.lexsort((-view.gpus, ~view.at_home, ~view.has_data))[0])
