"""The assignment of one model's hosts as a program for HiGHS: whole, or with the fullest domains
decided.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from topmast.slow.arrays import Floats, Ints
from topmast.slow.capacity.classes import Classes
from topmast.slow.highs import INF, Model, Rows


class Program(Struct, frozen=True):
    """A program; ``part[i, k, e]`` is the column of the hosts that k keeps (i = 0, 1) or gets
    (2), or -1.
    """

    model: Model
    part: Ints

    def counts(self, values: Floats) -> Ints:
        """The hosts of every claimant and cell in a point of the program."""
        parts = np.where(self.part >= 0, np.rint(values[self.part]), 0.0)
        count: Ints = parts.sum(axis=0).astype(np.int64)
        return count


def rooms(classes: Classes, worst: Ints | None = None) -> Ints:
    """How many hosts of each part there may be [3, K, E]; ``worst[k]``: at most so many in a
    cell.
    """
    most = np.broadcast_to(classes.total, classes.have.shape[1:])
    if worst is not None:
        most = np.minimum(most, worst[:, None])
    dear = np.minimum(classes.have[0], most)
    kept = np.minimum(classes.have.sum(axis=0), most)
    return np.stack([dear, kept - dear, most - kept])


def steps(classes: Classes) -> tuple[Ints, Floats]:
    """How many whole units are wanted, and the GPUs of one more that is wanted in part: both [K].

    Capacities come in units of GPUs; missing ones cost the same at every number that can be
    reached, and nothing between is cheaper than its neighbours: this is what makes the relaxation
    tight. What is wanted beyond all hosts together is left out, as it cannot be given.
    """
    unit = classes.unit_gpus
    most = float((classes.total * classes.gpus).sum()) / unit
    full = np.floor(classes.wanted / unit)
    rest = np.where(full < most, classes.wanted - full * unit, 0.0)
    return np.minimum(full, most).astype(np.int64), rest


def formulate(classes: Classes, worst: Ints | None = None, whole: bool = True) -> Program:
    """The program; with ``worst`` (hosts; even classes only) it is a flow, whole by itself. O(K
    E).
    """
    room = rooms(classes, worst)
    part = np.full(room.shape, -1, np.int64)
    there = room > 0
    columns = int(there.sum())
    part[there] = np.arange(columns)
    prices = np.stack([classes.far - price for price in (*classes.move, 0.0)])
    full, rest = steps(classes)
    claimants = len(full)
    widest = classes.total.sum() if worst is None else 0
    cost = [prices[there], np.full(claimants, 0.0), classes.price * rest]
    cost.append(classes.price * classes.unit_gpus)
    ends = [room[there], np.where(classes.survive, widest * _most(classes), 0)]
    ends += [(rest > 0).astype(float), full]
    rows = Rows()
    _balance(rows, classes, part)
    _capacity(rows, classes, part, columns, worst)
    high = np.concatenate([np.asarray(each, float) for each in ends])
    costs = np.concatenate(cost)
    kept = sum(p * classes.have[i].sum() for i, p in enumerate(classes.move))
    beyond = classes.price @ (classes.wanted - full * classes.unit_gpus - rest)
    integral = np.ones(len(high), bool) if whole else None
    return Program(
        Model(costs, np.zeros(len(high)), high, rows, integral, float(kept + beyond)), part
    )


def _most(classes: Classes) -> int:
    return int(classes.gpus.max()) // classes.unit_gpus if len(classes.gpus) else 0


def _balance(rows: Rows, classes: Classes, part: Ints) -> None:
    """Every host has one claimant."""
    first = rows.add(len(classes.total), classes.total, classes.total)
    cell = np.broadcast_to(np.arange(len(classes.total)), part.shape)
    rows.put(first + cell[part >= 0], part[part >= 0], 1.0)


def _capacity(rows: Rows, classes: Classes, part: Ints, columns: int, worst: Ints | None) -> None:
    """What survives and what is missing make up the capacity; the fullest domain is the fullest."""
    full, rest = steps(classes)
    claimants = np.arange(len(full))
    units = np.broadcast_to(classes.gpus // classes.unit_gpus, part.shape)
    there = part >= 0
    need = full + (rest > 0)
    lost = 0 if worst is None else np.where(classes.survive, worst, 0)
    first = rows.add(len(full), need + lost, INF)
    owner = np.broadcast_to(claimants[:, None], part.shape)
    rows.put(first + owner[there], part[there], units[there])
    for step in (1, 2):
        rows.put(first + claimants, columns + step * len(full) + claimants, 1.0)
    if worst is not None:
        return
    rows.put(first + claimants, columns + claimants, -1.0)
    survivors = np.nonzero(classes.survive)[0]
    if not len(survivors):
        return
    domains = int(classes.domain.max()) + 1 if len(classes.domain) else 0
    first = rows.add(len(survivors) * domains, 0.0, INF)
    number = np.full(len(full), -1)
    number[survivors] = np.arange(len(survivors))
    row = first + number[owner] * domains + np.broadcast_to(classes.domain, part.shape)
    counted = there & (number[owner] >= 0)
    rows.put(row[counted], part[counted], -units[counted])
    every = first + np.arange(len(survivors) * domains)
    rows.put(every, columns + np.repeat(survivors, domains), 1.0)
