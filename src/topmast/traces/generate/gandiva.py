"""`gandiva-like`: training jobs that come in bursts, most of them trials that end soon, on hosts
of four GPUs.

As in Xiao et al., *Gandiva: Introspective Cluster Scheduling for Deep Learning* (OSDI '18), the
experiment on a cluster: 180 GPUs, jobs of a few GPUs, of which people want to see the first
mini-batches soon. Its trace is not public: models and their speeds are those of Gavel's table
(see gavel), and sizes, durations and bursts are ours. `gandiva-elastic-like`: the same, of which
jobs of several GPUs may be larger or smaller.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import structs
from numpy.random import Generator

from topmast.traces.generate.draws import by_counts, even, values_by_counts
from topmast.traces.generate.gavel import SPEEDS
from topmast.traces.trace import Floats, Trace, gangs, texts_of, trace_of

GPUS = {1: 70, 2: 12, 4: 14, 8: 4}
"""Jobs by number of GPUs, in percent."""
MINUTES = ((70, 10.0, 60.0), (30, 60.0, 600.0))
"""Durations on a V100: percent of jobs, and the minutes between which their logarithms are drawn
evenly.
"""
BURST = 6
"""So many jobs are handed in together on average, as a search over parameters does."""
GAP_S = 55.0
"""Between two jobs, on average."""
HOSTS = {"V100": 23, "P100": 22}
HOST_GPUS = 4


def elastic(jobs: int, rng: Generator) -> tuple[Trace, dict[str, Any]]:
    """The same jobs, but those of several GPUs are as many tasks of one, and may have half to
    twice as many. O(n log n).
    """
    trace, document = generate(jobs, rng)
    gpus = np.asarray(np.round(trace.total_gpus()), np.int64)
    several = gpus > 1
    return structs.replace(
        trace,
        name="gandiva-elastic-like",
        gpus=np.ones(len(trace)),
        tasks=gpus,
        min_tasks=np.where(several, gpus // 2, gpus),
        max_tasks=np.where(several, gpus * 2, gpus),
    ), document


def generate(jobs: int, rng: Generator) -> tuple[Trace, dict[str, Any]]:
    """A trace of ``jobs`` jobs, and a fleet of 180 GPUs. O(n log n)."""
    names = list(SPEEDS)
    chosen = by_counts([1.0] * len(names), even(jobs, rng)).tolist()
    per_task, tasks = gangs(values_by_counts(GPUS, even(jobs, rng)), HOST_GPUS)
    trace = trace_of(
        "gandiva-like",
        job_id=[f"gandiva-{i}" for i in range(jobs)],
        submit_s=_submit_s(jobs, rng),
        duration_s=_durations_s(jobs, rng),
        gpus=per_task,
        tasks=tasks,
        model=texts_of(names[at] for at in chosen),
        gpu_models=texts_of("|".join(HOSTS) for _ in chosen),
        speeds=texts_of(f"1|{SPEEDS[names[at]][0]!r}" for at in chosen),
    )
    return trace, fleet()


def _submit_s(jobs: int, rng: Generator) -> Floats:
    """Bursts come at random; the jobs of one come seconds apart."""
    first = rng.random(jobs) < 1.0 / BURST
    first[0] = True
    gaps_s = np.where(first, rng.exponential(GAP_S * BURST, jobs), 1.0)
    return np.asarray(np.round(np.cumsum(gaps_s) - gaps_s[0], 3))


def _durations_s(jobs: int, rng: Generator) -> Floats:
    """Log-uniform within each part."""
    part = by_counts([percent for percent, _, _ in MINUTES], even(jobs, rng))
    low = np.log(np.array([low for _, low, _ in MINUTES])[part])
    high = np.log(np.array([high for _, _, high in MINUTES])[part])
    return np.asarray(np.round(60.0 * np.exp(low + (high - low) * even(jobs, rng)), 3))


def fleet() -> dict[str, Any]:
    """45 hosts of four GPUs of two models."""
    hosts = [
        {"count": count, "name": model.lower(), "gpu": model, "gpus": HOST_GPUS}
        for model, count in HOSTS.items()
    ]
    return {"regions": {"lab": {"clusters": {"lab-1": {"hosts": hosts}}}}}
