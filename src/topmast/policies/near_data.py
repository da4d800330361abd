"""Binding `near-data`: a project's jobs run in the region of its data (Yugong, VLDB '19)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from topmast.policies.base import BindView
from topmast.policies.options import Profile


class NearData:
    """A region with all the data: the home region if possible, else that of the largest cluster."""

    source: ClassVar[str] = "Yugong (Huang et al., VLDB '19): projects near their data"
    options: ClassVar[tuple[str, ...]] = ("bind.policy",)
    whole_region = True

    def __init__(self, profile: Profile) -> None:
        pass

    def choose(self, view: BindView) -> int:
        """Clusters with the data first, then those at home, then large ones. O(k log k)."""
        return int(np.lexsort((-view.gpus, ~view.at_home, ~view.has_data))[0])
