"""The part of a problem that is not decided yet, as a problem of its own: a dive into it costs
what it is large, not what the whole is.

In it are the tables of which a replica is open, the workloads that read them, and all that those
read.
A workload outside stays where the relaxation has it, and is taken off what regions and links have
left.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from topmast.slow.arrays import Bools, Floats, Ints
from topmast.slow.data.columns import Columns, Lists, turned
from topmast.slow.data.prices import Point, Relaxation, Relaxed
from topmast.slow.data.search_kernels import State


class Part(Struct, frozen=True):
    """The relaxation of a part, the point to begin with, and the numbers in the whole of its
    tables and workloads.
    """

    relaxation: Relaxation
    relaxed: Relaxed
    tables: Ints
    works: Ints

    def into(
        self, whole: Relaxed, rest: Floats, replicas: Floats, shares: Floats
    ) -> tuple[Floats, Floats]:
        """What was found, put into the whole: replicas and shares."""
        all_replicas, all_shares = whole.replicas.copy(), rest.copy()
        all_replicas[self.tables], all_shares[self.works] = replicas, shares
        return all_replicas, all_shares


def readers_of(columns: Columns, tables: Bools) -> Bools:
    """The workloads that read one of ``tables`` [D]: [W]. O(items)."""
    found = np.zeros(len(columns.loss), bool)
    found[columns.reads.owners()[tables[columns.reads.items]]] = True
    return found


def part_of(whole: Relaxation, relaxed: Relaxed, placed: State, works: Bools, rest: Floats) -> Part:
    """The part around ``works`` [W], with what ``placed`` and ``relaxed`` have of the rest taken
    off.

    O(items + (D + W) R), without iterations.
    """
    columns, reads = whole.columns, whole.columns.reads
    edge = works[reads.owners()]
    tables = np.zeros(len(columns.least), bool)
    tables[reads.items[edge]] = True
    number = np.cumsum(tables) - 1
    start = np.zeros(works.sum() + 1, np.int64)
    start[1:] = np.cumsum(np.diff(reads.start)[works])
    small = Lists(start, number[reads.items[edge]])
    left = _left(columns, rest, placed, tables, works)
    rows = {
        name: getattr(columns, name)[tables]
        for name in ("size_bytes", "held", "least", "can", "keep_cost", "copy_cost")
    }
    for name in ("demand", "needs_cpus", "loss", "may_serve"):
        rows[name] = getattr(columns, name)[works]
    cut = replace(left, reads=small, readers=turned(small, int(tables.sum())), **rows)
    x, y, m, p, q = relaxed.point.arrays
    point = Point(x[tables], y[works], m[edge], p.copy(), q.copy())
    begin = Relaxed(relaxed.bound, relaxed.prices, point, relaxed.weight, relaxed.iterations)
    return Part(Relaxation(cut, whole.byte), begin, np.flatnonzero(tables), np.flatnonzero(works))


def _left(columns: Columns, rest: Floats, placed: State, tables: Bools, works: Bools) -> Columns:
    """What regions and links have left beside the rest. Supply may be below zero: then the rest is
    overloaded already, and each GPU more costs what it costs there.
    """
    others = placed.placed & ~tables[:, None]
    fresh = others & ~columns.held
    carried = np.zeros_like(columns.link_bytes)
    d, r = np.nonzero(fresh & (placed.source >= 0))
    np.add.at(carried, (placed.source[d, r], r), columns.size_bytes[d])
    served = rest[~works]
    return replace(
        columns,
        storage_bytes=np.maximum(0.0, columns.storage_bytes - columns.size_bytes @ others),
        budget_bytes=max(0.0, columns.budget_bytes - float((columns.size_bytes @ fresh).sum())),
        link_bytes=np.maximum(0.0, columns.link_bytes - carried),
        cpus=np.maximum(0.0, columns.cpus - columns.needs_cpus[~works] @ served),
        supply=columns.supply - served.T @ columns.demand[~works],
    )
