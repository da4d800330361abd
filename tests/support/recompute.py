"""Every figure of a summary, computed anew from the tables alone, in the plainest way there is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from topmast.model.fleet import Fleet

Row = dict[str, Any]


TURNS = ("suspended", "packed", "unpacked")
"""Rows that end so are of attempts that go on."""


def recompute(
    fleet: Fleet,
    jobs: Sequence[Row],
    allocations: Sequence[Row],
    timeline: Sequence[Row],
    copies: Sequence[Row],
) -> dict[str, Any]:
    """The summary's figures by name."""
    window = (min(j["submit_s"] for j in jobs), max(j["submit_s"] for j in jobs))
    attempts = _attempts(allocations)
    done = [j for j in jobs if j["state"] == "SUCCEEDED"]
    present = _present(timeline)
    waiting = _waiting_spans(jobs, attempts, max(end for _, end, _ in present))
    held = sum(a["gpus"] * _overlap(a["start_s"], a["end_s"], *window) for a in allocations)
    kept = sum(
        a["gpus"] * _overlap(a["start_s"], min(a["start_s"] + a["kept_s"], a["end_s"]), *window)
        for a in allocations
    )
    there = sum(gpus * _overlap(start, end, *window) for start, end, gpus in present)
    waiting_then = [
        (max(s, window[0]), min(e, window[1]))
        for s, e in waiting
        if min(e, window[1]) > max(s, window[0])
    ]
    there_waiting = _while(waiting, [(s, e, g) for s, e, g in present])
    finishes = [j["finish_s"] for j in jobs if j["finish_s"] is not None]
    return {
        "jobs": len(jobs),
        "finished": len(done),
        "failed": sum(j["state"] == "FAILED" for j in jobs),
        "jct_s": _spread(j["finish_s"] - j["submit_s"] for j in done),
        "jct_steady_s": _spread(
            j["finish_s"] - j["submit_s"]
            for j in done
            if 0.7 <= (j["submit_s"] - window[0]) / max(window[1] - window[0], 1e-9) < 0.9
        ),
        "wait_s": _spread(
            j["finish_s"] - j["submit_s"]
            - sum(a["end_s"] - a["start_s"] for a in attempts.get(j["job_id"], []))
            for j in done
        ),
        "first_wait_s": _spread(
            attempts[j["job_id"]][0]["start_s"] - j["submit_s"] for j in done
        ),
        "makespan_s": max(finishes) - window[0] if finishes else 0.0,
        "allocation_rate": _ratio(held, there),
        "goodput_rate": _ratio(kept, there),
        "allocation_rate_waiting": _ratio(
            _while(waiting, [(a["start_s"], a["end_s"], a["gpus"]) for a in allocations]),
            there_waiting,
        ),
        "allocation_rate_waiting_in_window": _ratio(
            _while(waiting_then, [(a["start_s"], a["end_s"], a["gpus"]) for a in allocations]),
            _while(waiting_then, [(s, e, g) for s, e, g in present]),
        ),
        "stranded_gpu_rate": _ratio(_stranded(fleet, allocations, waiting), there_waiting),
        "demand_supply_ratio": _demand_supply(timeline, window),
        "non_collocation_rate": sum(not j["collocated"] for j in jobs) / len(jobs),
        "replication_overhead": _replication(copies, window),
        "attempts": sum(
            a["end_reason"] not in TURNS for of in attempts.values() for a in of
        ),
        "preemptions": sum(
            a["end_reason"] == "preempted" for of in attempts.values() for a in of
        ),
        "restarts": sum(_follows(of, "failed", "host_lost", "launch_failed") for of in attempts.values()),
        "migrations": sum(_migrations(of) for of in attempts.values()),
        "resizes": sum(
            before != after for of in attempts.values() for before, after in pairwise(_sizes(of))
        ),
        "lost_gpu_s": sum(
            a["gpus"] * (a["end_s"] - a["start_s"] - a["kept_s"]) for a in allocations
        ),
        "ftf_rho": _spread(_fairness(fleet, jobs, attempts, j) for j in done),
    }  # fmt: skip


def _attempts(allocations: Iterable[Row]) -> dict[str, list[Row]]:
    """One row per attempt, in the order of epochs, with its hosts."""
    found: dict[tuple[str, int], Row] = {}
    for row in allocations:
        empty = {**row, "hosts": [], "held": 0.0}
        first = found.setdefault((row["job_id"], row["epoch"]), empty)
        first["hosts"].append(row["host"])
        first["held"] += row["gpus"]
    by_job: dict[str, list[Row]] = {}
    for (job, _), row in sorted(found.items(), key=lambda item: item[0][1]):
        by_job.setdefault(job, []).append(row)
    return by_job


def _sizes(rows: Sequence[Row]) -> list[float]:
    """The GPUs of each attempt of a job: while it is packed it counts for half of them."""
    sizes = [0.0]
    for row in rows:
        sizes[-1] = max(sizes[-1], row["held"])
        if row["end_reason"] not in TURNS:
            sizes.append(0.0)
    return sizes[:-1]


def _spread(values: Iterable[float]) -> dict[str, float | None]:
    listed = list(values)
    if not listed:
        return {"mean": None, "p50": None, "p90": None, "p99": None}
    p50, p90, p99 = np.percentile(listed, (50, 90, 99))
    return {"mean": sum(listed) / len(listed), "p50": p50, "p90": p90, "p99": p99}


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _overlap(start_s: float, end_s: float, first_s: float, last_s: float) -> float:
    return max(0.0, min(end_s, last_s) - max(start_s, first_s))


def _present(timeline: Sequence[Row]) -> list[tuple[float, float, float]]:
    """GPUs present over time: (from, to, GPUs) of the whole fleet."""
    rows = {(t["start_s"], t["end_s"], t["region"]): t["present_gpus"] for t in timeline}
    spans: dict[tuple[float, float], float] = {}
    for (start_s, end_s, _), gpus in rows.items():
        spans[start_s, end_s] = spans.get((start_s, end_s), 0.0) + gpus
    return [(start_s, end_s, gpus) for (start_s, end_s), gpus in sorted(spans.items())]


def _waiting_spans(
    jobs: Sequence[Row], attempts: dict[str, list[Row]], end_s: float
) -> list[tuple[float, float]]:
    """When at least one job was queued that an empty fleet could hold: disjoint spans."""
    waits: list[tuple[float, float]] = []
    for job in jobs:
        own = attempts.get(job["job_id"], [])
        if job["state"] == "PENDING" and not own:
            continue  # set aside: no empty fleet could hold it
        since_s = job["submit_s"]
        for attempt in own:
            waits.append((since_s, attempt["start_s"]))
            since_s = attempt["end_s"]
        if job["finish_s"] is None:
            waits.append((since_s, end_s))
    merged: list[tuple[float, float]] = []
    for start_s, stop_s in sorted(w for w in waits if w[1] > w[0]):
        if merged and start_s <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], stop_s))
        else:
            merged.append((start_s, stop_s))
    return merged


def _while(
    spans: Sequence[tuple[float, float]], held: Iterable[tuple[float, float, float]]
) -> float:
    """GPU-seconds of ``held`` within ``spans``."""
    return sum(
        gpus * _overlap(start_s, end_s, *span) for start_s, end_s, gpus in held for span in spans
    )


def _stranded(
    fleet: Fleet, allocations: Sequence[Row], spans: Sequence[tuple[float, float]]
) -> float:
    """GPU-seconds free on hosts that are partly in use, while jobs wait."""
    gpus = {h.name: h.gpus for r in fleet.regions for c in r.clusters for h in c.hosts}
    total = 0.0
    for host, count in gpus.items():
        here = [a for a in allocations if a["host"] == host]
        times = sorted({t for a in here for t in (a["start_s"], a["end_s"])})
        for start_s, end_s in pairwise(times):
            used = sum(a["gpus"] for a in here if a["start_s"] <= start_s and a["end_s"] >= end_s)
            if used > 1e-6:
                total += (count - used) * sum(_overlap(start_s, end_s, *span) for span in spans)
    return total


def _demand_supply(timeline: Sequence[Row], window: tuple[float, float]) -> dict[str, Any]:
    sums: dict[str, float] = {}
    lengths: dict[str, float] = {}
    for row in timeline:
        sums.setdefault(row["region"], 0.0)
        if row["present_gpus"] and row["start_s"] >= window[0] and row["end_s"] <= window[1]:
            length_s = row["end_s"] - row["start_s"]
            if row["band"] in ("critical", "high"):
                sums[row["region"]] += row["demanded_gpus"] / row["present_gpus"] * length_s
            key = f"{row['region']}/{row['band']}"
            lengths[key] = lengths.get(key, 0.0) + length_s
    ratios = {
        region: total / max(x for k, x in lengths.items() if k.startswith(f"{region}/"))
        for region, total in sums.items()
    }
    return {"max": max(ratios.values()), "by_region": ratios}


def _replication(copies: Sequence[Row], window: tuple[float, float]) -> dict[str, float]:
    sizes = {c["dataset"]: c["bytes"] for c in copies}
    one = sum(sizes.values())
    if not one:
        return {"end": 0.0, "mean": 0.0}
    came = [(c["end_s"], -c["bytes"] if c["to"] == "" else c["bytes"]) for c in copies]
    mean = sum(size * max(0.0, window[1] - max(at_s, window[0])) for at_s, size in came)
    return {
        "end": sum(size for _, size in came) / one - 1.0,
        "mean": mean / (window[1] - window[0]) / one - 1.0,
    }


def _follows(attempts: Sequence[Row], *reasons: str) -> int:
    return sum(before["end_reason"] in reasons for before, _ in pairwise(attempts))


def _migrations(attempts: Sequence[Row]) -> int:
    failures = ("failed", "host_lost", "launch_failed")
    return sum(
        before["end_reason"] not in failures and before["hosts"] != after["hosts"]
        for before, after in pairwise(attempts)
    )


def _fairness(fleet: Fleet, jobs: Sequence[Row], attempts: dict[str, list[Row]], job: Row) -> float:
    """Time from submission to finish over that on an n-th of the fleet, n jobs being there meanwhile."""
    begin_s, end_s = job["submit_s"], job["finish_s"]
    present_s = sum(
        _overlap(
            j["submit_s"], math.inf if j["finish_s"] is None else j["finish_s"], begin_s, end_s
        )
        for j in jobs
        if attempts.get(j["job_id"]) or j["state"] != "PENDING"
    )
    share = job["gpus"] * present_s / (end_s - begin_s) / sum(fleet.gpus().values())
    run_s = sum(a["end_s"] - a["start_s"] for a in attempts[job["job_id"]])
    return float((end_s - begin_s) / (run_s * max(1.0, share)))
