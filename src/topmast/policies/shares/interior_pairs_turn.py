"""One iteration of the interior-point method with pairs: corrected Newton direction and step.

Mehrotra's predictor and corrector, as in `interior_kernels`; the height u borders the system. A
factorisation costs as much as ten directions, so that more directions correct the first before the
step: multiple centrality correctors (Gondzio, Comput. Optim. Appl. 1996), each with the weight that
makes the step longest (Colombo and Gondzio, Comput. Optim. Appl. 2008).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct
from scipy.linalg import cho_factor, cho_solve

from topmast.policies.base import Floats
from topmast.policies.shares.interior_pairs_table import Table

STEP, SHORT_STEP = 0.995, 0.95
"""How far towards the nearest wall a step goes; the second where the wall is near."""
CORRECTORS = 2
PARTS = (1.0, 0.5, 0.2)
FURTHER = 0.3
"""By how much more than it did a mended direction shall lead."""
NEAR, FAR = 0.1, 10.0
"""Products of a variable and its price within these multiples of the aim are let be."""

Aim = tuple[Any, Any, Any]
"""What products of cells, of limits and of the height should change by."""
Reach = tuple[float, float]
"""How far a direction leads, primal and dual."""


class Point(Struct):
    """Cells x, slacks w, height u; reduced costs v, prices y of limits, reduced cost z of u."""

    x: Floats
    w: Floats
    u: float
    v: Floats
    y: Floats
    z: float

    def plus(self, other: Point, primal: float, dual: float) -> Point:
        """This and a part of another."""
        return Point(
            self.x + primal * other.x, self.w + primal * other.w, self.u + primal * other.u,
            self.v + dual * other.v, self.y + dual * other.y, self.z + dual * other.z,
        )  # fmt: skip


def gap_of(table: Table, now: Point) -> tuple[float, float]:
    """The gap between primal and dual, relative, and the mean of the products that make it."""
    gap = float(np.where(table.open, now.x * now.v, 0.0).sum() + now.w @ now.y)
    gap += now.u * now.z
    return gap / now.u, gap / (int(table.open.sum()) + len(now.w) + 1)


def turned(table: Table, now: Point, tolerance: float) -> Point | None:
    """The point after one iteration; None where the end is reached."""
    cells = table.open
    rest_w = table.limit - table.apply(np.where(cells, now.x, 0.0)) - table.rise * now.u - now.w
    rest_v = np.where(cells, now.v - table.price(now.y), 0.0)
    rest_z = 1.0 - float(table.rise @ now.y) + now.z
    gap, mean = gap_of(table, now)
    worst = max(np.abs(rest_w).max(), np.abs(rest_v).max(), abs(rest_z))
    if not np.isfinite(gap) or (gap <= tolerance and worst <= 1e-6):
        return None
    products = np.where(cells, now.x * now.v, 0.0), now.w * now.y, now.u * now.z
    system = _System(table, now)
    rest = rest_v, rest_w, rest_z
    step = system.direction(rest, (-products[0], -products[1], -products[2]))
    primal, dual = _cut(_reach(table, now, step))
    after = gap_of(table, now.plus(step, primal, dual))[1]
    centre = (after / mean) ** 3 * mean
    aim = (
        np.where(cells, centre - products[0] - step.x * step.v, 0.0),
        centre - products[1] - step.w * step.y,
        centre - products[2] - step.u * step.z,
    )
    step = system.direction(rest, aim)
    step, reach = _mended(table, now, system, step, max(centre, 1e-2 * mean))
    most = STEP if min(reach) >= 0.9 else SHORT_STEP
    primal, dual = (min(1.0, most * part) for part in reach)
    return now.plus(step, primal, dual) if max(primal, dual) > 1e-10 else None


def _mended(
    table: Table, now: Point, system: _System, step: Point, centre: float
) -> tuple[Point, Reach]:
    """A direction with corrections that let it lead further, and how far that is."""
    reach = _reach(table, now, step)
    for _ in range(CORRECTORS):
        before = sum(_cut(reach))
        correction = system.direction(NOTHING, _towards_centre(table, now, step, reach, centre))
        found, further = step, reach
        for part in PARTS:
            other = step.plus(correction, part, part)
            longer = _reach(table, now, other)
            if np.prod(_cut(longer)) > np.prod(_cut(further)):
                found, further = other, longer
        step, reach = found, further
        if sum(_cut(reach)) < before + 0.1 * FURTHER or min(reach) > 0.95:
            break
    return step, reach


def _towards_centre(table: Table, now: Point, step: Point, reach: Reach, centre: float) -> Aim:
    """The correction of products that would be far from the central path on a longer step."""
    primal, dual = _cut((reach[0] + FURTHER, reach[1] + FURTHER))

    def pulled(product: Floats) -> Floats:
        low = np.maximum(NEAR * centre - product, 0.0)
        high = np.maximum(FAR * centre - product, -FAR * centre)
        return np.where(product > FAR * centre, high, low)

    cells = (now.x + primal * step.x) * (now.v + dual * step.v)
    limits = (now.w + primal * step.w) * (now.y + dual * step.y)
    return np.where(table.open, pulled(cells), 0.0), pulled(limits), 0.0


class _System:
    """Newton's equations at one point, factored once for many right sides."""

    def __init__(self, table: Table, now: Point) -> None:
        self._table, self._now = table, now
        self._weight = np.where(table.open, now.x / now.v, 0.0)
        self._factor: Any = cho_factor(
            table.normal(self._weight, now.w / now.y), lower=True, overwrite_a=True,
            check_finite=False,
        )  # fmt: skip
        self._border = self._solve(table.rise)

    def _solve(self, right: Floats) -> Floats:
        solved: Floats = cho_solve(self._factor, right, check_finite=False)
        return solved

    def direction(self, rest: Aim, aim: Aim) -> Point:
        """Newton's direction: ``rest`` is the residual, ``aim`` the wanted change of products."""
        table, now, weight = self._table, self._now, self._weight
        pull = rest[0] + aim[0] / now.x
        y = self._solve(table.apply(weight * pull) + aim[1] / now.y - rest[1])
        tug = rest[2] + aim[2] / now.u
        u = (tug - float(table.rise @ y)) / (float(table.rise @ self._border) + now.z / now.u)
        y = y + self._border * u
        x = weight * (pull - table.price(y))
        v = np.where(table.open, (aim[0] - now.v * x) / now.x, 0.0)
        w = (aim[1] - now.w * y) / now.y
        z = (aim[2] - now.z * u) / now.u
        return Point(x, w, u, v, y, z)


NOTHING: Aim = (0.0, 0.0, 0.0)


def _cut(reach: Reach) -> Reach:
    """No further than a whole step."""
    return min(1.0, reach[0]), min(1.0, reach[1])


def _reach(table: Table, now: Point, step: Point) -> Reach:
    """How far a direction leads before a variable, or a price, is 0."""

    def wall(*moves: tuple[Any, Any]) -> float:
        fastest = max(float(np.max(-np.asarray(move) / value)) for value, move in moves)
        return 1.0 / fastest if fastest > 0.5 else 2.0

    return (
        wall((now.x, step.x), (now.w, step.w), (now.u, step.u)),
        wall((now.v, step.v), (now.y, step.y), (now.z, step.z)),
    )
