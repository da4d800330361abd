"""From the relaxation to a placement: decide the surest replicas, solve what is left, and so on.

Each round makes a part of the undecided tables hold what the relaxation wants most, and the
prices follow from where they were, so that a round costs a fraction of the first solve.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from topmast.slow.arrays import Bools, Floats, Ints
from topmast.slow.data.columns import Columns
from topmast.slow.data.part import part_of, readers_of
from topmast.slow.data.prices import Relaxation, Relaxed
from topmast.slow.data.search import LocalSearch


class Pace(Struct, frozen=True):
    """How many rounds at most, of how many iterations; ``part`` of the unsure tables that each
    decides.
    """

    rounds: int
    iterations: int
    part: float


THOROUGH = Pace(60, 150, 0.15)
BRISK = Pace(60, 80, 0.2)
"""Enough where the relaxation is sure of most tables."""
MIDDLING = Pace(12, 50, 0.3)
QUICK = Pace(6, 25, 0.4)
FEWEST = 5
SURE, GONE = 0.9, 0.02
CLOSED, OPEN, DECIDED = 0, 1, 2


def dive(
    relaxation: Relaxation, relaxed: Relaxed, search: LocalSearch, left_s: Callable[[], float]
) -> tuple[Floats, Floats]:
    """Place replicas in ``search`` round by round; what is left to wish for: replicas and shares.

    A replica that no longer fits is ruled out. O(rounds iterations (edges + D + W) R).
    """
    relaxation.open[:] = relaxation.columns.can
    sure = relaxed.replicas.max(axis=1, initial=0.0) > SURE
    pace = BRISK if 2 * sure.sum() > len(sure) else THOROUGH
    return _rounds(relaxation, relaxed, search, left_s, pace)


def dive_again(
    relaxation: Relaxation, relaxed: Relaxed, search: LocalSearch, agreed: Bools, pace: Pace
) -> tuple[Floats, Floats]:
    """The same, quickly, from replicas ``agreed`` [D, R] that ``search`` has placed already."""
    relaxation.open[:] = relaxation.columns.can
    relaxation.open[agreed] = DECIDED
    return _rounds(relaxation, relaxed, search, lambda: 1.0, pace)


def dive_part(
    relaxation: Relaxation,
    relaxed: Relaxed,
    search: LocalSearch,
    agreed: Bools,
    works: Bools,
    rest: Floats,
) -> tuple[Floats, Floats]:
    """The same, only for ``works`` [W] and what they read: the others stay where ``rest`` [W, R]
    has them.

    O(items + (D + W) R), and the rounds of the part.
    """
    part = part_of(relaxation, relaxed, search.state, works, rest)
    inside = part.relaxation
    inside.open[agreed[part.tables]] = DECIDED
    found = _rounds(inside, part.relaxed, search, lambda: 1.0, QUICK, part.tables)
    return part.into(relaxed, rest, *found)


def undecided(relaxed: Relaxed, here: Floats, columns: Columns, agreed: Bools) -> Bools:
    """The workloads that are not where the relaxation has them, or read a table of which it wants
    a replica that is not ``agreed``: [W]. O(items + (D + W) R).
    """
    doubtful = columns.can & ~agreed & (relaxed.replicas > GONE)
    readers = readers_of(columns, np.asarray(doubtful.any(axis=1)))
    result: Bools = readers | relaxed.astray(here)
    return result


def _rounds(
    relaxation: Relaxation,
    relaxed: Relaxed,
    search: LocalSearch,
    left_s: Callable[[], float],
    pace: Pace,
    tables: Ints | None = None,
) -> tuple[Floats, Floats]:
    """``tables``: the numbers of the relaxation's tables in ``search``, where they differ."""
    now = relaxed
    rows = np.arange(len(now.replicas)) if tables is None else tables
    for _ in range(pace.rounds):
        if not _decide(relaxation, now.replicas, search, rows, pace.part) or left_s() <= 0.0:
            break
        now = relaxation.solve(now.point, iterations=pace.iterations, weight=now.weight)
    relaxation.open[:] = relaxation.columns.can
    return now.replicas, now.shares


def _decide(
    relaxation: Relaxation, replicas: Floats, search: LocalSearch, rows: Ints, part: float
) -> bool:
    """Decide some of what is open; whether anything was."""
    unknown = np.where(relaxation.open == OPEN, replicas, -1.0)
    best, highest = unknown.argmax(axis=1), unknown.max(axis=1)
    unsure = np.nonzero((highest > GONE) & (highest <= SURE))[0]
    unsure = unsure[np.argsort(-highest[unsure], kind="stable")]
    chosen = unknown > SURE
    first = unsure[: max(FEWEST, int(part * len(unsure)))]
    chosen[first, best[first]] = True
    if not chosen.any():
        return False
    search.place(chosen, rows)
    there = search.state.placed[rows] & chosen
    relaxation.open[there] = DECIDED
    relaxation.open[chosen & ~there] = CLOSED
    # With a table's replicas ruled out there may be too few regions left: then all are open again.
    short = (relaxation.open != CLOSED).sum(axis=1) < relaxation.columns.least
    reopened = short[:, None] & relaxation.columns.can & (relaxation.open == CLOSED)
    relaxation.open[reopened] = OPEN
    return True
