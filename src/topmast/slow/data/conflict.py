"""Why there is no placement: a small set of tables and regions that cannot be reconciled.

Tables that must have some of their replicas within a set of regions need bytes there. The set is
in conflict when they need more than it can store. Replicas split at will would fit exactly when
no set of regions is in conflict, so that this finds all conflicts but those of whole tables,
which `smallest` finds by trying to leave out one table after the other.
"""

from __future__ import annotations

from itertools import combinations

import msgspec
import numpy as np
from msgspec import Struct

from topmast.slow.arrays import Bools, Floats, Ints
from topmast.slow.data.columns import Columns
from topmast.slow.data.formulation import formulate
from topmast.slow.highs import Effort, solve

MOST_SETS = 5_000
MOST_TRIALS = 200
NODES = 20_000


class Conflict(Struct, frozen=True):
    """``tables`` need ``bytes`` more in ``regions`` than is possible there; ``why`` says it in
    words.
    """

    tables: tuple[int, ...]
    regions: tuple[int, ...]
    bytes: float
    why: str


def conflict_of(columns: Columns) -> Conflict | None:
    """The smallest conflict found between residency, storage and links; None if none is found."""
    return _alone(columns) or _crowded(columns)


def _alone(columns: Columns) -> Conflict | None:
    """A table that by itself cannot have its replicas: the first. O(D R)."""
    short = columns.least - columns.can.sum(axis=1)
    for d in np.nonzero(short > 0)[0]:
        size = float(columns.size_bytes[d])
        others = tuple(int(r) for r in np.nonzero(~columns.can[d])[0])
        why = (
            f"it must have {columns.least[d]} replicas,"
            f" and only {columns.can[d].sum()} regions are "
            "allowed, have storage for it, and have it or can be reached from where it is"
        )
        return Conflict((int(d),), others, size * float(short[d]), why)
    return None


def _crowded(columns: Columns) -> Conflict | None:
    """Tables that need more bytes in some regions than these store. O(sets D R)."""
    best: Conflict | None = None
    for regions in _sets(columns):
        inside = np.zeros(columns.can.shape[1], bool)
        inside[list(regions)] = True
        outside = (columns.can & ~inside).sum(axis=1)
        needed = columns.size_bytes * np.maximum(0, columns.least - outside)
        over = float(needed.sum() - columns.storage_bytes[inside].sum())
        if over > 0:
            found = _fewest(needed, over, regions)
            if best is None or _size(found) < _size(best):
                best = found
    return best


def _size(conflict: Conflict) -> tuple[int, int]:
    return len(conflict.tables), len(conflict.regions)


def _fewest(needed: Floats, over: float, regions: tuple[int, ...]) -> Conflict:
    """The largest tables that are too much together: no fewer would be."""
    order = np.lexsort((np.arange(len(needed)), -needed))
    limit = needed.sum() - over
    count = int(np.searchsorted(np.cumsum(needed[order]), limit, side="right")) + 1
    tables = tuple(sorted(int(d) for d in order[:count]))
    excess = float(needed[list(tables)].sum() - limit)
    return Conflict(tables, regions, excess, "they need more storage there than there is")


def _sets(columns: Columns) -> list[tuple[int, ...]]:
    """Sets of regions to look at: all of them when few, else unions of what tables may use."""
    regions = columns.can.shape[1]
    if 2**regions <= MOST_SETS:
        return [
            chosen
            for count in range(1, regions + 1)
            for chosen in combinations(range(regions), count)
        ]
    kinds = [frozenset(np.nonzero(row)[0].tolist()) for row in np.unique(columns.can, axis=0)]
    found = dict.fromkeys(sorted(kinds, key=lambda kind: (len(kind), sorted(kind))))
    for kind in list(found):
        for other in list(found):
            if len(found) >= MOST_SETS:
                break
            found.setdefault(kind | other)
    everything = frozenset(range(regions))
    found.setdefault(everything)
    return [tuple(sorted(kind)) for kind in found if kind]


def smallest(columns: Columns) -> Conflict:
    """A conflict of whole tables, for a problem that is known to be infeasible.

    Tables are left out one after the other, smallest first, while the rest stays infeasible. At
    most `MOST_TRIALS` searches of `NODES` nodes; tables beyond them stay in.
    """
    found = conflict_of(columns)
    if found is not None:
        return found
    kept = np.ones(len(columns.least), bool)
    order: Ints = np.lexsort((np.arange(len(kept)), columns.size_bytes))
    step = max(1, len(kept) // (MOST_TRIALS // 4))
    trials = MOST_TRIALS
    while trials > 0 and step >= 1:
        for begin in range(0, len(order), step):
            tried = kept.copy()
            tried[order[begin : begin + step]] = False
            if trials > 0 and (tried != kept).any():
                trials -= 1
                if not fits(columns, tried):
                    kept = tried
        if step == 1:
            break
        step = max(1, step // 4)
    tables = tuple(int(d) for d in np.nonzero(kept)[0])
    used = np.nonzero(columns.can[list(tables)].any(axis=0))[0]
    needed = float((columns.size_bytes * columns.least)[list(tables)].sum())
    over = needed - float(columns.storage_bytes[used].sum())
    why = "no choice of regions, links and copies fits them, each table being whole"
    return Conflict(tables, tuple(int(r) for r in used), max(over, 0.0), why)


def fits(columns: Columns, kept: Bools) -> bool:
    """Whether the tables ``kept`` can be placed; also true where `NODES` nodes do not tell."""
    program = formulate(without_workloads(columns, kept), np.zeros_like(columns.can), columns.can)
    idle = msgspec.structs.replace(
        program.model, cost=np.zeros(len(program.model.cost)), offset=0.0
    )
    return solve(idle, Effort(nodes=NODES)).status != "infeasible"


def without_workloads(columns: Columns, kept: Bools) -> Columns:
    """The same problem of where to put tables alone; those not ``kept`` may be nowhere."""
    return msgspec.structs.replace(
        columns,
        least=np.where(kept, columns.least, 0),
        loss=np.zeros_like(columns.loss),
    )
