"""Binding `least-loaded`: early binding by a load signal (the baseline `federated` of MAST).

With ``choices`` d it compares d clusters, drawn at random for each job (Mitzenmacher, The Power of
Two Choices in Randomized Load Balancing).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from topmast.policies.base import BindView
from topmast.policies.options import Profile


class LeastLoaded:
    """The least loaded cluster with the data; of all where no cluster has it."""

    source: ClassVar[str] = (
        "Federations as in MAST (OSDI '24); the power of d choices (Mitzenmacher, TPDS 12, 2001)"
    )
    options: ClassVar[tuple[str, ...]] = ("bind",)
    whole_region = False

    def __init__(self, profile: Profile) -> None:
        self._choices = profile.bind.choices

    def choose(self, view: BindView) -> int:
        """The lowest load among those looked at; ties go to the first by name. O(k)."""
        rows = np.flatnonzero(view.has_data) if view.has_data.any() else np.arange(len(view.load))
        if self._choices is not None and self._choices < len(rows):
            draw = np.random.default_rng((view.number, view.times))
            rows = np.sort(draw.choice(rows, self._choices, replace=False))
        return int(rows[np.argmin(view.load[rows])])
