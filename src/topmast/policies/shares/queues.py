"""Jobs in queues at workers, so that the sum of their completion times is the least (AlloX)."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from topmast.policies.base import Bools, Floats, Ints
from topmast.policies.shares.columns import Columns


class Queues(Struct, frozen=True):
    """Jobs in queues at workers."""

    spent_s: float
    """From now until each job ends, summed."""
    first: tuple[tuple[int, int], ...]
    """The first of each queue, and its type."""


def queues(columns: Columns, rows: Ints, workers: Floats) -> Queues:
    """The queues of some jobs, in this order, at so many workers of each type.

    The k-th job from the end of a queue delays k jobs, itself included: with k and a type it costs
    ``k steps / speed``. That is an assignment of jobs to places, and workers of a type have the
    same places. O(n^3) at worst, for n jobs.
    """
    from scipy.optimize import linear_sum_assignment  # 50 MB, which only some profiles need

    kinds, places, slots = _slots(columns.runs[rows], workers)
    with np.errstate(divide="ignore"):
        runs_s = columns.steps_left[rows, None] / columns.speeds[rows]
    run_s = np.where(columns.runs[rows], runs_s, np.inf)
    at, chosen = linear_sum_assignment(run_s[:, kinds[slots]] * places[slots])
    slot = np.empty(len(rows), np.int64)
    slot[at] = slots[chosen]
    kind, place = kinds[slot], places[slot]
    spent_s = float((place * run_s[np.arange(len(rows)), kind]).sum())
    first = [(int(rows[row]), number) for row, number in _first_in_line(kind, place)]
    return Queues(spent_s, tuple(first))


def _slots(runs: Bools, workers: Floats) -> tuple[Ints, Floats, Ints]:
    """Type and place from the end of each kind of slot, and every slot there is by its kind.

    No queue is longer than it would be if its type had all jobs, evenly over its workers.
    """
    count = len(runs)
    kinds: list[int] = []
    places: list[int] = []
    copies: list[int] = []
    for kind, there in enumerate(workers.astype(int).tolist()):
        if there < 1 or not runs[:, kind].any():
            continue
        for place in range(1, -(-count // there) + 1):
            kinds.append(kind)
            places.append(place)
            copies.append(min(there, count))
    slots = np.repeat(np.arange(len(kinds)), copies)
    return np.array(kinds, np.int64), np.array(places, float), slots


def _first_in_line(kind: Ints, place: Floats) -> list[tuple[int, int]]:
    """The jobs that run now: of each worker, the one that is farthest from the end of its queue.

    Jobs of one place and type go to the type's workers as listed.
    """
    found: list[tuple[int, int]] = []
    for number in np.unique(kind).tolist():
        first: dict[int, int] = {}
        for depth in np.unique(place[kind == number]).tolist():
            rows = np.flatnonzero((kind == number) & (place == depth))
            first.update(enumerate(rows.tolist()))  # a deeper place is nearer to the front
        found += [(row, number) for row in first.values()]
    return found
