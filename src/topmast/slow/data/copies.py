"""Which copies and drops lead from the start to a placement, and over which links the copies
come.
"""

from __future__ import annotations

import numpy as np

from topmast.slow.arrays import Bools, Floats, Ints
from topmast.slow.data.columns import Columns
from topmast.slow.highs import INF, Effort, Model, Rows, solve

NOWHERE = -1
NODES = 10_000


def sources_of(columns: Columns, placed: Bools) -> Ints | None:
    """From where each new replica is copied, [D, R]; -1: kept, or of a table that was nowhere.

    None when the links do not carry it. A greedy choice first, largest copies first, each over the
    link with most room; where that fails HiGHS searches. O(copies R), and the search.
    """
    found = np.full(placed.shape, NOWHERE, np.int64)
    somewhere = columns.held.sum(axis=1, keepdims=True) > 0
    tables, targets = np.nonzero(placed & ~columns.held & somewhere)
    left = columns.link_bytes.copy()
    for i in np.lexsort((targets, tables, -columns.size_bytes[tables])):
        d, r = tables[i], targets[i]
        room = np.where(columns.held[d], left[:, r], -1.0)
        s = int(room.argmax())
        if room[s] < columns.size_bytes[d]:
            return _search(columns, tables, targets)
        left[s, r] -= columns.size_bytes[d]
        found[d, r] = s
    return found


def _search(columns: Columns, tables: Ints, targets: Ints) -> Ints | None:
    """The same by a mixed-integer program: each copy over one of its links, no link overfull."""
    size, link = columns.size_bytes, columns.link_bytes
    copy, source = np.nonzero(columns.held[tables] & (size[tables, None] <= link[:, targets].T))
    unit = max(1.0, float(size.max(initial=0.0)) / 1e3)
    rows = Rows()
    first = rows.add(len(tables), 1.0, 1.0)
    rows.put(first + copy, np.arange(len(copy)), 1.0)
    pair = source * len(link) + targets[copy]
    used, of = np.unique(pair, return_inverse=True)
    first = rows.add(len(used), -INF, link.ravel()[used] / unit)
    rows.put(first + of, np.arange(len(copy)), size[tables[copy]] / unit)
    count = len(copy)
    model = Model(np.zeros(count), np.zeros(count), np.ones(count), rows, np.ones(count, bool))
    solved = solve(model, Effort(nodes=NODES))
    if solved.values is None:
        return None
    chosen = solved.values > 0.5
    found = np.full(columns.can.shape, NOWHERE, np.int64)
    found[tables[copy[chosen]], targets[copy[chosen]]] = source[chosen]
    carried: Floats = np.zeros(link.shape)
    np.add.at(carried, (source[chosen], targets[copy[chosen]]), size[tables[copy[chosen]]])
    return found if (carried <= link).all() else None


def is_allowed(columns: Columns, placed: Bools) -> bool:
    """Whether a placement keeps every hard rule but the links'. O(D R)."""
    bytes_here = (columns.size_bytes[:, None] * placed).sum(axis=0)
    copied = (columns.size_bytes[:, None] * (placed & ~columns.held)).sum()
    return bool(
        (placed <= columns.can).all()
        and (placed.sum(axis=1) >= columns.least).all()
        and (bytes_here <= columns.storage_bytes).all()
        and copied <= columns.budget_bytes
    )
