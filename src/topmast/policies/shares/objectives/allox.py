"""Policy `allox` (AlloX, EuroSys '20): jobs queue at workers for the least mean completion time."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from topmast.model.errors import InvalidInput
from topmast.policies.base import Floats, Ints
from topmast.policies.shares.columns import Columns
from topmast.policies.shares.shares import Shares

SOURCE = "AlloX (Le et al., EuroSys '20)"
NAME = "allox"


def solve(columns: Columns) -> Shares:
    """Minimise the sum of completion times; the first job of every queue runs now.

    The k-th job from the end of a queue delays k jobs, itself included: with k and a type it costs
    ``k steps / speed``. That is an assignment of jobs to places, and workers of a type have the
    same places. O(n^3) at worst, for n jobs.
    """
    _check(columns)
    kinds, places, slots = _slots(columns)
    with np.errstate(divide="ignore"):
        run_s = np.where(columns.runs, columns.steps_left[:, None] / columns.speeds, np.inf)
    rows, chosen = linear_sum_assignment(run_s[:, kinds[slots]] * places[slots])
    slot = np.empty(columns.count, np.int64)
    slot[rows] = slots[chosen]
    kind, place = kinds[slot], places[slot]
    total_s = columns.elapsed_s + place * run_s[np.arange(columns.count), kind]
    single = _first_in_line(columns, kind, place)
    return Shares(float(total_s.sum()), single, np.zeros(columns.pair_runs.shape))


def _check(columns: Columns) -> None:
    wide = columns.scale != 1
    if wide.any():
        row = int(np.argmax(wide))
        raise InvalidInput(
            f"is {int(columns.scale[row])}, and {NAME} knows only jobs of one worker",
            field=f"jobs[{row}].scale_factor",
            remedy="1, or another policy",
        )
    columns.need(columns.steps_left, "steps_left", NAME)
    columns.need_speeds(NAME)


def _slots(columns: Columns) -> tuple[Ints, Floats, Ints]:
    """Type and place from the end of each kind of slot, and every slot there is by its kind.

    No queue is longer than it would be if its type had all jobs, evenly over its workers.
    """
    kinds: list[int] = []
    places: list[int] = []
    copies: list[int] = []
    for kind, workers in enumerate(columns.workers.astype(int).tolist()):
        if not columns.runs[:, kind].any():
            continue
        for place in range(1, -(-columns.count // workers) + 1):
            kinds.append(kind)
            places.append(place)
            copies.append(min(workers, columns.count))
    slots = np.repeat(np.arange(len(kinds)), copies)
    return np.array(kinds, np.int64), np.array(places, float), slots


def _first_in_line(columns: Columns, kind: Ints, place: Floats) -> Floats:
    """The jobs that run now: of each worker, the one that is farthest from the end of its queue.

    Jobs of one place and type go to the type's workers as listed.
    """
    single = np.zeros(columns.runs.shape)
    for number in np.unique(kind).tolist():
        first: dict[int, int] = {}
        for depth in np.unique(place[kind == number]).tolist():
            rows = np.flatnonzero((kind == number) & (place == depth))
            first.update(enumerate(rows.tolist()))  # a deeper place is nearer to the front
        single[list(first.values()), number] = 1.0
    return single
