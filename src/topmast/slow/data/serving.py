"""Which workload is served where, once the replicas are decided: a linear program, solved to the
end.
"""

from __future__ import annotations

import numpy as np

from topmast.slow.arrays import Bools, Floats
from topmast.slow.data.columns import Columns
from topmast.slow.data.formulation import formulate
from topmast.slow.highs import Effort, solve

TINY = 1e-9


def best_service(columns: Columns, placed: Bools) -> Floats:
    """The shares [W, R] of least cost under replicas ``placed`` [D, R].

    One linear program over the workloads that have a choice or compete for something.
    """
    program = formulate(columns, placed, placed)
    model = program.model
    relaxed = type(model)(model.cost, model.low, model.high, model.rows, None, model.offset)
    solved = solve(relaxed, Effort())
    serve = np.zeros(columns.may_serve.shape)
    if solved.values is not None:
        there = program.share >= 0
        serve[there] = solved.values[program.share[there]]
    return tidy(columns, placed, serve)


def tidy(columns: Columns, placed: Bools, serve: Floats) -> Floats:
    """Shares with the solver's rounding taken away: every hard rule holds exactly. O(W R)."""
    serve = np.where(serves(columns, placed) & (serve > TINY), np.minimum(serve, 1.0), 0.0)
    serve = np.where(serve > 1.0 - TINY, 1.0, serve)
    total = serve.sum(axis=1)
    serve = np.where((total > 1.0)[:, None], serve / np.maximum(total, 1.0)[:, None], serve)
    used = columns.needs_cpus @ serve
    fits = np.where(used > columns.cpus, columns.cpus / np.maximum(used, TINY) * (1 - 1e-12), 1.0)
    heavy = columns.needs_cpus > 0
    result: Floats = np.where(heavy[:, None], serve * fits, serve)
    return result


def serves(columns: Columns, placed: Bools) -> Bools:
    """Where each workload may be served under a placement, [W, R]. O(items R)."""
    missing = np.zeros(columns.may_serve.shape, np.int64)
    np.add.at(missing, columns.reads.owners(), ~placed[columns.reads.items])
    result: Bools = columns.may_serve & (missing == 0)
    return result
