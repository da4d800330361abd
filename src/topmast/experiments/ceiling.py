"""What part of a fleet any scheduler could have allocated while jobs are submitted."""

from __future__ import annotations

import numpy as np

from topmast.model.fleet import Fleet
from topmast.traces.trace import Bools, Trace


def most_allocated(trace: Trace, fleet: Fleet) -> float:
    """The part of the GPU time from the first submission to the last that jobs can hold at most.

    By any time u they have held no more than if each had started when it was submitted, and from
    then on no more than all GPUs: the least of these sums over u is the bound (Cruz, 1991: network
    calculus). GPUs of a model are one pool, without hosts, regions or data; of jobs that choose
    between models, all GPUs are. Starts, restores and checkpoints are not work: they come on top.
    O(jobs log jobs).
    """
    there, listed = fleet.gpus(), trace.gpu_models.names
    span_s = float(trace.submit_s.max() - trace.submit_s.min())
    if not span_s or not there:
        return 1.0
    if all(text in there for text in listed):
        held = sum(
            _most_held_gpu_s(trace, trace.gpu_models.codes == code, there[model], span_s)
            for code, model in enumerate(listed)
        )
    else:
        held = _most_held_gpu_s(trace, np.ones(len(trace), bool), sum(there.values()), span_s)
    return held / (span_s * sum(there.values()))


def _most_held_gpu_s(trace: Trace, rows: Bools, supply: int, span_s: float) -> float:
    """GPU-seconds of one pool."""
    gpus = trace.total_gpus()[rows]
    begin_s = trace.submit_s[rows] - float(trace.submit_s.min())
    at_s = np.concatenate([[0.0], begin_s, begin_s + trace.duration_s[rows], [span_s]])
    change = np.concatenate([[0.0], gpus, -gpus, [0.0]])
    order = np.argsort(at_s, kind="stable")
    at_s, running = np.minimum(at_s[order], span_s), np.cumsum(change[order])
    held = np.concatenate([[0.0], np.cumsum(running[:-1] * np.diff(at_s))])
    return float((held + supply * (span_s - at_s)).min())
