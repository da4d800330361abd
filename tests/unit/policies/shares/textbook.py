"""The policies once more, as the papers write them: for scipy's solvers, from the document itself.

Nothing here is shared with the package. Programs are dense, loops are plain, ratios are found by
bisection, so that a mistake would have to be made twice, in two ways.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

Document = dict[str, Any]
Floats = NDArray[np.float64]


class Textbook:
    """One problem: its variables are the fractions x[row, type], rows being jobs and pairs."""

    def __init__(self, document: Document, *, agnostic: bool = False) -> None:
        self.types = list(document["workers"])
        self.workers = [document["workers"][t] for t in self.types]
        self.jobs = document["jobs"]
        self.scale = [job.get("scale_factor", 1) for job in self.jobs]
        true = [[job["throughputs"].get(t, 0.0) for t in self.types] for job in self.jobs]
        self.true = true
        self.speed = [list(row) for row in true]
        if agnostic:
            for i, j in itertools.product(range(len(self.jobs)), range(len(self.types))):
                here = true[i][j] > 0 and self.scale[i] <= self.workers[j]
                self.speed[i][j] = max(true[i]) if here else 0.0
        numbers = {job["id"]: i for i, job in enumerate(self.jobs)}
        self.rows: list[tuple[int, ...]] = [(i,) for i in range(len(self.jobs))]
        self.of: list[list[tuple[float, ...]]] = [[(s,) for s in row] for row in self.speed]
        for pair in [] if agnostic else document.get("pairs", []):
            self.rows.append(tuple(numbers[name] for name in pair["ids"]))
            self.of.append([tuple(pair["throughputs"].get(t, (0, 0))) for t in self.types])
        self.size = len(self.rows) * len(self.types)
        self.costs = [document.get("costs", {}).get(t, 0.0) for t in self.types]

    # --- what stands in the rows of every program

    def at(self, row: int, kind: int) -> int:
        return row * len(self.types) + kind

    def limits(self) -> tuple[Floats, Floats]:
        """Time of jobs and workers of types: A x <= b."""
        a = np.zeros((len(self.jobs) + len(self.types), self.size))
        for row, members in enumerate(self.rows):
            for kind in range(len(self.types)):
                for member in members:
                    a[member, self.at(row, kind)] = 1
                a[len(self.jobs) + kind, self.at(row, kind)] = self.scale[members[0]]
        return a, np.array([1.0] * len(self.jobs) + self.workers, float)

    def bounds(self) -> list[tuple[float, float]]:
        found = []
        for row, members in enumerate(self.rows):
            for kind in range(len(self.types)):
                fits = self.scale[members[0]] <= self.workers[kind]
                runs = all(speed > 0 for speed in self.of[row][kind])
                found.append((0.0, 1.0 if fits and runs else 0.0))
        return found

    def throughput(self) -> Floats:
        """thr = R x."""
        r = np.zeros((len(self.jobs), self.size))
        for row, members in enumerate(self.rows):
            for kind in range(len(self.types)):
                for member, speed in zip(members, self.of[row][kind], strict=True):
                    r[member, self.at(row, kind)] = speed
        return r

    def spend(self) -> Floats:
        c = np.zeros(self.size)
        for row, members in enumerate(self.rows):
            for kind in range(len(self.types)):
                c[self.at(row, kind)] = self.scale[members[0]] * self.costs[kind]
        return c

    def equal(self) -> Floats:
        total = sum(self.workers)
        return np.array(
            [
                sum(s * w for s, w in zip(row, self.workers, strict=True)) / total
                for row in self.speed
            ]
        )

    def isolated(self) -> Floats:
        found = []
        for row, scale in zip(self.speed, self.scale, strict=True):
            part = [w / (len(self.jobs) * scale) for w in self.workers]
            over = max(1.0, sum(part))
            found.append(sum(s * p / over for s, p in zip(row, part, strict=True)))
        return np.array(found)

    def column(self, name: str, default: float = 0.0) -> Floats:
        return np.array([job.get(name, default) for job in self.jobs], float)

    # --- programs

    def most(self, slope: Floats, base: Floats | None = None) -> float:
        """The largest z with thr >= base + slope z; -inf if not even z = 0 does."""
        a, b = self.limits()
        r = self.throughput()
        base = np.zeros(len(slope)) if base is None else base
        unit = np.maximum(np.maximum(slope, base), 1e-12)[:, None]
        top = np.hstack([a, np.zeros((len(a), 1))])
        floors = np.hstack([-r / unit, slope[:, None] / unit])
        found = linprog(
            np.append(np.zeros(self.size), -1.0),
            A_ub=np.vstack([top, floors]),
            b_ub=np.append(b, -base / unit[:, 0]),
            bounds=[*self.bounds(), (0, None)],
            method="highs",
        )
        return -found.fun if found.status == 0 else -np.inf

    def can_reach(self, floors: Floats) -> bool:
        """Whether all speeds can be at least ``floors`` (to 1e-9)."""
        return self.most(floors) >= 1 - 1e-9 if (floors > 0).any() else True

    def max_min(self) -> float:
        weight = self.column("weight", 1.0)
        return self.most(weight * self.equal() / np.array(self.scale))
