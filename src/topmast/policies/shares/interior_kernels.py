"""An interior-point method for rising floors without pairs, compiled.

The program, with x >= 0 and u >= 0: maximise u, where for every job i ``a_i x_i - g_i u >= h_i``
and ``sum x_i <= 1``, and for every type j ``sum_i s_ij x_ij <= 1``. Mehrotra's predictor and
corrector (SIAM J. Optim. 1992) starts at a feasible point. Jobs interact only through the m types
and u: the two rows of each job are eliminated, which leaves m + 1 unknowns. An iteration costs O(n
m^2), and some 10 to 20 iterations suffice for any number of jobs.
"""

from __future__ import annotations

import numpy as np

from topmast.jit import kernel
from topmast.policies.shares.interior_newton import blocks_for, direction, factor
from topmast.policies.shares.interior_points import (
    Data,
    State,
    aims,
    gap_after,
    go,
    inverse,
    like,
    reach,
    residuals,
)

STEP = 0.995
"""How far towards the nearest wall a step goes."""


@kernel
def rise(data: Data, now: State, tolerance: float, most: int) -> tuple[int, float, float]:
    """Move ``now`` to the optimum: iterations, relative gap, worst residual. O(n m^2) each."""
    m, n = data.a.shape
    rest, aim, over = like(m, n), like(m, n), like(m, n)
    step, first, by = like(m, n), like(m, n), blocks_for(m, n)
    gap, worst, size = np.inf, np.inf, 2 * n + m + 1 + data.may.sum()
    for turn in range(most):
        gap, worst = residuals(data, now, rest)
        if gap <= tolerance * now.z[0] or gap != gap:
            return turn, gap / now.z[0], worst
        inverse(data, now, over)
        factor(data, now, over, by)
        aims(data, now, aim, 0.0, step, 0.0)
        direction(data, now, over, rest, aim, by, first)
        primal, dual = reach(over, first)
        after = gap_after(now, first, primal, dual)
        aims(data, now, aim, (after / gap) ** 3 * gap / size, first, 1.0)
        direction(data, now, over, rest, aim, by, step)
        primal, dual = reach(over, step)
        if max(primal, dual) < 1e-10:
            break
        go(now, step, min(1.0, STEP * primal), min(1.0, STEP * dual))
    return most, gap / max(now.z[0], 1e-300), worst
