"""What the order of waiting jobs knows of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from topmast.model.job import Band
from topmast.policies.base import Floats, Ints


class Waiting(Struct, frozen=True, gc=False):
    """A job as it is ranked."""

    job: str
    number: int
    job_class: int
    """The number of its job class."""
    tenant: str
    band: Band
    submit_s: float
    gpus: float
    tasks: int
    duration_s: float
    remaining_s: float
    attained_gpu_s: float = 0.0
    turn: float = 0.0
    executed_s: float = 0.0
    first_start_s: float = math.inf
    since_s: float = 0.0
    """Since when it waits, or runs."""


class RowsView:
    """A `QueueView` of some rows: a column is cut out when an order reads it."""

    def __init__(
        self, now_s: float, columns: Mapping[str, NDArray[Any]], rows: Ints | slice, fair: Floats
    ) -> None:
        """``fair``: the fairness of tenants, by number."""
        self.now_s = now_s
        self._columns, self._rows, self._fair = columns, rows, fair

    def __getattr__(self, name: str) -> NDArray[Any]:
        """A column, from its first use on."""
        found: NDArray[Any]
        if name == "fairness":
            found = self._fair[self.tenant]
        elif name == "running":
            found = np.zeros(len(self.tenant), np.bool_)
        else:
            found = self._columns[name][self._rows]
        setattr(self, name, found)
        return found
