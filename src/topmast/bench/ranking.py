"""How fast the queue is put in order: from scratch, and after one change."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from topmast.bench.setup import machine
from topmast.fast.queue import Ranking, Waiting
from topmast.model.job import Band
from topmast.policies.registry import load_profile, policies_of

CHANGES = 30_000
TENANTS = 200
AGES_S = 200_000.0
RUNS = 3
BANDS = tuple(Band)


def measure_ranking(jobs: int, seed: int, profile: str = "mast") -> dict[str, Any]:
    """Rank ``jobs`` jobs of as many kinds, then insert, remove and change bands, one at a time.

    After each change the head of the queue is looked up, within quota and over it, so that no work
    is put off beyond its own measurement.
    """
    rng = random.Random(seed)
    order = policies_of(load_profile(profile)).order
    used = {f"team{i}": rng.random() for i in range(TENANTS)}
    ranking = Ranking(order, lambda tenant: used[tenant])
    begun_s = time.perf_counter()
    for number in range(jobs):
        ranking.add_job_class(number, 0, 0)
        ranking.add(_waiting(rng, number, number * AGES_S / jobs))
    load_s = time.perf_counter() - begun_s
    full_s = []
    for run in range(RUNS):
        used.update({tenant: rng.random() for tenant in used})
        begun_s = time.perf_counter()
        ranking.rerank(AGES_S + run)
        full_s.append(time.perf_counter() - begun_s)
    kinds = {kind: _changes(ranking, rng, jobs, kind) for kind in ("insert", "remove", "band")}
    times_s = sorted(t for times in kinds.values() for t in times)
    return {
        "full_s": max(full_s),
        "incremental_us": sum(times_s) / len(times_s) * 1e6,
        "incremental_p50_us": times_s[len(times_s) // 2] * 1e6,
        "incremental_p99_us": times_s[len(times_s) * 99 // 100] * 1e6,
        "incremental_max_us": times_s[-1] * 1e6,
        **{f"{kind}_us": sum(times) / len(times) * 1e6 for kind, times in kinds.items()},
        "full_runs_s": full_s,
        "load_s": load_s,
        "jobs": jobs,
        "lines": jobs,
        "changes": len(times_s),
        "profile": profile,
        "seed": seed,
        "machine": machine(),
    }


def _changes(ranking: Ranking, rng: random.Random, jobs: int, kind: str) -> list[float]:
    """The seconds that each of many changes of one kind took."""
    count = max(1, min(CHANGES, jobs) // 3)
    numbers = range(jobs, jobs + count) if kind == "insert" else rng.sample(range(jobs), count)
    times_s = []
    for number in numbers:
        waiting = _waiting(rng, number, min(1.0, number / jobs) * AGES_S)
        change = _change(ranking, waiting, kind)
        begun_s = time.perf_counter()
        change()
        ranking.first_unblocked(over_quota=False)
        ranking.first_unblocked(over_quota=True)
        times_s.append(time.perf_counter() - begun_s)
    return times_s


def _change(ranking: Ranking, waiting: Waiting, kind: str) -> Callable[[], object]:
    """What is to be timed; a job in another band leaves its place, and is let in anew."""
    if kind == "remove":
        return lambda: ranking.remove([waiting.job])
    if kind == "band" and waiting.job not in ranking:
        return lambda: None  # removed before

    def let_in() -> None:
        if kind == "band":
            ranking.remove([waiting.job])
        else:
            ranking.add_job_class(waiting.job_class, 0, 0)
        ranking.add(waiting)

    return let_in


def _waiting(rng: random.Random, number: int, submit_s: float) -> Waiting:
    duration_s = rng.uniform(60.0, 86_400.0)
    return Waiting(
        job=f"j{number}",
        number=number,
        job_class=number,
        tenant=f"team{rng.randrange(TENANTS)}",
        band=rng.choice(BANDS),
        submit_s=submit_s,
        gpus=float(rng.choice((1, 2, 4, 8, 64))),
        tasks=1,
        duration_s=duration_s,
        remaining_s=duration_s,
    )
