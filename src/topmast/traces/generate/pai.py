"""`pai-like`: tasks as in Alibaba's PAI cluster of July and August 2020.

Figures: the task table of cluster-trace-gpu-v2020 (1,261,050 tasks; CC-BY-4.0), and *MLaaS in the
Wild* (Weng et al., NSDI '22). Recurring tasks share user, request and much of their duration, as
there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator

from topmast.traces.generate.draws import (
    DAY_S,
    arrivals,
    by_counts,
    by_quantiles,
    even,
    ranks,
    texts_by_counts,
    values_by_counts,
)
from topmast.traces.trace import Bools, Floats, Ints, Texts, Trace, sizes_of, trace_of

TASKS = 1_261_050
SPAN_S = 62 * DAY_S

PLAN_GPU = {
    100: 442_591,
    25: 272_243,
    0: 223_965,
    50: 136_701,
    10: 116_648,
    200: 16_312,
    800: 4_943,
}
"""Tasks by per cent of a GPU requested, 0 for blank."""
OTHER_GPU = (5, 20, 30, 60)
"""What the remaining 47,647 tasks ask for is not in print; here, evenly, one of these."""
GPU_TYPE = {"MISC": 696_000, "T4": 227_000, "P100": 73_000, "V100": 29_000, "V100M32": 19_000}
"""Tasks by type of GPU, the 218,000 without one left out: they are, but for few, those without
GPUs.
"""
WIDE_TYPES = ("MISC", "V100", "V100M32")
"""Types with hosts of eight GPUs, not two."""

ONE_INSTANCE = 963_703
INSTANCES = {
    2: 1850, 3: 904, 4: 849, 5: 1027, 8: 719, 10: 2413, 12: 482, 15: 254, 16: 555, 20: 1280, 25:
    379,
    30: 558, 40: 422, 50: 864, 100: 224,
}  # fmt: skip
"""Gangs of more than one, by size: the GPU counts above one of a sample of 60,105 of the tasks."""

LARGE_GANG = 10
"""Tasks of several GPUs come in no larger gangs here: the largest task of the sample has 400
GPUs.
"""

DURATION_S = {
    0.0: 5, 0.01: 19, 0.05: 29, 0.1: 41, 0.25: 131, 0.5: 614, 0.75: 3699, 0.9: 12_390, 0.95: 22_751,
    0.99: 67_166, 0.999: 172_800, 1.0: 400_000,
}  # fmt: skip
"""P50, P90 and P99 of the task table; the others of the sample."""
CPUS = {0.0: 1, 0.25: 4, 0.5: 6, 0.95: 12, 0.99: 32, 1.0: 64}
MEMORY_GB = {0.0: 2, 0.25: 15, 0.5: 29.3, 0.95: 59, 0.99: 120, 1.0: 240}
"""P95 of vCPUs and memory as in the paper; the others are ours."""

RECURRING = 0.65
"""Of the tasks, those of groups with at least `RECURS` tasks (the paper's account of recurring
tasks).
"""
RECURS = 5
LARGEST_GROUP = 0.01
WITHIN_GROUP = 0.996
"""Correlation of the durations (as normal scores) of tasks of one group: so that 78% of recurring
tasks last within 25% of their group's median, which is how well the paper's tree predicts them.
"""
TASKS_PER_USER = 950
"""1,300 users and some."""
HOURS = (
    46, 35, 43, 54, 49, 42, 40, 46, 44, 44, 50, 42, 39, 39, 29, 31, 43, 57, 44, 29, 30, 39, 37, 48,
)  # fmt: skip
"""Task starts by hour in the sample, per mille; which hour of the day is the first is not known."""

MACHINES = (
    (280, "MISC", 8, 96, 512), (798, "P100", 2, 64, 512), (497, "T4", 2, 96, 512),
    (45, "V100", 8, 96, 384), (59, "V100", 8, 96, 512), (135, "V100M32", 8, 96, 384),
    (83, None, 0, 96, 512),
)  # fmt: skip
"""The machines of the cluster: count, GPU type, GPUs, CPUs, memory in GB."""


def generate(jobs: int, rng: Generator) -> tuple[Trace, dict[str, Any]]:
    """A trace of ``jobs`` tasks, and the cluster as a fleet file. O(n log n)."""
    group = _groups(jobs, rng)
    size = np.bincount(group)
    gpus = _gpus(group, size, rng)
    trace = trace_of(
        "pai-like",
        job_id=[f"pai-{i}" for i in range(jobs)],
        submit_s=arrivals(jobs, SPAN_S / TASKS, rng, hours=HOURS),
        duration_s=_durations(group, len(size), rng),
        gpus=gpus,
        tasks=_instances(group, size, gpus, rng),
        gpu_models=_types(gpus, rng),
        cpus=np.round(by_quantiles(CPUS, _of_groups(group, size, rng))),
        memory=sizes_of(np.round(by_quantiles(MEMORY_GB, _of_groups(group, size, rng)), 3), "GB"),
        user=_users(jobs, group, size, rng),
        group=Texts(group.astype(np.int32), [f"g{i}" for i in range(len(size))]),
    )
    return trace, fleet()


def fleet() -> dict[str, Any]:
    """The cluster of the trace: 1,897 machines, 6,742 GPUs."""
    hosts = [
        {"count": count, "name": (model or "cpu").lower(), "gpus": gpus, "cpus": cpus, "memory": gb}
        | ({"gpu": model} if model else {})
        for count, model, gpus, cpus, gb in MACHINES
    ]
    return {"regions": {"pai": {"clusters": {"pai": {"hosts": hosts}}}}}


def _groups(jobs: int, rng: Generator) -> Ints:
    """The group of each task. `RECURRING` of all tasks are in groups of at least `RECURS`. O(n)."""
    recurring = round(RECURRING * jobs)
    largest = max(RECURS, int(LARGEST_GROUP * jobs))
    # Sizes fall off as a power, like those of any recurring work; cut where their sum is reached.
    drawn = RECURS * (1 - even(recurring // RECURS + 1, rng)) ** (-1 / 1.2)
    sizes = np.minimum(drawn, largest).astype(np.int64)
    sizes = sizes[: int(np.searchsorted(np.cumsum(sizes), recurring, side="right"))]
    if len(sizes):
        sizes[: recurring - int(sizes.sum())] += 1
        sizes[0] += max(0, recurring - int(sizes.sum()))
    few = _small_groups(jobs - int(sizes.sum()), rng)
    members = np.repeat(np.arange(len(sizes) + len(few)), np.concatenate([sizes, few]))
    return rng.permutation(members)


def _small_groups(tasks: int, rng: Generator) -> Ints:
    """Groups of fewer than `RECURS` tasks, half of them of one."""
    sizes = 1 + by_counts([8, 4, 2, 1], even(tasks, rng)) if tasks else np.zeros(0, np.int64)
    sizes = sizes[: int(np.searchsorted(np.cumsum(sizes), tasks, side="right"))]
    return np.concatenate([sizes, np.ones(tasks - int(sizes.sum()), np.int64)])


def _of_groups(group: Ints, size: Ints, rng: Generator) -> Floats:
    """A quantile per task, the same within a group, and even over the tasks: groups stand side by
    side.
    """
    order = rng.permutation(len(size))
    ends = np.cumsum(size[order])
    middle = np.empty(len(size))
    middle[order] = (ends - size[order] / 2) / len(group)
    return np.asarray(middle[group])


def _gpus(group: Ints, size: Ints, rng: Generator) -> Floats:
    rest = (TASKS - sum(PLAN_GPU.values())) / len(OTHER_GPU)
    counts = PLAN_GPU | dict.fromkeys(OTHER_GPU, rest)
    return values_by_counts(counts, _of_groups(group, size, rng)) / 100


def _instances(group: Ints, size: Ints, gpus: Floats, rng: Generator) -> Ints:
    """Instances; a task of several GPUs that drew a large gang changes with one of a share or one
    GPU.
    """
    several = sum(INSTANCES.values())
    scale = (TASKS - ONE_INSTANCE) / several
    counts = {1: float(ONE_INSTANCE)} | {n: scale * count for n, count in INSTANCES.items()}
    drawn = values_by_counts(counts, _of_groups(group, size, rng)).astype(np.int64)
    _swap(drawn, (gpus > 1) & (drawn > LARGE_GANG), (gpus <= 1) & (drawn <= LARGE_GANG), rng)
    return drawn


def _types(gpus: Floats, rng: Generator) -> Texts:
    """A type for each task with GPUs; one with hosts of eight for tasks of more than two GPUs."""
    asking = gpus > 0
    names = [*GPU_TYPE, ""]
    codes = np.full(len(gpus), len(GPU_TYPE), np.int32)
    codes[asking] = by_counts(list(GPU_TYPE.values()), even(int(asking.sum()), rng))
    wide = np.array([name in WIDE_TYPES for name in names])
    _swap(codes, (gpus > 2) & ~wide[codes], asking & (gpus <= 2) & wide[codes], rng)
    return Texts(codes, names)


def _swap(values: Any, wrong: Bools, right: Bools, rng: Generator) -> None:
    """Change each wrong value with one that is right and may be wrong: the marginals stay."""
    taken = rng.permutation(np.flatnonzero(right))[: int(wrong.sum())]
    given = np.flatnonzero(wrong)[: len(taken)]
    values[given], values[taken] = values[taken], values[given]


def _durations(group: Ints, groups: int, rng: Generator) -> Floats:
    """Durations with the published quantiles, alike within a group (a Gaussian copula)."""
    own = np.sqrt(1 - WITHIN_GROUP**2) * rng.standard_normal(len(group))
    score = WITHIN_GROUP * rng.standard_normal(groups)[group] + own
    return np.round(by_quantiles(DURATION_S, ranks(score)))


def _users(jobs: int, group: Ints, size: Ints, rng: Generator) -> Texts:
    """The user of each group: few have many (the busiest 5% have most of the tasks)."""
    users = max(1, round(jobs / TASKS_PER_USER))
    shares = {f"u{i}": 1 / (i + 1) ** 1.1 for i in range(users)}
    return texts_by_counts(shares, _of_groups(group, size, rng))
