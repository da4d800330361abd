"""Rows of waiting jobs as an order sees them, without a copy of what it does not read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topmast.policies.base import Floats, Ints


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
