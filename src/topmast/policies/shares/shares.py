"""The answer of a policy: each job's part of the time, and how good the allocation is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from msgspec import Struct

from topmast.policies.base import Floats
from topmast.policies.shares.columns import Columns


class Shares(Struct, frozen=True):
    """An allocation."""

    objective: float | None
    """As the policy defines it; None where deadlines cannot be met."""
    single: Floats
    """Fractions of time (n x m)."""
    pair: Floats
    """Fractions of time (p x m)."""
    violated: tuple[int, ...] = ()
    """Rows of jobs that cannot keep their deadlines."""
    levels: Floats | None = None
    """Where water-filling ended (n)."""

    @property
    def status(self) -> Literal["optimal", "infeasible"]:
        """Whether there is an allocation at all."""
        return "infeasible" if self.objective is None else "optimal"


def document(policy: str, columns: Columns, shares: Shares) -> dict[str, Any]:
    """The answer as `topmast allocate` prints it, but for how long it took. O(cells above 0)."""
    answer: dict[str, Any] = {
        "policy": policy,
        "status": shares.status,
        "objective": shares.objective,
        "allocation": _allocation(columns, shares) if shares.objective is not None else {},
    }
    if shares.levels is not None:
        answer["levels"] = dict(zip(columns.ids, shares.levels.tolist(), strict=True))
    if shares.objective is None:
        answer["violated"] = [columns.ids[row] for row in shares.violated]
    return answer


def _allocation(columns: Columns, shares: Shares) -> Mapping[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for row, kind in zip(*(place.tolist() for place in np.nonzero(shares.single)), strict=True):
        entry = found.setdefault(columns.ids[row], {})
        entry[columns.types[kind]] = float(shares.single[row, kind])
    for row, kind in zip(*(place.tolist() for place in np.nonzero(shares.pair)), strict=True):
        name = ",".join(columns.ids[job] for job in columns.pair_jobs[row].tolist())
        found.setdefault(name, {})[columns.types[kind]] = float(shares.pair[row, kind])
    return found
