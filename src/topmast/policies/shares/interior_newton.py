"""Newton's equations of the interior-point method: jobs are eliminated, then types and u solved.

With weights ``d_j = x / v`` a job's 2 x 2 block is like a variance. It is stored as weight, mean
and spread, so that nothing cancels when one cell outweighs the rest by many orders, as near the
end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topmast.jit import inner
from topmast.policies.shares.interior_points import Data, State

Floats = NDArray[np.float64]


class Blocks(NamedTuple):
    """The factored equations."""

    weight: Floats
    """(m x n)"""
    pull: Floats
    """s weight (m x n)."""
    off: Floats
    """mean - a (m x n)."""
    block: Floats
    """(4 x n): the parts heavy, mean, rest and late."""
    schur: Floats
    """(m + 1 square): types and u."""
    room: Floats
    """(7 x n): scratch."""


@inner
def blocks_for(m: int, n: int) -> Blocks:
    """Room for the equations of n jobs and m types."""
    return Blocks(
        np.empty((m, n)), np.empty((m, n)), np.empty((m, n)), np.empty((4, n)),
        np.empty((m + 1, m + 1)), np.empty((7, n)),
    )  # fmt: skip


@inner
def factor(data: Data, now: State, over: State, into: Blocks) -> None:
    """Each job's block in parts, and what it leaves for the types and u. O(n m^2)."""
    m, n = data.a.shape
    _weigh(data, now, over, into)
    _block(data, into)
    schur, heavy, late, g = into.schur, into.block[0], into.block[3], data.g
    schur[:] = 0.0
    for j in range(m):
        _meet(data, into, j)
        schur[j, j] += now.k[j] / now.p[j]
    own = 0.0
    for i in range(n):
        own += g[i] * g[i] * (heavy[i] + late[i])
    schur[m, m] = -own - now.z[1] / now.z[0]
    for j in range(m + 1):
        for k in range(j):
            schur[k, j] = schur[j, k]


@inner
def _weigh(data: Data, now: State, over: State, into: Blocks) -> None:
    """The weights of cells, and what slack each of a job's two rows has by price. O(n m)."""
    m, n = data.a.shape
    for j in range(m):
        x, one_v, of, s, taken = now.x[j], over.v[j], into.weight[j], data.s[j], into.pull[j]
        for i in range(n):
            of[i] = x[i] * one_v[i]
        for i in range(n):
            taken[i] = s[i] * of[i]
    for r in range(2):
        w, one_y, loose = now.w[r], over.y[r], into.room[4 + r]
        for i in range(n):
            loose[i] = w[i] * one_y[i]


@inner
def _block(data: Data, into: Blocks) -> None:
    """The parts of each job's block. O(n m)."""
    m, n = data.a.shape
    e0, e1, one = into.room[4], into.room[5], into.room[6]
    heavy, mean, rest, late = into.block[0], into.block[1], into.block[2], into.block[3]
    _moments(data, into.weight, -1, heavy, mean, rest)
    for i in range(n):
        one[i] = 1.0 / _determinant(heavy[i], mean[i], rest[i], e0[i], e1[i])
    for i in range(n):
        rest[i] = (rest[i] + e0[i]) * one[i]
    for i in range(n):
        late[i] = e1[i] * one[i]
    for i in range(n):
        heavy[i] = heavy[i] * one[i]
    for j in range(m):
        a, away = data.a[j], into.off[j]
        for i in range(n):
            away[i] = mean[i] - a[i]


@inner
def _meet(data: Data, into: Blocks, j: int) -> None:
    """The row of type j among the types before it and u. O(n m)."""
    m, n = data.a.shape
    schur, pull, away, a, s, g = into.schur, into.pull[j], into.off[j], data.a[j], data.s[j], data.g
    heavy, rest, late = into.block[0], into.block[2], into.block[3]
    d, mean, spread, part = into.room[0], into.room[1], into.room[2], into.room[3]
    e0, e1, one = into.room[4], into.room[5], into.room[6]
    # 1 - d_j q_jj, as the determinant without the cell over that with it.
    _moments(data, into.weight, j, d, mean, spread)
    for i in range(n):
        part[i] = _determinant(d[i], mean[i], spread[i], e0[i], e1[i]) * one[i]
    own, tug = 0.0, 0.0
    for i in range(n):
        own += s[i] * pull[i] * part[i]
    for i in range(n):
        tug += g[i] * pull[i] * (heavy[i] * away[i] - late[i] * a[i])
    schur[j, j], schur[m, j] = own, -tug
    for k in range(j):
        other, pull_k, a_k = into.off[k], into.pull[k], data.a[k]
        for i in range(n):
            part[i] = heavy[i] * away[i] * other[i] + rest[i] + late[i] * a[i] * a_k[i]
        mixed = 0.0
        for i in range(n):
            mixed += pull[i] * pull_k[i] * part[i]
        schur[j, k] = -mixed


@inner
def _moments(
    data: Data, weight: Floats, left_out: int, d: Floats, mean: Floats, spread: Floats
) -> None:
    """Of each job's cells: weight, weighted mean of speeds, weighted squares about it. O(n m)."""
    m, n = data.a.shape
    d[:] = 0.0
    mean[:] = 0.0
    spread[:] = 0.0
    for j in range(m):
        if j != left_out:
            a, of = data.a[j], weight[j]
            for i in range(n):
                d[i] += of[i]
            for i in range(n):
                mean[i] += a[i] * of[i]
    for i in range(n):
        mean[i] = mean[i] / (d[i] if d[i] > 0.0 else 1.0)
    for j in range(m):
        if j != left_out:
            a, of = data.a[j], weight[j]
            for i in range(n):
                spread[i] += (a[i] - mean[i]) * (a[i] - mean[i]) * of[i]


@inner
def _determinant(d: float, mean: float, spread: float, e0: float, e1: float) -> float:
    return d * spread + e0 * d + e1 * (spread + d * mean * mean) + e0 * e1


@inner
def direction(
    data: Data, now: State, over: State, rest: State, aim: State, by: Blocks, step: State
) -> None:
    """Newton's direction for these aims, into ``step``: types and u, then jobs. O(n m)."""
    m, n = data.a.shape
    known = np.empty(m + 1)
    _ask(data, over, rest, aim, by, step, known)
    heavy, other, late = by.block[0], by.block[2], by.block[3]
    f0, f1, central = step.w[0], step.w[1], by.room[0]
    # The block's answer, in three parts that stay small where their sum cancels.
    for i in range(n):
        central[i] *= heavy[i]
    for i in range(n):
        f0[i] *= late[i]
    for i in range(n):
        f1[i] *= other[i]
    for j in range(m):
        pull, off, a = by.pull[j], by.off[j], data.a[j]
        used = 0.0
        for i in range(n):
            used += pull[i] * (off[i] * central[i] + f1[i] - a[i] * f0[i])
        known[j] -= used
    g, tug = data.g, 0.0
    for i in range(n):
        tug += g[i] * (central[i] + f0[i])
    known[m] = rest.z[1] + aim.z[0] * over.z[0] - tug
    _solve(by.schur.copy(), known)
    for j in range(m):
        step.p[j] = known[j]
        step.k[j] = (aim.k[j] - now.k[j] * known[j]) * over.p[j]
    step.z[0] = -known[m]
    step.z[1] = (aim.z[0] - now.z[1] * step.z[0]) * over.z[0]
    _answer(data, by, known, step)
    for j in range(m):
        _cells(data, now, over, aim, by, j, step)
    _rows(now, over, aim, by, step)


@inner
def _ask(
    data: Data, over: State, rest: State, aim: State, by: Blocks, step: State, right: Floats
) -> None:
    """What is asked of each job's block, and of the types: into ``step`` and ``right``. O(n m)."""
    m, n = data.a.shape
    mean, f0, f1, central = by.block[1], step.w[0], step.w[1], by.room[0]
    for r in range(2):
        into, want, one_y, lack = step.w[r], aim.w[r], over.y[r], rest.w[r]
        for i in range(n):
            into[i] = want[i] * one_y[i] - lack[i]
    for i in range(n):
        central[i] = f0[i] + mean[i] * f1[i]
    for j in range(m):
        a, off, s, moved = data.a[j], by.off[j], data.s[j], step.x[j]
        weight, lack, want, one_v = by.weight[j], rest.x[j], aim.x[j], over.v[j]
        for i in range(n):
            moved[i] = weight[i] * lack[i] + want[i] * one_v[i]
        for i in range(n):
            f0[i] -= a[i] * moved[i]
        for i in range(n):
            f1[i] += moved[i]
        for i in range(n):
            central[i] += off[i] * moved[i]
        used = 0.0
        for i in range(n):
            used += s[i] * moved[i]
        right[j] = aim.k[j] * over.p[j] - rest.k[j] + used


@inner
def _answer(data: Data, by: Blocks, known: Floats, step: State) -> None:
    """What is left of each block's answer, once the types' prices and u are known. O(n m)."""
    m, n = data.a.shape
    heavy, other, late = by.block[0], by.block[2], by.block[3]
    central, t0, t1, t2 = by.room[0], by.room[1], by.room[2], by.room[3]
    g, of_u = data.g, known[m]
    for i in range(n):
        t0[i] = g[i] * of_u
    t1[:] = 0.0
    t2[:] = t0
    for j in range(m):
        a, off, pull, price = data.a[j], by.off[j], by.pull[j], known[j]
        for i in range(n):
            t0[i] -= a[i] * pull[i] * price
        for i in range(n):
            t1[i] += pull[i] * price
        for i in range(n):
            t2[i] += off[i] * pull[i] * price
    f0, f1 = step.w[0], step.w[1]
    for i in range(n):
        central[i] -= heavy[i] * t2[i]
    for i in range(n):
        f0[i] -= late[i] * t0[i]
    for i in range(n):
        f1[i] -= other[i] * t1[i]


@inner
def _rows(now: State, over: State, aim: State, by: Blocks, step: State) -> None:
    """The direction of slacks and prices of jobs' rows, after the block's answer. O(n)."""
    mean, central, f0, f1 = by.block[1], by.room[0], step.w[0], step.w[1]
    dy0, dy1 = step.y[0], step.y[1]
    n = len(mean)
    for i in range(n):
        dy0[i] = central[i] + f0[i]
    for i in range(n):
        dy1[i] = mean[i] * central[i] + f1[i]
    for r in range(2):
        dw, want, w, dy, one_y = step.w[r], aim.w[r], now.w[r], step.y[r], over.y[r]
        for i in range(n):
            dw[i] = (want[i] - w[i] * dy[i]) * one_y[i]


@inner
def _cells(
    data: Data, now: State, over: State, aim: State, by: Blocks, j: int, step: State
) -> None:
    """The direction of the cells of type j, once the rest is known."""
    n = data.a.shape[1]
    central, f0, f1, priced = by.room[0], step.w[0], step.w[1], by.room[1]
    a, s, off, weight = data.a[j], data.s[j], by.off[j], by.weight[j]
    dx, dv, want, v, one_x = step.x[j], step.v[j], aim.x[j], now.v[j], over.x[j]
    price = step.p[j]
    for i in range(n):
        priced[i] = off[i] * central[i] + f1[i] - a[i] * f0[i]
    for i in range(n):
        dx[i] -= weight[i] * (priced[i] + s[i] * price)
    for i in range(n):
        dv[i] = (want[i] - v[i] * dx[i]) * one_x[i]


@inner
def _solve(matrix: Floats, right: Floats) -> None:
    """Gaussian elimination with pivoting, in place. O(m^3)."""
    size = len(right)
    for c in range(size):
        best = c
        for r in range(c + 1, size):
            if abs(matrix[r, c]) > abs(matrix[best, c]):
                best = r
        for k in range(size):
            matrix[c, k], matrix[best, k] = matrix[best, k], matrix[c, k]
        right[c], right[best] = right[best], right[c]
        for r in range(c + 1, size):
            ratio = matrix[r, c] / matrix[c, c]
            right[r] -= ratio * right[c]
            for k in range(c, size):
                matrix[r, k] -= ratio * matrix[c, k]
    for c in range(size - 1, -1, -1):
        for k in range(c + 1, size):
            right[c] -= matrix[c, k] * right[k]
        right[c] /= matrix[c, c]
