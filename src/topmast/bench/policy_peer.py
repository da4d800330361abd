"""The same programs written for cvxpy, like Gavel's public code: the peer of the policies."""

from __future__ import annotations

import time
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import numpy as np

from topmast.policies.base import Floats
from topmast.policies.shares.columns import Columns


class Peer:
    """cvxpy with the solver that it chooses for a linear program."""

    def __init__(self) -> None:
        import cvxpy

        self._cvxpy: Any = cvxpy
        self.name = f"cvxpy {version('cvxpy')}"

    def solve(self, policy: str, columns: Columns) -> tuple[float | None, float | None]:
        """Seconds to build and solve, and the objective; None without a single program."""
        if policy not in ("max-min-fairness", "makespan", "max-throughput", "finish-time-fairness"):
            return None, None
        begun_s = time.perf_counter()
        objective = self._solve(policy, columns)
        return time.perf_counter() - begun_s, objective

    def _solve(self, policy: str, columns: Columns) -> float:
        cp, cells = self._cvxpy, columns.cells
        x = cp.Variable(len(cells.one), nonneg=True)
        speeds = _matrix(columns, cells.one_speed, cells.other_speed) @ x
        ones = np.ones(len(cells.one))
        limits = [
            _matrix(columns, ones, ones) @ x <= 1,
            _by_type(columns) @ x <= columns.workers,
        ]
        if policy == "max-throughput":
            problem = cp.Problem(cp.Maximize(cp.sum(speeds)), limits)
        elif policy == "max-min-fairness":
            part = columns.scale / (columns.weight * columns.equal_speeds)
            problem = cp.Problem(cp.Maximize(cp.min(cp.multiply(part, speeds))), limits)
        else:
            left_s = cp.multiply(columns.steps_left, cp.inv_pos(speeds))
            if policy == "finish-time-fairness":
                own_s = columns.steps_left / columns.isolated_speeds
                left_s = (left_s + columns.elapsed_s) / (columns.isolated_s + own_s)
            problem = cp.Problem(cp.Minimize(cp.max(left_s)), limits)
        return float(problem.solve())


def find_peer() -> Peer | None:
    """The peer, where it is installed."""
    return Peer() if find_spec("cvxpy") is not None else None


def _matrix(columns: Columns, one: Floats, other: Floats) -> Any:
    """Jobs by cells (n x k), sparse: what a cell gives its first job, and its second."""
    from scipy.sparse import csr_matrix

    cells = columns.cells
    both = np.flatnonzero(cells.other >= 0)
    rows = np.concatenate([cells.one, cells.other[both]])
    places = np.concatenate([np.arange(len(cells.one)), both])
    values = np.concatenate([one, other[both]])
    return csr_matrix((values, (rows, places)), shape=(columns.count, len(cells.one)))


def _by_type(columns: Columns) -> Any:
    from scipy.sparse import csr_matrix

    cells = columns.cells
    places = np.arange(len(cells.one))
    return csr_matrix((cells.scale, (cells.kind, places)), shape=(len(columns.types), len(places)))
