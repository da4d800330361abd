"""The score of a plan: six terms, each kept by name; the lower sum wins (fast-path: score)."""

from __future__ import annotations

import numpy as np

from topmast.fast.placement.columns import Columns
from topmast.fast.placement.packing import gpus_of_task
from topmast.model.job import MILLI, Accelerator, Level
from topmast.model.plan import Ask, Seat
from topmast.policies.base import ScoreWeights

PREFERENCE_STEP = 0.01
"""Cost of a model per place in the list of preference, when speeds do not tell them apart."""


def score_terms(
    ask: Ask,
    weights: ScoreWeights,
    columns: Columns,
    seats: tuple[Seat, ...],
    level: Level,
    choice: int,
    lost_gpu_s: float,
) -> dict[str, float]:
    """The weighted terms of one plan. O(tasks + slots of the hosts used)."""
    return {
        "preemption": weights.preemption * lost_gpu_s / 3600.0,
        "speed": weights.speed * slowdown(ask, choice),
        "locality": weights.locality * _levels_above(ask, level),
        "fragmentation": weights.fragmentation * stranded_share(columns, ask, seats, choice),
        "data": weights.data * ask.data_s / 3600.0,
        "balance": weights.balance * ask.balance,
    }


def total(terms: dict[str, float]) -> float:
    """The score: the sum of the terms, in a fixed order so that equal terms give equal bits."""
    return sum(terms[name] for name in sorted(terms))


def accelerators_of(ask: Ask) -> tuple[Accelerator, ...]:
    """The longest list of accelerators in the gang: its choices."""
    return max((g.resources.accelerators for g in ask.groups), key=len, default=())


def slowdown(ask: Ask, choice: int) -> float:
    """How much slower the job runs than on its best model: 0 on the best, 1 at half speed."""
    listed = accelerators_of(ask)
    if not listed:
        return 0.0
    best = max(a.speed for a in listed)
    return best / listed[choice].speed - 1.0 + PREFERENCE_STEP * choice


def _levels_above(ask: Ask, level: Level) -> int:
    preferred = ask.topology.preferred
    return 0 if preferred is None else max(0, level - preferred)


def stranded_share(columns: Columns, ask: Ask, seats: tuple[Seat, ...], choice: int) -> float:
    """Free GPUs left over on the hosts used, as a share of those hosts' GPUs: 0 fills them."""
    if not any(gpus_of_task(g.resources, choice) for g in ask.groups):
        return 0.0
    taken: dict[int, int] = {}
    for seat in seats:
        row = columns.index[seat.host]
        taken[row] = taken.get(row, 0) + len(seat.slots) * seat.slot_milli
    present = sum(int(columns.gpus[row]) * MILLI for row in taken)
    if present == 0:
        return 0.0
    left = sum(
        max(0, int(np.clip(columns.slots(row), 0, None).sum()) - milli)
        for row, milli in taken.items()
    )
    return left / present
