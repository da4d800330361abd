"""`philly-like`: jobs as in Microsoft's Philly cluster, September to December 2017.

Figures measured on the public trace (82,247 jobs; CC-BY-4.0; Jeon et al., *Analysis of Large-Scale
Multi-Tenant GPU Clusters for DNN Training Workloads*, ATC '19).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator

from topmast.traces.generate.draws import (
    arrivals,
    by_quantiles,
    even,
    texts_by_counts,
    values_by_counts,
)
from topmast.traces.trace import Trace, gangs, trace_of

JOBS = 82_247
SPAN_S = 9_408_690.0

GPUS = {
    1: 76_627, 2: 1_818, 4: 1_870, 8: 1_643, 12: 7, 16: 199, 24: 7, 32: 67, 64: 6, 128: 3,
}  # fmt: skip
"""Jobs by number of GPUs."""
_AT = (
    0.0, 0.01, 0.05, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.82, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99,
    0.995,
    0.999, 1.0,
)  # fmt: skip
DURATION_S = {
    1: (1, 30, 52, 62, 122, 600, 1117, 1728, 2716, 4148, 8512, 11166, 19137, 44233, 68252,
        135399, 266914, 865709, 3256045),
    2: (2, 5, 9, 11, 16, 19, 21, 25, 76, 674, 72740, 124488, 197062, 267687, 343862, 523316,
        808064, 1474215, 2582803),
    4: (3, 36, 75, 138, 773, 7468, 17410, 36288, 89394, 119874, 184435, 196484, 273968,
        449497, 533378, 907376, 1205990, 2446301, 2750674),
    8: (1, 33, 125, 216, 1876, 12382, 23683, 65014, 173248, 217132, 351982, 408314, 525618,
        667789, 795161, 1060498, 2000448, 2656479, 4628226),
    9: (1, 4, 35, 72, 566, 3167, 21137, 53750, 104218, 162281, 247972, 330234, 443240, 515350,
        613624, 922629, 1274181, 1612502, 1710643),
}  # fmt: skip
"""Run times at the quantiles of `_AT`, by GPUs; 9 stands for more than 8."""
TENANTS = (
    41_226, 16_091, 9_953, 7_423, 1_934, 1_511, 1_435, 1_137, 723, 422, 374, 8, 4, 3, 3,
)  # fmt: skip
"""Jobs of the 15 virtual clusters."""
HOURS = (
    53, 41, 47, 46, 29, 48, 70, 87, 46, 42, 43, 36, 31, 29, 27, 27, 37, 28, 33, 30, 42, 38, 47, 42,
)  # fmt: skip
"""Arrivals by hour of the day, per mille."""
DAYS = (123, 152, 163, 184, 206, 87, 85)
"""Arrivals by day of the week, from Monday, per mille."""
HOSTS = ((231, 8), (321, 2))
"""Machines of 8 and of 2 GPUs: 552 with 2,490."""


def generate(jobs: int, rng: Generator) -> tuple[Trace, dict[str, Any]]:
    """A trace of ``jobs`` jobs, and the cluster as a fleet file. O(n log n)."""
    count = values_by_counts(GPUS, even(jobs, rng))
    duration_s = np.empty(jobs)
    for gpus, times_s in DURATION_S.items():
        rows = np.flatnonzero(np.minimum(count, 9) == gpus)
        points = dict(zip(_AT, times_s, strict=True))
        duration_s[rows] = np.round(by_quantiles(points, even(len(rows), rng)))
    per_task, tasks = gangs(count, 8)
    trace = trace_of(
        "philly-like",
        job_id=[f"philly-{i}" for i in range(jobs)],
        submit_s=arrivals(jobs, SPAN_S / JOBS, rng, hours=HOURS, days=DAYS),
        duration_s=duration_s,
        gpus=per_task,
        tasks=tasks,
        tenant=texts_by_counts({f"vc{i}": n for i, n in enumerate(TENANTS)}, even(jobs, rng)),
    )
    return trace, fleet()


def fleet() -> dict[str, Any]:
    """The cluster of the trace; its GPUs are not named in print."""
    hosts = [{"count": n, "name": f"gpu{g}", "gpu": "GPU", "gpus": g} for n, g in HOSTS]
    tenants = {f"vc{i}": None for i in range(len(TENANTS))}
    return {"regions": {"philly": {"clusters": {"philly": {"hosts": hosts}}}}, "tenants": tenants}
