"""What starts, restores and checkpoints took, and how fast GPUs were, by how long jobs held them.

Of a job that ended it is known how long it had GPUs, how often it was started, and how much work it
was. So the time it had them is a sum of unknowns: a start for each attempt, a restore for each but
the first, checkpoints, and its work at the speed of its GPU model. What other jobs did in the
queue is in none of them, so nothing needs to be simulated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from topmast.sim.settings import FASTEST, GPU_SPEED, SLOWEST
from topmast.traces.trace import Floats, Trace

STARTUP, RESTORE, CHECKPOINT = "sim.startup_s", "sim.restore_s", "sim.checkpoint_s"
ROUNDS = 50
"""Of weighing anew."""
LEAST = 1e-3
"""A job that is off by less counts as if it were off by so much."""
FEW = 3
"""What fewer jobs show is not fitted."""


class Held(Struct, frozen=True):
    """A job that had GPUs of one model for ``held_s`` in all, in so many attempts."""

    held_s: float
    attempts: int
    model: str


def is_known(name: str) -> bool:
    """Whether a setting is one of the unknowns of that sum."""
    return name in (STARTUP, RESTORE, CHECKPOINT) or name.startswith(GPU_SPEED)


def fitted(
    jobs: Mapping[str, Held], trace: Trace, names: Sequence[str], given: Mapping[str, float]
) -> dict[str, float]:
    """The settings among ``names`` that these jobs show, such that the mean of
    |held in theory / held - 1| is least.

    Least squares, none below zero, weighed anew until jobs count by what they are off, not by its
    square (Schlossmacher, 1973). ``given``: the settings that are not fitted. O(rounds x jobs).
    """
    from scipy.optimize import lsq_linear

    rows = {job: row for row, job in enumerate(trace.job_id) if job in jobs}
    terms = _terms(jobs, trace, rows)
    held_s = np.array([jobs[job].held_s for job in rows])
    sought = [name for name in names if np.count_nonzero(terms.get(name, 0)) >= FEW]
    rest_s = sum(
        (column * _unknown(name, given) for name, column in terms.items() if name not in sought),
        np.zeros(len(rows)),
    )
    if not sought:
        return {}
    relative = np.column_stack([terms[name] for name in sought]) / held_s[:, None]
    wanted = 1.0 - rest_s / held_s
    bounds = list(zip(*(_bounds(name) for name in sought), strict=True))
    weights = np.ones(len(rows))
    for _ in range(ROUNDS):
        found = lsq_linear(relative * weights[:, None], wanted * weights, bounds).x
        weights = 1.0 / np.sqrt(np.maximum(LEAST, np.abs(relative @ found - wanted)))
    return {name: _setting(name, float(x)) for name, x in zip(sought, found, strict=True)}


def _terms(jobs: Mapping[str, Held], trace: Trace, rows: Mapping[str, int]) -> dict[str, Floats]:
    """What each unknown is multiplied by, job by job (n)."""
    attempts = np.array([float(jobs[job].attempts) for job in rows])
    work_s = np.array([_work_s(trace, row, jobs[job].model) for job, row in rows.items()])
    interval_s = np.array([float(trace.checkpoint_interval_s[row]) for row in rows.values()])
    every_s = np.where(interval_s > 0, interval_s, np.inf)
    # One after each interval but the last, and one whenever the job was stopped.
    saves = np.maximum(0.0, np.ceil(work_s / every_s) - 1) + attempts - 1
    terms: dict[str, Floats] = {STARTUP: attempts, RESTORE: attempts - 1, CHECKPOINT: saves}
    models = [jobs[job].model for job in rows]
    for model in sorted(set(models)):
        terms[f"{GPU_SPEED}{model}"] = np.where([m == model for m in models], work_s, 0.0)
    return terms


def _work_s(trace: Trace, row: int, model: str) -> float:
    """How long the job says that it takes on a model."""
    duration_s = float(trace.duration_s[row])
    speeds = [float(text) for text in trace.speeds[row].split("|") if text]
    named = dict(zip(trace.gpu_models[row].split("|"), speeds, strict=False))
    return duration_s * speeds[0] / named.get(model, speeds[0]) if speeds else duration_s


def _unknown(name: str, given: Mapping[str, float]) -> float:
    """A setting as the sum has it: of a speed, its inverse."""
    return 1.0 / given.get(name, 1.0) if name.startswith(GPU_SPEED) else given.get(name, 0.0)


def _bounds(name: str) -> tuple[float, float]:
    return (1 / FASTEST, 1 / SLOWEST) if name.startswith(GPU_SPEED) else (0.0, np.inf)


def _setting(name: str, unknown: float) -> float:
    value = 1.0 / unknown if name.startswith(GPU_SPEED) else unknown
    return round(value, 4) if value < 1 else float(f"{value:.5g}")
