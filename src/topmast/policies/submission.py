"""Order `submission`: first come, first served, whatever the band."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from topmast.policies.base import Floats, QueueView
from topmast.policies.options import Profile


class Submission:
    """Time of submission, then number: which settle equal keys, so there are none here."""

    source: ClassVar[str] = "First come, first served; the order of YARN's capacity scheduler"
    options: ClassVar[tuple[str, ...]] = ()
    by_band = False
    by_time = False

    def __init__(self, profile: Profile) -> None:
        pass

    def keys(self, view: QueueView) -> Floats:
        """No key at all (n x 0)."""
        return np.empty((len(view.submit_s), 0))
