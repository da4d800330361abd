"""How fast durations are learned and predicted, from a generated past.

It is replayed, a tree is grown on it, and every job gets a prediction.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from topmast.bench.setup import machine
from topmast.experiments.predicting import known_jobs, prediction_figures
from topmast.model.tree import LEAF, Tree
from topmast.predict.experience import Experience, Known
from topmast.predict.growing import grow
from topmast.predict.replaying import replay
from topmast.predict.walking import Floats, leaves_of
from topmast.traces.generate import generate

ONE_BY_ONE = 20_000
"""So many jobs are told one at a time, as a queue does it."""
RUNS = 5


def measure_predictions(jobs: int, seed: int) -> dict[str, Any]:
    """Train on ``jobs`` jobs of a trace like PAI's, and predict each: all at once, and one by one.

    ``replay_s``: the history of all jobs, from their submissions and ends, which a running queue
    gathers as it goes.
    """
    trace, _fleet = generate("pai-like", jobs, seed)
    known = known_jobs(trace)
    begun_s = time.perf_counter()
    rows = replay(known, trace.submit_s, trace.duration_s)
    replay_s = time.perf_counter() - begun_s
    features, missed = rows.features[rows.known], (rows.log_s - rows.guess)[rows.known]
    importlib.import_module("sklearn.tree")  # that it takes seconds to load is no part of growing
    begun_s = time.perf_counter()
    tree = grow(features, missed)
    train_s = time.perf_counter() - begun_s
    rates = []
    for _run in range(RUNS):
        begun_s = time.perf_counter()
        told_s = np.exp(rows.guess) * np.array(tree.mean)[leaves_of(tree, rows.features)]
        rates.append(len(told_s) / (time.perf_counter() - begun_s))
    return {
        "train_s": train_s,
        "predict_per_s": sorted(rates)[RUNS // 2],
        "predict_one_us": _one_by_one_us(known[:ONE_BY_ONE], trace.duration_s, tree),
        "replay_s": replay_s,
        "trained_on": len(features),
        "leaves": tree.feature.count(LEAF),
        "within_25_recurring": prediction_figures(trace)["within_25.recurring.tree.instances"],
        "jobs": jobs,
        "seed": seed,
        "machine": machine(),
    }


def _one_by_one_us(known: Sequence[Known], duration_s: Floats, tree: Tree) -> float:
    """A job's features and its leaf, in the mean, with a history of half of the jobs."""
    experience = Experience({})
    half = len(known) // 2
    for job, took_s in zip(known[:half], duration_s.tolist(), strict=False):
        experience.learn(job, took_s)
    told = known[half:]
    begun_s = time.perf_counter()
    for job in told:
        row = experience.row(job)
        if row is not None:
            tree.leaf_of(row[1:])
    return (time.perf_counter() - begun_s) / max(1, len(told)) * 1e6
