"""Order `credit` (MAST): within a band, waiting time and fair share decide."""

from __future__ import annotations

import numpy as np

from topmast.policies.base import Floats, Profile, QueueView


class Credit:
    """Higher credit first: ``age * min(waited, cap)/cap + fairness * fairness``, within [0, 1]."""

    by_band = True
    by_time = True

    def __init__(self, profile: Profile) -> None:
        self._weights = profile.rank

    def keys(self, view: QueueView) -> Floats:
        """Minus the credit (n x 1)."""
        weights = self._weights
        waited_s = np.clip(view.now_s - view.submit_s, 0.0, weights.age_cap_s)
        age = weights.age * (waited_s / weights.age_cap_s)
        credit = np.clip(age + weights.fairness * view.fairness, 0.0, 1.0)
        return np.asarray(-credit[:, None], dtype=np.float64)
