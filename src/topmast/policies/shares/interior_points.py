"""Points of the compiled interior-point method: variables, residuals, step lengths.

Columns: ``x``, ``v`` (m x n) cells and their reduced costs; ``w``, ``y`` (2 x n) slacks and prices
of a job's floor and time; ``k``, ``p`` (m) slacks and prices of the types; ``z`` = (u, its reduced
cost). Where a cell must stay 0, x is 0 and v is 1 for good.

Jobs are contiguous, and a loop over them writes one array, so that the compiler can vectorise it.
Sums over jobs have loops of their own: their order is part of the answer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topmast.jit import inner

Floats = NDArray[np.float64]


class State(NamedTuple):
    """A point, or a direction."""

    x: Floats
    v: Floats
    w: Floats
    y: Floats
    k: Floats
    p: Floats
    z: Floats


class Data(NamedTuple):
    """The program."""

    a: Floats
    s: Floats
    g: Floats
    h: Floats
    may: Floats
    """(m x n): 1 where x may differ from 0, and there a > 0 and s > 0; else all three are 0."""


@inner
def like(m: int, n: int) -> State:
    """A state of zeros."""
    return State(
        np.zeros((m, n)), np.zeros((m, n)), np.zeros((2, n)), np.zeros((2, n)),
        np.zeros(m), np.zeros(m), np.zeros(2),
    )  # fmt: skip


@inner
def inverse(data: Data, now: State, into: State) -> None:
    """One over everything, but 0 for cells that stay 0. O(n m)."""
    m, n = data.a.shape
    for j in range(m):
        may, x, one_x = data.may[j], now.x[j], into.x[j]
        v, one_v = now.v[j], into.v[j]
        for i in range(n):
            one_x[i] = may[i] / (x[i] + 1.0 - may[i])
        for i in range(n):
            one_v[i] = 1.0 / v[i]
    for r in range(2):
        w, one_w = now.w[r], into.w[r]
        y, one_y = now.y[r], into.y[r]
        for i in range(n):
            one_w[i] = 1.0 / w[i]
        for i in range(n):
            one_y[i] = 1.0 / y[i]
    into.k[:] = 1.0 / now.k
    into.p[:] = 1.0 / now.p
    into.z[:] = 1.0 / now.z


@inner
def residuals(data: Data, now: State, rest: State) -> tuple[float, float]:
    """Residuals into ``rest`` (primal w, k; dual x, z[1]); gap and worst residual. O(n m)."""
    m, n = data.a.shape
    g, h, w0, w1 = data.g, data.h, now.w[0], now.w[1]
    lack0, lack1, u = rest.w[0], rest.w[1], now.z[0]
    for i in range(n):
        lack0[i] = -g[i] * u - h[i] - w0[i]
    for i in range(n):
        lack1[i] = 1.0 - w1[i]
    y0, y1 = now.y[0], now.y[1]
    for j in range(m):
        a, s, may, x, v = data.a[j], data.s[j], data.may[j], now.x[j], now.v[j]
        lack, price = rest.x[j], now.p[j]
        for i in range(n):
            lack0[i] += a[i] * x[i]
        for i in range(n):
            lack1[i] -= x[i]
        for i in range(n):
            lack[i] = may[i] * (v[i] - (y1[i] - a[i] * y0[i] + s[i] * price))
        used = 0.0
        for i in range(n):
            used += s[i] * x[i]
        rest.k[j] = 1.0 - now.k[j] - used
    tug = 0.0
    for i in range(n):
        tug += g[i] * y0[i]
    rest.z[1] = 1.0 + now.z[1] - tug
    worst = max(_size(rest.x), _size(rest.w), abs(rest.z[1]))
    for j in range(m):
        worst = max(worst, abs(rest.k[j]))
    return gap_after(now, rest, 0.0, 0.0), worst


@inner
def _size(values: Floats) -> float:
    most = 0.0
    for row in range(len(values)):
        of = values[row]
        for i in range(len(of)):
            most = max(most, abs(of[i]))
    return most


@inner
def aims(data: Data, now: State, aim: State, centre: float, first: State, correct: float) -> None:
    """How much each product of a variable and its price should change, by rows and cells.

    Cells in x, rows in w and k, u in z. ``correct`` 1: less what the direction ``first`` would add;
    0: not so. O(n m).
    """
    m, n = data.a.shape
    for j in range(m):
        may, x, v, dx, dv, into = data.may[j], now.x[j], now.v[j], first.x[j], first.v[j], aim.x[j]
        for i in range(n):
            into[i] = centre * may[i] - x[i] * v[i] - correct * (dx[i] * dv[i])
    for r in range(2):
        w, y, dw, dy, into = now.w[r], now.y[r], first.w[r], first.y[r], aim.w[r]
        for i in range(n):
            into[i] = centre - w[i] * y[i] - correct * (dw[i] * dy[i])
    for j in range(m):
        aim.k[j] = centre - now.k[j] * now.p[j] - correct * (first.k[j] * first.p[j])
    aim.z[0] = centre - now.z[0] * now.z[1] - correct * (first.z[0] * first.z[1])


@inner
def reach(over: State, step: State) -> tuple[float, float]:
    """How far a direction leads until a variable or price is 0; ``over`` is 1 / point. O(n m)."""
    primal = max(_fall(over.x, step.x), _fall(over.w, step.w))
    dual = max(_fall(over.v, step.v), _fall(over.y, step.y))
    for j in range(len(over.k)):
        primal = max(primal, -step.k[j] * over.k[j])
        dual = max(dual, -step.p[j] * over.p[j])
    primal = max(primal, -step.z[0] * over.z[0])
    dual = max(dual, -step.z[1] * over.z[1])
    return 1.0 / max(primal, 0.5), 1.0 / max(dual, 0.5)


@inner
def _fall(over: Floats, step: Floats) -> float:
    """How much of itself the fastest loses, if all go a whole step."""
    most = 0.0
    for row in range(len(over)):
        one, move = over[row], step[row]
        for i in range(len(one)):
            most = max(most, -move[i] * one[i])
    return most


@inner
def gap_after(now: State, step: State, primal: float, dual: float) -> float:
    """The gap between primal and dual after a step as far as it leads. O(n m)."""
    primal, dual = min(primal, 1.0), min(dual, 1.0)
    gap: float = (now.z[0] + primal * step.z[0]) * (now.z[1] + dual * step.z[1])
    for j in range(len(now.k)):
        gap += (now.k[j] + primal * step.k[j]) * (now.p[j] + dual * step.p[j])
        gap += _products(now.x[j], step.x[j], primal, now.v[j], step.v[j], dual)
    for r in range(2):
        gap += _products(now.w[r], step.w[r], primal, now.y[r], step.y[r], dual)
    return gap


@inner
def _products(
    one: Floats, one_step: Floats, primal: float, other: Floats, other_step: Floats, dual: float
) -> float:
    total = 0.0
    for i in range(len(one)):
        total += (one[i] + primal * one_step[i]) * (other[i] + dual * other_step[i])
    return total


@inner
def go(now: State, step: State, primal: float, dual: float) -> None:
    """Take the step."""
    now.x[:] += primal * step.x
    now.w[:] += primal * step.w
    now.k[:] += primal * step.k
    now.v[:] += dual * step.v
    now.y[:] += dual * step.y
    now.p[:] += dual * step.p
    now.z[0] += primal * step.z[0]
    now.z[1] += dual * step.z[1]
