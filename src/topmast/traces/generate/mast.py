"""`mast-like`: the regions, datasets and workloads of a fleet as MAST found it before it was
balanced.

Figures of MAST (Choudhury et al., OSDI '24; [unverified] beyond the abstract): partitions are
read by 3 / 17 / 45 workloads at P50 / P90 / P99, 70% of workloads run for the first time, and
people who choose regions by hand give the worst of them 2.63 times the high-priority demand that
it can serve.

Every dataset lies in one region, and every job's home is the region of its data. How many
datasets lie in the hot region is found by bisection: jobs of high priority are run by hand, in
their homes, first come first served, until the time-weighted mean of what they hold and wait for
is 2.63 times the GPUs there.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from topmast.model.errors import InvalidInput
from topmast.model.job import Band
from topmast.traces.generate.draws import (
    DAY_S,
    arrivals,
    by_counts,
    by_quantiles,
    even,
    values_by_counts,
)
from topmast.traces.trace import Bools, Floats, Ints, Texts, Trace, trace_of

WORKLOADS_PER_PARTITION = {
    0.0: 1, 0.25: 1.7, 0.5: 3, 0.75: 7.6, 0.9: 17, 0.99: 45, 1.0: 90,
}  # fmt: skip
FIRST_TIME = 0.7
WORST_RATIO = 2.63
TOLERANCE = 0.01
TRIES = 60

LOAD = 1.25
"""Work of all bands over what the fleet can do: there is always something waiting."""
HIGH_LOAD = 0.75
"""The same of high priority: all of it can be served, if it is spread well."""
REGIONS = {
    "alpha": 0.16, "bravo": 0.18, "charlie": 0.15, "delta": 0.14, "echo": 0.12, "foxtrot": 0.1,
    "golf": 0.09, "hotel": 0.06,
}  # fmt: skip
"""Regions and their shares of the GPUs; the first is the favourite."""
HOST_GPUS = 8
MODELS = {"H100": 0.7, "A100": 0.3}
GBPS = 200
GPUS = {1: 30, 2: 12, 4: 14, 8: 24, 16: 10, 32: 6, 64: 3, 128: 1}
"""GPUs of jobs, per cent."""
DURATION_S = {0.0: 120, 0.1: 400, 0.5: 2_700, 0.9: 21_600, 0.99: 72_000, 1.0: 172_800}
BANDS = {Band.CRITICAL: 3, Band.HIGH: 47, Band.NORMAL: 25, Band.LOW: 17, Band.OPPORTUNISTIC: 8}
"""Jobs of low priority first of all fill what is free; per cent before the loads above are met."""
SIZE_BYTES = {0.0: 2e10, 0.5: 1e12, 0.9: 1e13, 0.99: 6e13, 1.0: 2e14}
SECOND_DATASET = 0.15
"""Jobs that read two datasets of one namespace."""
PARTITIONS_PER_NAMESPACE = 8
TENANTS = {
    "ads": 22, "feed": 18, "ranking": 15, "vision": 11, "speech": 9, "language": 8, "search": 6,
    "integrity": 5, "health": 3, "research": 3,
}  # fmt: skip
USERS_PER_TENANT = 40
JOBS_PER_DAY = 40_000
STORAGE = 2.2
"""Storage of a region over its share of one copy of everything, and over what it holds at first."""
HOURS = tuple(1 + 0.35 * np.sin((hour - 9) / 12 * np.pi) for hour in range(24))
MAX_JOBS = 500_000
MIN_JOBS = 2_000


class _Work(NamedTuple):
    """What a job takes, and when."""

    submit_s: Floats
    duration_s: Floats
    gpus: Floats
    high: Bools
    model: Ints


def generate(jobs: int, rng: Generator, days: float | None = None) -> tuple[Trace, dict[str, Any]]:
    """A trace of ``jobs`` jobs and the fleet it needs, as a fleet file. O(n log n).

    ``days``: over how long they are submitted; None for `JOBS_PER_DAY`, and a day at least.
    """
    if not MIN_JOBS <= jobs <= MAX_JOBS:
        raise InvalidInput(
            f"mast-like needs from {MIN_JOBS} to {MAX_JOBS:,} jobs", field="jobs",
            remedy="for example 20000",
        )  # fmt: skip
    days = max(1.0, jobs / JOBS_PER_DAY) if days is None else days
    submit_s = arrivals(jobs, days * DAY_S / jobs, rng, hours=HOURS)
    dataset, second, partitions = _datasets(jobs, rng)
    band = _bands(jobs, rng)
    work = _work(submit_s, band, rng)
    hosts = _hosts(work)
    region = _regions_of_datasets(dataset, partitions, work, hosts, rng)
    namespace = np.arange(partitions) // PARTITIONS_PER_NAMESPACE
    tenant = by_counts(list(TENANTS.values()), even(int(namespace[-1]) + 1, rng))[namespace]
    names = _dataset_names(namespace, tenant)
    tenants = tenant[dataset]
    users = tenants * USERS_PER_TENANT + (USERS_PER_TENANT * rng.random(jobs) ** 2).astype(np.int64)
    trace = trace_of(
        "mast-like",
        job_id=[f"mast-{i}" for i in range(jobs)],
        submit_s=submit_s,
        duration_s=work.duration_s,
        gpus=np.minimum(work.gpus, HOST_GPUS),
        tasks=np.maximum(work.gpus // HOST_GPUS, 1),
        band=band,
        gpu_models=Texts(work.model.astype(np.int32), list(MODELS)),
        tenant=Texts(tenants.astype(np.int32), list(TENANTS)),
        user=_texts(users, "u"),
        group=_texts(_groups(dataset, rng), "g"),
        datasets=_reads(dataset, second, names),
        home_region=Texts(region[dataset].astype(np.int32), list(REGIONS)),
    )
    return trace, _fleet(hosts, names, region, rng)


def _texts(numbers: Ints, prefix: str) -> Texts:
    values, codes = np.unique(numbers, return_inverse=True)
    return Texts(codes.astype(np.int32), [f"{prefix}{n}" for n in values.tolist()])


# ------------------------------------------------------------------------------ datasets and groups


def _datasets(jobs: int, rng: Generator) -> tuple[Ints, Ints, int]:
    """The dataset of each job, a second one or -1, and how many there are. O(n log n)."""
    reads = round(jobs * (1 + SECOND_DATASET))
    readers = np.round(by_quantiles(WORKLOADS_PER_PARTITION, even(reads, rng))).astype(np.int64)
    partitions = int(np.searchsorted(np.cumsum(readers), reads, side="left")) + 1
    # Even draws of the number there are, not of the first of too many: exact quantiles.
    readers = np.round(by_quantiles(WORKLOADS_PER_PARTITION, even(partitions, rng))).astype(
        np.int64
    )
    pool = rng.permutation(np.repeat(np.arange(partitions), readers))
    if len(pool) < jobs:
        pool = np.concatenate([pool, rng.integers(0, partitions, jobs - len(pool))])
    return pool[:jobs], _second(pool[:jobs], pool[jobs:], rng), partitions


def _second(first: Ints, more: Ints, rng: Generator) -> Ints:
    """The further reader of each dataset of ``more``: a job with its first one in the same
    namespace.
    """
    second = np.full(len(first), -1)
    jobs = np.argsort(first // PARTITIONS_PER_NAMESPACE + rng.random(len(first)) * 0.5)
    begins = np.searchsorted(
        (first // PARTITIONS_PER_NAMESPACE)[jobs], more // PARTITIONS_PER_NAMESPACE
    )
    order = np.argsort(more // PARTITIONS_PER_NAMESPACE, kind="stable")
    space = (more // PARTITIONS_PER_NAMESPACE)[order]
    nth = np.arange(len(more)) - np.searchsorted(space, space)
    at = begins[order] + nth
    fits = at < len(jobs)
    chosen, wanted = jobs[at[fits]], more[order][fits]
    good = (first[chosen] != wanted) & (
        first[chosen] // PARTITIONS_PER_NAMESPACE == wanted // PARTITIONS_PER_NAMESPACE
    )
    second[chosen[good]] = wanted[good]
    return second


def _groups(dataset: Ints, rng: Generator) -> Ints:
    """The recurrence tag of each job: `FIRST_TIME` of the jobs are the first of their tag.

    The others run again what ran before on the same data. O(n log n).
    """
    jobs = len(dataset)
    order = np.argsort(dataset, kind="stable")  # by time within a dataset
    begins = np.concatenate([[True], np.diff(dataset[order]) != 0])
    again = rng.permutation(np.flatnonzero(~begins))[: round((1 - FIRST_TIME) * jobs)]
    new = np.ones(jobs, dtype=np.bool_)
    new[again] = False
    group = np.empty(jobs, dtype=np.int64)
    group[order] = np.cumsum(new)
    return group


def _reads(first: Ints, second: Ints, names: list[str]) -> Texts:
    pairs = first * (len(names) + 1) + second + 1
    values, codes = np.unique(pairs, return_inverse=True)
    texts = []
    for pair in values.tolist():
        one, other = divmod(pair, len(names) + 1)
        texts.append(names[one] if not other else f"{names[one]}|{names[other - 1]}")
    return Texts(codes.astype(np.int32), texts)


def _dataset_names(namespace: Ints, tenant: Ints) -> list[str]:
    tenants = list(TENANTS)
    pairs = zip(namespace.tolist(), tenant.tolist(), strict=True)
    return [f"{tenants[t]}-{n}.p{i % PARTITIONS_PER_NAMESPACE}" for i, (n, t) in enumerate(pairs)]


# --------------------------------------------------------------------------------- work and regions


def _bands(jobs: int, rng: Generator) -> Ints:
    return values_by_counts({int(b): n for b, n in BANDS.items()}, even(jobs, rng)).astype(np.int64)


def _work(submit_s: Floats, band: Ints, rng: Generator) -> _Work:
    """What the jobs take. Those of low priority run longer, by what the two loads ask for."""
    jobs = len(submit_s)
    gpus = values_by_counts(GPUS, even(jobs, rng))
    duration_s = by_quantiles(DURATION_S, even(jobs, rng))
    high = band >= Band.HIGH
    held = gpus * duration_s
    scale = (LOAD / HIGH_LOAD - 1) * float(held[high].sum() / held[~high].sum())
    duration_s = np.asarray(np.round(np.where(high, duration_s, duration_s * scale)))
    model = by_counts(list(MODELS.values()), even(jobs, rng))
    return _Work(submit_s, duration_s, gpus, high, model)


def _hosts(work: _Work) -> Ints:
    """Hosts by region and GPU model (regions x models), so that the loads are met."""
    span_s = float(work.submit_s[-1])
    held = work.gpus * work.duration_s
    hosts = np.zeros((len(REGIONS), len(MODELS)), dtype=np.int64)
    for m in range(len(MODELS)):
        needed = float(held[work.model == m].sum()) / span_s / LOAD / HOST_GPUS
        hosts[:, m] = np.maximum(1, np.round(needed * np.array(list(REGIONS.values()))))
    return hosts


def _regions_of_datasets(
    dataset: Ints, partitions: int, work: _Work, hosts: Ints, rng: Generator
) -> Ints:
    """The region of each dataset, whole namespaces together. O(n log n x bisection)."""
    held = np.bincount(
        dataset[work.high], (work.gpus * work.duration_s)[work.high], minlength=partitions
    )
    namespace = np.arange(partitions) // PARTITIONS_PER_NAMESPACE
    order = rng.permutation(int(namespace[-1]) + 1)
    before = np.empty(len(order))
    total = np.bincount(namespace, held)
    before[order] = np.cumsum(total[order]) - total[order] / 2
    at = (before / total.sum())[namespace]
    rest = np.array(list(REGIONS.values()))[1:]

    def spread(share: float) -> Ints:
        others = 1 + by_counts(rest.tolist(), (at - share) / (1 - share))
        return np.where(at < share, 0, others)

    def miss(region: Ints) -> float:
        gpus = hosts[0] * HOST_GPUS
        return demand_over_supply(work, region[dataset] == 0, gpus) - WORST_RATIO

    low, high = 0.0, 0.95
    while high - low > 1 / len(order):
        share = (low + high) / 2
        low, high = (share, high) if miss(spread(share)) < 0 else (low, share)
    return _nudged(spread(low), namespace, order, miss)


def _nudged(region: Ints, namespace: Ints, order: Ints, miss: Callable[[Ints], float]) -> Ints:
    """Move one more namespace, the one that comes nearest, to the hot region."""
    best = region, abs(miss(region))
    outside = [n for n in order.tolist() if region[np.searchsorted(namespace, n)] != 0]
    for moved in outside[:TRIES]:
        if best[1] < TOLERANCE * WORST_RATIO:
            break
        tried = np.where(namespace == moved, 0, region)
        best = min(best, (tried, abs(miss(tried))), key=lambda found: found[1])
    return best[0]


def demand_over_supply(work: _Work, here: Bools, gpus: Ints) -> float:
    """GPUs that high-priority jobs of one region hold and wait for, over those present, on average.

    First come first served on each GPU model, over [first submission, last submission]. O(n log n).
    """
    end_s = float(work.submit_s[-1])
    waited_for = 0.0
    for m, supply in enumerate(gpus.tolist()):
        rows = np.flatnonzero(here & work.high & (work.model == m))
        finish_s = _first_come(work.submit_s[rows], work.duration_s[rows], work.gpus[rows], supply)
        there_s = np.minimum(finish_s, end_s) - work.submit_s[rows]
        waited_for += float((there_s * work.gpus[rows]).sum())
    return waited_for / end_s / float(gpus.sum())


def _first_come(submit_s: Floats, duration_s: Floats, gpus: Floats, supply: int) -> Floats:
    """When each job ends on ``supply`` GPUs, in order of submission. O(n log n)."""
    running: list[tuple[float, float]] = []
    free, now_s = float(supply), 0.0
    ends = []
    for submitted_s, lasts_s, wanted in zip(
        submit_s.tolist(), duration_s.tolist(), np.minimum(gpus, supply).tolist(), strict=True
    ):
        now_s = max(now_s, submitted_s)
        while running and (running[0][0] <= now_s or free < wanted):
            ended_s, given_back = heapq.heappop(running)
            now_s = max(now_s, ended_s)
            free += given_back
        free -= wanted
        heapq.heappush(running, (now_s + lasts_s, wanted))
        ends.append(now_s + lasts_s)
    return np.array(ends)


# -------------------------------------------------------------------------------------------- fleet


def _fleet(hosts: Ints, names: list[str], region: Ints, rng: Generator) -> dict[str, Any]:
    sizes = np.round(by_quantiles(SIZE_BYTES, even(len(names), rng)) / 1e9).astype(np.int64)
    there = np.bincount(region, sizes, minlength=len(REGIONS))
    regions = {}
    for r, (name, share) in enumerate(REGIONS.items()):
        storage = int(max(STORAGE * share * float(sizes.sum()), 1.25 * there[r])) + 1
        clusters = {
            f"{name}-{model.lower()}": {
                "hosts": [
                    {
                        "count": int(hosts[r, m]), "gpu": model, "gpus": HOST_GPUS, "cpus": 192,
                        "memory": 2048, "rack_size": 4, "pod_size": 8,
                    }
                ]
            }
            for m, model in enumerate(MODELS)
        }  # fmt: skip
        regions[name] = {"storage": f"{storage}GB", "clusters": clusters}
    links = [
        {"from": a, "to": b, "gbps": GBPS, "usd_per_gb": 0.02}
        for i, a in enumerate(REGIONS)
        for b in list(REGIONS)[i + 1 :]
    ]
    where = list(REGIONS)
    datasets = {
        name: {"size": f"{size}GB", "path": name, "replicas": [where[r]]}
        for name, size, r in zip(names, sizes.tolist(), region.tolist(), strict=True)
    }
    tenants = dict.fromkeys(TENANTS)
    return {"regions": regions, "links": links, "tenants": tenants, "datasets": datasets}
