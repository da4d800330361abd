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

    def makespan(self) -> float:
        """By bisection on the seconds, as the paper has it."""
        steps = self.column("steps_left")
        low, high = 0.0, 1.0
        while not self.can_reach(steps / high):
            low, high = high, high * 4
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if self.can_reach(steps / middle) else (middle, high)
        return high

    def finish_time(self) -> float:
        """By bisection on the ratio."""
        steps, elapsed = self.column("steps_left"), self.column("elapsed_s")
        whole = self.column("isolated_s") + steps / self.isolated()

        def reaches(ratio: float) -> bool:
            left = ratio * whole - elapsed
            return bool((left > 0).all()) and self.can_reach(steps / np.maximum(left, 1e-300))

        low, high = 0.0, 1.0
        while not reaches(high):
            low, high = high, high * 4
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if reaches(middle) else (middle, high)
        return high

    def max_throughput(self) -> float:
        a, b = self.limits()
        gain = self.throughput().sum(axis=0)
        found = linprog(-gain, A_ub=a, b_ub=b, bounds=self.bounds(), method="highs")
        return float(-found.fun)

    def min_cost(self, *, deadlines: bool = False) -> float | None:
        """Charnes and Cooper: y = x t and t >= 0, where what is spent on y is 1. None: infeasible."""
        a, b = self.limits()
        r, spend = self.throughput(), self.spend()
        rows, right = [np.hstack([a, -b[:, None]])], [np.zeros(len(b))]
        for i, job in enumerate(self.jobs):
            if deadlines and job.get("deadline_s") is not None:
                floor = job["steps_left"] / job["deadline_s"]
                rows.append(np.append(-r[i] / floor, 1.0)[None])
                right.append(np.zeros(1))
        unit = spend[spend > 0].min()
        found = linprog(
            np.append(-r.sum(axis=0), 0.0),
            A_ub=np.vstack(rows),
            b_ub=np.concatenate(right),
            A_eq=np.append(spend / unit, 0.0)[None],
            b_eq=[1 / unit],
            bounds=[*((0, None if high else 0) for _, high in self.bounds()), (0, None)],
            method="highs",
        )
        return float(-found.fun) if found.status == 0 else None

    def levels(self, entities: Document) -> tuple[float, Floats]:
        """Water-filling where every job is asked, each time, how far it alone could still rise."""
        unit = self.equal() / np.array(self.scale)
        levels, rising = np.zeros(len(self.jobs)), set(range(len(self.jobs)))
        first = None
        while rising:
            parts = self.parts(entities, rising)
            height = max(self.most(parts * unit, levels * unit * (1 - 1e-10)), 0.0)
            first = height if first is None else first
            levels = levels + height * parts
            stuck = set()
            for i in sorted(rising):
                alone = np.zeros(len(self.jobs))
                alone[i] = unit[i]
                if self.most(alone, levels * unit * (1 - 1e-9)) <= 3e-6 * max(1.0, levels.max()):
                    stuck.add(i)
            assert stuck, "someone must be held"
            rising -= stuck
        assert first is not None
        return first, levels

    def parts(self, entities: Document, rising: set[int]) -> Floats:
        parts = np.zeros(len(self.jobs))
        for name, entity in entities.items():
            mine = [i for i in sorted(rising) if self.jobs[i]["entity"] == name]
            weights = [self.jobs[i].get("weight", 1.0) for i in mine]
            if entity["policy"] == "fifo" and mine:
                parts[min(mine, key=lambda i: (self.jobs[i]["arrival_s"], i))] = entity["weight"]
            elif mine:
                for i, weight in zip(mine, weights, strict=True):
                    parts[i] = entity["weight"] * weight / sum(weights)
        return parts

    def allox(self) -> float:
        """All ways to hand the jobs to the workers; in each queue the shortest run goes first."""
        workers = [kind for kind, count in enumerate(self.workers) for _ in range(count)]
        best = np.inf
        for ways in itertools.product(range(len(workers)), repeat=len(self.jobs)):
            total = sum(job.get("elapsed_s", 0.0) for job in self.jobs)
            for worker, kind in enumerate(workers):
                mine = [i for i, way in enumerate(ways) if way == worker]
                if any(self.speed[i][kind] <= 0 for i in mine):
                    total = np.inf
                    break
                runs = sorted(self.jobs[i]["steps_left"] / self.speed[i][kind] for i in mine)
                total += sum(sum(runs[: k + 1]) for k in range(len(runs)))
            best = min(best, total)
        return float(best)

    def one_by_one(
        self, *, shortest: bool, agnostic: bool
    ) -> tuple[float, dict[tuple[int, int], float]]:
        """FIFO and SJF, on paper."""
        fastest = [max(row) for row in self.true]

        def key(i: int) -> tuple[float, ...]:
            arrival = self.jobs[i].get("arrival_s", 0.0)
            return (
                (self.jobs[i]["steps_left"] / fastest[i], arrival, i) if shortest else (arrival, i)
            )

        free, given, total = list(self.workers), {}, 0.0
        for i in sorted(range(len(self.jobs)), key=key):
            kinds = [j for j in range(len(self.types)) if self.true[i][j] > 0]
            if not any(self.scale[i] <= self.workers[j] for j in kinds):
                continue
            open_now = [j for j in kinds if self.scale[i] <= free[j]]
            if not open_now:
                break
            j = open_now[0] if agnostic else max(open_now, key=lambda j: (self.true[i][j], -j))
            free[j] -= self.scale[i]
            given[i, j] = 1.0
            total += self.true[i][j] / fastest[i]
        return total, given
