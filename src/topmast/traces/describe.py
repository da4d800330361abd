"""What a trace is like, in the figures by which *MLaaS in the Wild* (Weng et al., NSDI '22)
described PAI's: run times, waits, requests, gangs, recurrence, arrivals, and who submits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from topmast.model.job import Band
from topmast.traces.trace import Bools, Floats, Ints, Texts, Trace

PERCENTILES = (5, 25, 50, 75, 90, 95, 99)
RECURS = 5
"""A job recurs if its group has at least so many (as the paper counts)."""
MOST = 12
"""Rows of a table of what is most frequent."""


def describe(trace: Trace) -> dict[str, Any]:
    """The marginals of a trace, ready for JSON. O(n log n)."""
    asked = trace.total_gpus()
    with_gpus = asked > 0
    waited = trace.waited_s[~np.isnan(trace.waited_s)]
    gpu_s = asked * trace.duration_s
    return {
        "trace": trace.name,
        "jobs": len(trace),
        "skipped": trace.skipped,
        "unfinished": trace.unfinished,
        "gpu_jobs": int(with_gpus.sum()),
        "span_s": float(trace.submit_s[-1] - trace.submit_s[0]) if len(trace) else 0.0,
        "gpu_hours": float(gpu_s.sum() / 3600),
        "runtime_s": summary(trace.duration_s),
        "wait_s": summary(waited) if len(waited) else None,
        "requests": {
            "gpus_per_task": summary(trace.gpus[with_gpus]),
            "gpus_per_job": summary(asked[with_gpus]),
            "cpus_per_task": summary(trace.cpus[trace.cpus > 0]),
            "memory_gb_per_task": summary(trace.memory_gb[trace.memory_gb > 0]),
        },
        "gangs": _gangs(trace, asked, gpu_s),
        "recurrence": _recurrence(trace.group),
        "arrivals": _arrivals(trace.submit_s),
        "users": _who(trace.user),
        "tenants": _who(trace.tenant),
        "gpu_requests": _gpu_requests(trace.gpus, gpu_s),
        "gpu_models": _shares(trace.gpu_models, gpu_s, "any", "gpu_models"),
        "bands": _bands(trace.band, gpu_s),
        "busiest_tenants": _shares(trace.tenant, gpu_s, "", "tenant"),
    }


def summary(values: Floats) -> dict[str, float] | None:
    """Mean, percentiles and largest; None of nothing."""
    if not len(values):
        return None
    found = dict(zip(PERCENTILES, np.percentile(values, PERCENTILES).tolist(), strict=True))
    marks = {f"p{percentile}": value for percentile, value in found.items()}
    return {"mean": float(values.mean()), **marks, "max": float(values.max())}


def _share(part: Bools | Floats, whole: Floats | None = None) -> float:
    if whole is None:
        return float(part.mean()) if len(part) else 0.0
    total = float(whole.sum())
    return float(part.sum()) / total if total else 0.0


def _gangs(trace: Trace, asked: Floats, gpu_s: Floats) -> dict[str, Any]:
    """Of the jobs, and of the GPU time: gangs of several tasks, jobs of several GPUs, shares of
    one.
    """
    gang, several, part = trace.total_tasks() > 1, asked > 1, (trace.gpus > 0) & (trace.gpus < 1)
    return {
        "gang_share": _share(gang),
        "gang_gpu_time_share": _share(gpu_s[gang], gpu_s),
        "multi_gpu_share": _share(several),
        "multi_gpu_time_share": _share(gpu_s[several], gpu_s),
        "shared_gpu_share": _share(part),
        "largest_gang": int(trace.total_tasks().max(initial=0)),
        "largest_job_gpus": float(asked.max(initial=0.0)),
    }


def group_sizes(column: Texts) -> Ints:
    """Jobs of each name that is not blank, the largest first."""
    counts = column.counts()
    counts.pop("", None)
    return np.array(list(counts.values()), dtype=np.int64)


def _recurrence(group: Texts) -> dict[str, Any] | None:
    """How much of the work has run before; None if no job has a tag."""
    sizes = group_sizes(group)
    jobs = len(group)
    if not len(sizes):
        return None
    return {
        "groups": len(sizes),
        "tagged_share": float(sizes.sum()) / jobs,
        f"in_groups_of_{RECURS}_share": float(sizes[sizes >= RECURS].sum()) / jobs,
        "first_time_share": (len(sizes) + jobs - int(sizes.sum())) / jobs,
        "jobs_per_group": summary(sizes.astype(np.float64)),
    }


def _arrivals(submit_s: Floats) -> dict[str, Any]:
    """Gaps, and the share of each hour of a day that begins with the trace."""
    hours = np.bincount((submit_s // 3600 % 24).astype(np.int64), minlength=24)
    gaps = np.diff(submit_s)
    spread = float(gaps.std() / gaps.mean()) if len(gaps) and gaps.mean() > 0 else None
    return {
        "per_hour": len(submit_s) / max(float(np.ptp(submit_s)) / 3600, 1 / 3600),
        "gap_s": summary(gaps),
        "gap_variation": spread,
        "share_by_hour": (hours / max(len(submit_s), 1)).tolist(),
    }


def _who(column: Texts) -> dict[str, Any] | None:
    """How many there are, and the share of the busiest twentieth of them; None if all are blank."""
    sizes = group_sizes(column)
    if not len(sizes):
        return None
    top = max(1, round(len(sizes) / 20))
    return {"count": len(sizes), "busiest_5_percent_share": float(sizes[:top].sum() / sizes.sum())}


def _gpu_requests(gpus: Floats, gpu_s: Floats) -> list[dict[str, Any]]:
    """What a task asks for, the most frequent first."""
    values, rows = np.unique(gpus, return_inverse=True)
    counts, held = np.bincount(rows), np.bincount(rows, gpu_s)
    total = max(float(gpu_s.sum()), 1e-300)
    return [
        {
            "gpus_per_task": float(values[i]),
            "jobs": int(counts[i]),
            "share": float(counts[i] / len(gpus)),
            "gpu_time_share": float(held[i] / total),
        }
        for i in np.argsort(-counts, kind="stable")[:MOST].tolist()
    ]


def _shares(column: Texts, gpu_s: Floats, blank: str, title: str) -> list[dict[str, Any]]:
    """Jobs and GPU time by text, the most frequent first."""
    size = len(column.names)
    counts = np.bincount(column.codes, minlength=size)
    held = np.bincount(column.codes, gpu_s, minlength=size)
    total = max(float(gpu_s.sum()), 1e-300)
    return [
        {
            title: column.names[i] or blank,
            "jobs": int(counts[i]),
            "share": float(counts[i] / len(column)),
            "gpu_time_share": float(held[i] / total),
        }
        for i in np.argsort(-counts, kind="stable")[:MOST].tolist()
        if counts[i]
    ]


def _bands(band: Ints, gpu_s: Floats) -> list[dict[str, Any]]:
    total = max(float(gpu_s.sum()), 1e-300)
    return [
        {
            "band": known.name.lower(),
            "jobs": int(rows.sum()),
            "share": float(rows.mean()),
            "gpu_time_share": float(gpu_s[rows].sum() / total),
        }
        for known in Band
        if (rows := band == int(known)).any()
    ]
