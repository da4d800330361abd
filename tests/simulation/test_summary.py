"""The summary says nothing that the tables do not: every figure is computed anew from them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.build import cluster, fleet
from tests.support.recompute import recompute
from tests.support.simulated import Run, jobs, mixed_trace, run, small_fleet
from topmast.sim.settings import Settings

STORMY = Settings(task_mtbf_s=40_000.0, host_mtbf_s=30_000.0, host_repair_s=2_000.0)
SLOW = Settings(latency_s=0.7, jitter_s=0.2, loss=0.1)
JOBS = 40
CASES = {
    "mast": ("mast", Settings()),
    "mast with faults": ("mast", STORMY),
    "mast over bad links": ("mast", SLOW),
    "fifo": ("fifo", Settings()),
    "easy with faults": ("easy", STORMY),
    "srtf": ("srtf", Settings()),
    "elastic jobs with faults": ("mast", STORMY),
    "elastic jobs over bad links": ("mast", SLOW),
    "gandiva": ("gandiva", Settings(gpu_busy=0.5)),
    "gandiva with faults": ("gandiva", STORMY),
    "elastic jobs in turns with faults": ("gandiva", STORMY),
}
MOST_TASKS = {
    "elastic jobs with faults": 6,
    "elastic jobs over bad links": 6,
    "elastic jobs in turns with faults": 6,
}
"""By case, how large the jobs may grow."""


def fresh(case: str) -> Run:
    """One run of a case."""
    profile, settings = CASES[case]
    trace = mixed_trace(JOBS, seed=7, most_tasks=MOST_TASKS.get(case, 0))
    return run(trace, small_fleet(), profile, settings, seed=3)


world = functools.cache(fresh)


def flat(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The plain values of nested mappings by their dotted names."""
    found: dict[str, Any] = {}
    for name, value in document.items():
        key = f"{prefix}{name}"
        found |= flat(value, f"{key}.") if isinstance(value, Mapping) else {key: value}
    return found


@pytest.mark.parametrize("case", CASES)
def test_every_figure_follows_from_the_tables(case: str) -> None:
    """What a summary says can be recomputed from jobs, allocations, timeline and copies alone."""
    found = world(case)
    summary = found.result.summary
    again = recompute(small_fleet(), found.jobs, found.allocations, found.timeline, found.copies)
    for name, value in flat(again).items():
        assert flat(summary)[name] == pytest.approx(value, rel=1e-9, abs=1e-6), name


@pytest.mark.parametrize("case", CASES)
def test_no_gpu_is_held_twice(case: str) -> None:
    """At no instant do attempts together hold more of a host than there is."""
    found = world(case)
    gpus = {h.name: h.gpus for r in small_fleet().regions for c in r.clusters for h in c.hosts}
    for host, count in gpus.items():
        changes = [
            change
            for a in found.allocations
            if a["host"] == host
            for change in ((a["start_s"], 1, a["gpus"]), (a["end_s"], 0, -a["gpus"]))
        ]
        held = 0.0
        for _, _, change in sorted(changes):
            held += change
            assert held <= count + 1e-9


@pytest.mark.parametrize("case", CASES)
def test_the_same_inputs_give_the_same_rows(case: str) -> None:
    """Two runs are equal row by row, faults and lost messages included."""
    one, other = world(case), fresh(case)
    assert one.jobs == other.jobs
    assert one.allocations == other.allocations
    assert one.timeline == other.timeline
    assert one.copies == other.copies
    assert one.result.summary == other.result.summary


@pytest.mark.parametrize("case", CASES)
def test_every_job_is_accounted_for(case: str) -> None:
    """Each job of the trace has one row; what no empty fleet could hold is pending, the rest is over."""
    found = world(case)
    summary = found.result.summary
    assert sorted(int(j["job_id"]) for j in found.jobs) == list(range(JOBS))
    assert summary["never_startable"] >= 1
    pending = [j["job_id"] for j in found.jobs if j["state"] == "PENDING"]
    assert pending == [x.job_id for x in found.result.set_aside]
    assert summary["finished"] + summary["failed"] + summary["never_startable"] == JOBS


def test_without_a_window_there_is_no_rate() -> None:
    """One job alone: no time passes from the first submission to the last, and nothing was allocated in it."""
    summary = run(jobs((0.0, 50.0, 8)), fleet(cluster("r-1", hosts=1, gpus=8))).result.summary
    assert summary["finished"] == 1
    assert (summary["allocation_rate"], summary["goodput_rate"]) == (None, None)
