"""An interior-point method for rising floors without pairs, compiled.

The program, with x >= 0 and u >= 0: maximise u, where for every job i ``a_i x_i - g_i u >= h_i``
and ``sum x_i <= 1``, and for every type j ``sum_i s_ij x_ij <= 1``. Mehrotra's predictor and corrector
(SIAM J. Optim. 1992) from a feasible start. Jobs meet only in the m types and in u: their two rows are
eliminated job by job, and what is left is a system of m + 1 unknowns, so that an iteration costs
O(n m^2), and some 15 to 25 iterations do, however many jobs there are.

Columns: ``x``, ``v`` (n x m) cells and their reduced costs; ``w``, ``y`` (n x 2) slacks and prices of a job's
floor and time; ``k``, ``p`` (m) slacks and prices of the types; ``z`` = (u, its reduced cost).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topmast.policies.shares.jit import inner, kernel

Floats = NDArray[np.float64]
STEP = 0.995
"""How far towards the nearest wall a step goes."""


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
    """The program: ``may`` (n x m) says where x may differ from 0; there a > 0 and s > 0."""

    a: Floats
    s: Floats
    g: Floats
    h: Floats
    may: NDArray[np.bool_]


@kernel
def rise(data: Data, now: State, tolerance: float, most: int) -> tuple[int, float, float]:
    """Move ``now`` to the optimum: iterations, gap over the height, worst residual. O(n m^2) each."""
    n, m = data.a.shape
    rest, aim = _like(n, m), _like(n, m)
    step, first = _like(n, m), _like(n, m)
    blocks, schur = np.empty((n, 5)), np.empty((m + 1, m + 1))
    weight = np.zeros((n, m))
    gap, worst, size = np.inf, np.inf, 2 * n + m + 1 + data.may.sum()
    for turn in range(most):
        gap, worst = _residuals(data, now, rest)
        if gap <= tolerance * now.z[0] or gap != gap:
            return turn, gap / now.z[0], worst
        _factor(data, now, weight, blocks, schur)
        _aims(data, now, aim, 0.0, step, False)
        _direction(data, now, rest, aim, weight, blocks, schur.copy(), first)
        reach_p, reach_d = _reach(data, now, first)
        after = _gap_after(data, now, first, reach_p, reach_d)
        centre = (after / gap) ** 3 * gap / size
        _aims(data, now, aim, centre, first, True)
        _direction(data, now, rest, aim, weight, blocks, schur.copy(), step)
        reach_p, reach_d = _reach(data, now, step)
        if max(reach_p, reach_d) < 1e-10:
            break
        _go(now, step, min(1.0, STEP * reach_p), min(1.0, STEP * reach_d))
    return most, gap / max(now.z[0], 1e-300), worst


@inner
def _like(n: int, m: int) -> State:
    return State(
        np.zeros((n, m)), np.zeros((n, m)), np.zeros((n, 2)), np.zeros((n, 2)),
        np.zeros(m), np.zeros(m), np.zeros(2),
    )  # fmt: skip


@inner
def _residuals(data: Data, now: State, rest: State) -> tuple[float, float]:
    """What the equations lack, into ``rest`` (primal in w, k; dual in x, z[1]); gap and worst residual."""
    n, m = data.a.shape
    u = now.z[0]
    gap, worst = u * now.z[1], 0.0
    dual_u = 1.0 + now.z[1]
    for j in range(m):
        rest.k[j] = 1.0 - now.k[j]
        gap += now.k[j] * now.p[j]
    for i in range(n):
        speed, time = 0.0, 0.0
        y0, y1 = now.y[i]
        for j in range(m):
            if data.may[i, j]:
                x = now.x[i, j]
                speed += data.a[i, j] * x
                time += x
                rest.k[j] -= data.s[i, j] * x
                reduced = y1 - data.a[i, j] * y0 + data.s[i, j] * now.p[j]
                rest.x[i, j] = now.v[i, j] - reduced
                worst = max(worst, abs(rest.x[i, j]))
                gap += x * now.v[i, j]
        rest.w[i, 0] = speed - data.g[i] * u - data.h[i] - now.w[i, 0]
        rest.w[i, 1] = 1.0 - time - now.w[i, 1]
        worst = max(worst, abs(rest.w[i, 0]), abs(rest.w[i, 1]))
        gap += now.w[i, 0] * y0 + now.w[i, 1] * y1
        dual_u -= data.g[i] * y0
    rest.z[1] = dual_u
    worst = max(worst, abs(dual_u))
    for j in range(m):
        worst = max(worst, abs(rest.k[j]))
    return gap, worst


@inner
def _factor(data: Data, now: State, weight: Floats, blocks: Floats, schur: Floats) -> None:
    """Each job's 2 x 2 block in parts, and what it leaves for the types and u. O(n m^2).

    With weights ``d_j = x / v`` a block is a variance and its like: it is kept as weight, mean and spread, so
    that nothing cancels when one cell outweighs the rest by many orders, as happens near the end.
    """
    n, m = data.a.shape
    schur[:] = 0.0
    for i in range(n):
        for j in range(m):
            if data.may[i, j]:
                weight[i, j] = now.x[i, j] / now.v[i, j]
        e0, e1 = now.w[i, 0] / now.y[i, 0], now.w[i, 1] / now.y[i, 1]
        d, mean, spread = _moments(data, weight, i, -1)
        det = _determinant(d, mean, spread, e0, e1)
        heavy, rest, late = d / det, (spread + e0) / det, e1 / det
        blocks[i, 0], blocks[i, 1], blocks[i, 2], blocks[i, 3] = heavy, mean, rest, late
        for j in range(m):
            if not data.may[i, j]:
                continue
            off, a = mean - data.a[i, j], data.a[i, j]
            pull = data.s[i, j] * weight[i, j]
            # 1 - d_j q_jj, as the determinant without the cell over that with it.
            d_, mean_, spread_ = _moments(data, weight, i, j)
            without = _determinant(d_, mean_, spread_, e0, e1) / det
            schur[j, j] += data.s[i, j] * pull * without
            schur[m, j] -= data.g[i] * pull * (heavy * off - late * a)
            for k in range(j):
                if data.may[i, k]:
                    other = data.s[i, k] * weight[i, k]
                    mixed = heavy * off * (mean - data.a[i, k]) + rest + late * a * data.a[i, k]
                    schur[j, k] -= pull * other * mixed
        schur[m, m] -= data.g[i] * data.g[i] * (heavy + late)
    for j in range(m):
        schur[j, j] += now.k[j] / now.p[j]
    schur[m, m] -= now.z[1] / now.z[0]
    for j in range(m + 1):
        for k in range(j):
            schur[k, j] = schur[j, k]


@inner
def _moments(data: Data, weight: Floats, i: int, left_out: int) -> tuple[float, float, float]:
    """Weight, weighted mean of the speeds, and weighted sum of squares about it, of a job's cells."""
    d, ad, spread = 0.0, 0.0, 0.0
    m = data.a.shape[1]
    for j in range(m):
        if data.may[i, j] and j != left_out:
            d += weight[i, j]
            ad += data.a[i, j] * weight[i, j]
    if d == 0.0:
        return 0.0, 0.0, 0.0
    mean = ad / d
    for j in range(m):
        if data.may[i, j] and j != left_out:
            off = data.a[i, j] - mean
            spread += off * off * weight[i, j]
    return d, mean, spread


@inner
def _determinant(d: float, mean: float, spread: float, e0: float, e1: float) -> float:
    return d * spread + e0 * d + e1 * (spread + d * mean * mean) + e0 * e1


@inner
def _aims(data: Data, now: State, aim: State, centre: float, first: State, correct: bool) -> None:
    """What each product of a variable and its price should change by: cells in x, rows in w and k, u in z."""
    n, m = data.a.shape
    for i in range(n):
        for j in range(m):
            if data.may[i, j]:
                aim.x[i, j] = centre - now.x[i, j] * now.v[i, j]
                if correct:
                    aim.x[i, j] -= first.x[i, j] * first.v[i, j]
        for r in range(2):
            aim.w[i, r] = centre - now.w[i, r] * now.y[i, r]
            if correct:
                aim.w[i, r] -= first.w[i, r] * first.y[i, r]
    for j in range(m):
        aim.k[j] = centre - now.k[j] * now.p[j]
        if correct:
            aim.k[j] -= first.k[j] * first.p[j]
    aim.z[0] = centre - now.z[0] * now.z[1]
    if correct:
        aim.z[0] -= first.z[0] * first.z[1]


@inner
def _direction(
    data: Data,
    now: State,
    rest: State,
    aim: State,
    weight: Floats,
    blocks: Floats,
    schur: Floats,
    step: State,
) -> None:
    """Newton's direction for these aims, into ``step``: types and u first, then job by job."""
    n, m = data.a.shape
    right = np.empty(m + 1)
    for j in range(m):
        right[j] = aim.k[j] / now.p[j] - rest.k[j]
    right[m] = rest.z[1] + aim.z[0] / now.z[0]
    for i in range(n):
        heavy, mean, other, late, _ = blocks[i]
        f0 = aim.w[i, 0] / now.y[i, 0] - rest.w[i, 0]
        f1 = aim.w[i, 1] / now.y[i, 1] - rest.w[i, 1]
        central = f0 + mean * f1
        for j in range(m):
            if data.may[i, j]:
                moved = weight[i, j] * rest.x[i, j] + aim.x[i, j] / now.v[i, j]
                step.x[i, j] = moved
                f0 -= data.a[i, j] * moved
                f1 += moved
                central += (mean - data.a[i, j]) * moved
                right[j] += data.s[i, j] * moved
        # The block's answer, in three parts that stay small where their sum cancels.
        central, f0, f1 = heavy * central, late * f0, other * f1
        step.w[i, 0], step.w[i, 1], blocks[i, 4] = f0, f1, central
        for j in range(m):
            if data.may[i, j]:
                pull = data.s[i, j] * weight[i, j]
                a = data.a[i, j]
                right[j] -= pull * ((mean - a) * central + f1 - a * f0)
        right[m] -= data.g[i] * (central + f0)
    _solve(schur, right)
    _back(data, now, aim, weight, blocks, right, step)


@inner
def _back(
    data: Data, now: State, aim: State, weight: Floats, blocks: Floats, known: Floats, step: State
) -> None:
    """The rest of a direction, once the types' prices and u are known."""
    n, m = data.a.shape
    for j in range(m):
        step.p[j] = known[j]
        step.k[j] = (aim.k[j] - now.k[j] * known[j]) / now.p[j]
    step.z[0] = -known[m]
    step.z[1] = (aim.z[0] - now.z[1] * step.z[0]) / now.z[0]
    for i in range(n):
        heavy, mean, other, late, _ = blocks[i]
        t0 = data.g[i] * known[m]
        t1, central = 0.0, t0
        for j in range(m):
            if data.may[i, j]:
                pull = data.s[i, j] * weight[i, j] * known[j]
                t0 -= data.a[i, j] * pull
                t1 += pull
                central += (mean - data.a[i, j]) * pull
        central = blocks[i, 4] - heavy * central
        f0, f1 = step.w[i, 0] - late * t0, step.w[i, 1] - other * t1
        step.y[i, 0], step.y[i, 1] = central + f0, mean * central + f1
        for r in range(2):
            step.w[i, r] = (aim.w[i, r] - now.w[i, r] * step.y[i, r]) / now.y[i, r]
        for j in range(m):
            if data.may[i, j]:
                a = data.a[i, j]
                priced = (mean - a) * central + f1 - a * f0 + data.s[i, j] * known[j]
                step.x[i, j] -= weight[i, j] * priced
                step.v[i, j] = (aim.x[i, j] - now.v[i, j] * step.x[i, j]) / now.x[i, j]


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
            factor = matrix[r, c] / matrix[c, c]
            right[r] -= factor * right[c]
            for k in range(c, size):
                matrix[r, k] -= factor * matrix[c, k]
    for c in range(size - 1, -1, -1):
        for k in range(c + 1, size):
            right[c] -= matrix[c, k] * right[k]
        right[c] /= matrix[c, c]


@inner
def _wall(value: float, move: float, reach: float) -> float:
    """How far one may go until ``value`` is 0, ``reach`` at most."""
    return -value / move if value < -reach * move else reach


@inner
def _reach(data: Data, now: State, step: State) -> tuple[float, float]:
    """How far a direction leads before a variable, or a price, is 0; beyond 1 does not matter."""
    n, m = data.a.shape
    primal, dual = _wall(now.z[0], step.z[0], 2.0), _wall(now.z[1], step.z[1], 2.0)
    for i in range(n):
        for j in range(m):
            if data.may[i, j]:
                primal = _wall(now.x[i, j], step.x[i, j], primal)
                dual = _wall(now.v[i, j], step.v[i, j], dual)
        for r in range(2):
            primal = _wall(now.w[i, r], step.w[i, r], primal)
            dual = _wall(now.y[i, r], step.y[i, r], dual)
    for j in range(m):
        primal = _wall(now.k[j], step.k[j], primal)
        dual = _wall(now.p[j], step.p[j], dual)
    return primal, dual


@inner
def _gap_after(data: Data, now: State, step: State, primal: float, dual: float) -> float:
    """The gap after a step as far as it leads."""
    n, m = data.a.shape
    primal, dual = min(primal, 1.0), min(dual, 1.0)
    gap: float = (now.z[0] + primal * step.z[0]) * (now.z[1] + dual * step.z[1])
    for i in range(n):
        for j in range(m):
            if data.may[i, j]:
                x = now.x[i, j] + primal * step.x[i, j]
                gap += x * (now.v[i, j] + dual * step.v[i, j])
        for r in range(2):
            w = now.w[i, r] + primal * step.w[i, r]
            gap += w * (now.y[i, r] + dual * step.y[i, r])
    for j in range(m):
        gap += (now.k[j] + primal * step.k[j]) * (now.p[j] + dual * step.p[j])
    return gap


@inner
def _go(now: State, step: State, primal: float, dual: float) -> None:
    """Take the step."""
    now.x[:] += primal * step.x
    now.w[:] += primal * step.w
    now.k[:] += primal * step.k
    now.v[:] += dual * step.v
    now.y[:] += dual * step.y
    now.p[:] += dual * step.p
    now.z[0] += primal * step.z[0]
    now.z[1] += dual * step.z[1]
