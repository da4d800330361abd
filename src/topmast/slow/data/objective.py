"""What a placement costs: the four terms, the loads, and whether it breaks a rule."""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from topmast.slow.arrays import Bools, Floats
from topmast.slow.data.columns import Columns


class Terms(Struct, frozen=True):
    """The four costs of the objective, in the currency of the prices."""

    non_collocated: float
    overload: float
    replicas: float
    moves: float

    def total(self) -> float:
        """The objective."""
        return math.fsum((self.non_collocated, self.overload, self.replicas, self.moves))


def loads(columns: Columns, serve: Floats) -> Floats:
    """GPUs in use where workloads are served with shares ``serve`` [W, R]: [R, G]."""
    result: Floats = serve.T @ columns.demand
    return result


def overload_cost(columns: Columns, load: Floats) -> float:
    """The price of all load beyond the supply, segment by segment."""
    over = np.maximum(0.0, load - columns.supply)
    cost = 0.0
    last = len(columns.price) - 1
    for s, price in enumerate(columns.price):
        part = over if s == last else np.minimum(over, columns.room[:, :, s])
        cost += float(price) * math.fsum(part.ravel())
        over = over - part
    return cost


def terms_of(columns: Columns, placed: Bools, serve: Floats) -> Terms:
    """The cost of replicas ``placed`` [D, R] and shares ``serve`` [W, R]. O(D R + W (R + G))."""
    unserved = np.clip(1.0 - serve.sum(axis=1), 0.0, 1.0)
    copied = (placed & ~columns.held).sum(axis=1)
    return Terms(
        non_collocated=math.fsum(unserved * columns.loss),
        overload=overload_cost(columns, loads(columns, serve)),
        replicas=math.fsum(columns.keep_cost * placed.sum(axis=1)),
        moves=math.fsum((columns.copy_cost - columns.keep_cost) * copied),
    )


def constant_of(columns: Columns) -> float:
    """What no decision avoids: the least replicas, the copies without which there are not enough of
    them, and demand that can be served nowhere. O(D R + W R).
    """
    least = columns.least * columns.keep_cost
    kept = (columns.held & columns.can).sum(axis=1)
    copies = np.maximum(0, columns.least - kept) * (columns.copy_cost - columns.keep_cost)
    nowhere = columns.loss[~columns.may_serve.any(axis=1)]
    return math.fsum([*least, *copies, *nowhere])
