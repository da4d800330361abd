"""Binding `home`: users choose a region by hand and stay there (the baseline `manual` of MAST)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from topmast.policies.base import BindView
from topmast.policies.options import Profile


class Home:
    """The home region; where that could never hold the job, the largest cluster with its data."""

    source: ClassVar[str] = "MAST (Choudhury et al., OSDI '24): what people did before"
    options: ClassVar[tuple[str, ...]] = ("bind.policy",)
    whole_region = True

    def __init__(self, profile: Profile) -> None:
        pass

    def choose(self, view: BindView) -> int:
        """A cluster of the home region, or its substitute. O(k)."""
        if view.at_home.any():
            return int(np.argmax(view.at_home))
        return int(np.lexsort((-view.gpus, ~view.has_data))[0])
