"""How well durations are predicted: past jobs replayed in time, a tree grown on the first part,
the rest told.
"""

from __future__ import annotations

import numpy as np

from topmast.predict.experience import FEATURES, Known
from topmast.predict.growing import WITHIN, grow
from topmast.predict.replaying import replay
from topmast.predict.walking import Floats, leaves_of
from topmast.traces.trace import Trace

TRAINED_ON = 0.5
"""The tree is grown on the jobs that had finished when this part of all had been submitted."""
RECURS = 5
"""A job recurs if so many of its group finished before it (as the paper counts)."""


def known_jobs(trace: Trace) -> list[Known]:
    """The jobs of a trace (n) as they are known at submission."""
    columns = (
        trace.group.values(), trace.user.values(), trace.gpus.tolist(), trace.tasks.tolist(),
        trace.cpus.tolist(), trace.memory_gb.tolist(), trace.gpu_models.values(),
    )  # fmt: skip
    return [Known(*values) for values in zip(*columns, strict=True)]


def prediction_figures(trace: Trace) -> dict[str, float | None]:
    """Shares of the later tasks, and of their instances, told within 25%; by the tree, and by the
    history alone.

    Waits are those recorded, where the trace has them. O(n log n).
    """
    waited_s = np.nan_to_num(trace.waited_s)
    rows = replay(known_jobs(trace), trace.submit_s, trace.duration_s, waited_s)
    later = np.arange(len(trace)) >= int(TRAINED_ON * len(trace))
    split_s = float(trace.submit_s[later][0])
    done = rows.known & (trace.submit_s + waited_s + trace.duration_s <= split_s)
    tree = grow(rows.features[done], (rows.log_s - rows.guess)[done])
    guess = np.exp(rows.guess)
    told = guess * np.array(tree.likely)[leaves_of(tree, rows.features)]
    later &= rows.known
    recurring = later & (rows.features[:, FEATURES.index("group_runs")] >= RECURS)
    found: dict[str, float | None] = {"trained_on": float(done.sum()), "told": float(later.sum())}
    found["recurring_share"] = float(recurring.sum() / max(1, later.sum()))
    for name, chosen in (("all", later), ("recurring", recurring)):
        for how, value in (("tree", told), ("history", guess)):
            tasks, instances = _within(value, trace, chosen)
            found[f"within_25.{name}.{how}"] = tasks
            found[f"within_25.{name}.{how}.instances"] = instances
    return found


def _within(told_s: Floats, trace: Trace, rows: np.ndarray) -> tuple[float | None, float | None]:
    if not rows.any():
        return None, None
    error = np.abs(told_s[rows] / np.maximum(trace.duration_s[rows], 1.0) - 1.0)
    good = error <= WITHIN
    weights = trace.tasks[rows]
    return float(good.mean()), float((good * weights).sum() / weights.sum())
