"""Order `credit` (MAST): within a band, waiting time and fair share decide."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from topmast.policies.base import Floats, QueueView
from topmast.policies.options import Profile


class Credit:
    """Higher credit first: ``age * min(waited, cap)/cap + fairness * fairness``, within [0, 1]."""

    source: ClassVar[str] = (
        "MAST (Choudhury et al., OSDI '24): priority bands, credit inside a band"
    )
    options: ClassVar[tuple[str, ...]] = ("rank", "rerank_interval_s")
    by_band = True
    by_time = True

    def __init__(self, profile: Profile) -> None:
        self._weights = profile.rank

    def keys(self, view: QueueView) -> Floats:
        """Minus the credit (n x 1)."""
        weights = self._weights
        waited_s = _within(view.now_s - view.submit_s, weights.age_cap_s)
        age = weights.age * (waited_s / weights.age_cap_s)
        return -_within(age + weights.fairness * view.fairness, 1.0)[:, None]


def _within(values: Floats, most: float) -> Floats:
    """Values brought between 0 and ``most``; for few of them much faster than np.clip."""
    return np.asarray(np.minimum(np.maximum(values, 0.0), most), dtype=np.float64)
