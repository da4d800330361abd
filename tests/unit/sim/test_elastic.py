"""Elastic jobs in the simulator: progress goes with their tasks, and the GPUs that were idle are used."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from tests.support.build import cluster, fleet
from tests.support.simulated import FREE, Run, jobs, run
from topmast.policies.registry import load_profile
from topmast.sim.settings import Settings
from topmast.traces.trace import Trace, trace_of

RESIZING = {"elastic.grow": "true", "elastic.shrink": "true", "restart_cost_s": "0"}
EIGHT = fleet(cluster("east-1", hosts=1, gpus=8))


@pytest.mark.parametrize(
    ("efficiency", "tasks", "want_s"),
    [(1.0, 8, 500.0), (1.0, 4, 1_000.0), (1.0, 2, 2_000.0), (0.8, 8, 625.0), (0.8, 2, 1_600.0)],
)
def test_speed_goes_with_the_tasks(efficiency: float, tasks: int, want_s: float) -> None:
    """`duration_s` is that with the tasks asked for; a doubling makes it faster by twice the efficiency."""
    blocker = (0.0, 10_000.0, 8 - tasks) if tasks < 8 else (0.0, 10_000.0, 0)
    settings = Settings(startup_s=0, restore_s=0, checkpoint_s=0, elastic_efficiency=efficiency)
    asked = 4 if tasks < 8 else 8
    trace = jobs(
        blocker, (1.0, 1_000.0, 1),
        tasks=[1, asked], min_tasks=[1, 1], max_tasks=[1, 8],
    )  # fmt: skip
    found = run(trace, EIGHT, settings=settings)
    attempts = [row for row in found.allocations if row["job_id"] == "1"]
    assert sum(row["gpus"] for row in attempts) == tasks
    speed_of_all = 1_000.0 if asked == 8 else want_s
    assert found.job("1")["finish_s"] == pytest.approx(1.0 + speed_of_all)


def test_growth_is_worked_with_from_then_on() -> None:
    """Half of the work at four tasks, the other half at eight, and what each attempt held is in its row."""
    trace = jobs(
        (0.0, 600.0, 4), (0.0, 2_000.0, 1), tasks=[1, 4], min_tasks=[1, 4], max_tasks=[1, 8]
    )
    options = {**RESIZING, "elastic.every_s": "100"}
    found = run(trace, EIGHT, load_profile("fifo-skip", options), FREE)
    rows = [row for row in found.allocations if row["job_id"] == "1"]
    assert [(row["epoch"], row["gpus"], row["start_s"]) for row in rows] == [
        (1, 4.0, 0.0), (2, 8.0, 600.0),
    ]  # fmt: skip
    assert rows[1]["end_s"] == pytest.approx(600.0 + 1_400.0 / 2)
    job = found.job("1")
    assert (job["gpus"], job["wait_s"], job["preemptions"], job["lost_gpu_s"]) == (4.0, 0.0, 1, 0.0)
    assert found.result.summary["resizes"] == 1


def test_learned_durations_are_those_of_the_size_asked_for() -> None:
    """A run that was short because it had more tasks does not make the next of its group look short."""
    trace = jobs(
        (0.0, 8_000.0, 1), (20_000.0, 8_000.0, 1), (20_000.0, 5_000.0, 8),
        tasks=[2, 2, 1], min_tasks=[2, 2, 1], max_tasks=[8, 2, 1], group=["g", "g", ""],
    )  # fmt: skip
    settings = Settings(durations_told=False, startup_s=0, checkpoint_s=0, restore_s=0)
    profile = load_profile("sjf", {**RESIZING, "default_duration_s": "6000"})
    found = run(trace, EIGHT, profile, settings)
    assert found.job("0")["finish_s"] < 3_000.0
    assert found.job("2")["first_start_s"] == 20_000.0, "the default is less than 8,000 s"


def _busy_and_idle(elastic: bool) -> Trace:
    """Bursts of jobs of two to four tasks on a fleet that is idle in between."""
    rng = random.Random(5)
    submit_s = sorted(
        rng.choice((0.0, 20_000.0, 40_000.0)) + rng.uniform(0, 6_000) for _ in range(60)
    )
    tasks = [rng.choice((2, 4)) for _ in submit_s]
    return trace_of(
        "bursts",
        submit_s=submit_s,
        duration_s=[rng.uniform(1_000.0, 6_000.0) for _ in submit_s],
        gpus=[1.0] * len(submit_s),
        tasks=tasks,
        min_tasks=[1 if elastic else t for t in tasks],
        max_tasks=[8 if elastic else t for t in tasks],
    )


def _bursts(elastic: bool, resizing: bool = True) -> Run:
    word = "true" if resizing else "false"
    profile = load_profile("mast", {"elastic.grow": word, "elastic.shrink": word})
    return run(
        _busy_and_idle(elastic), fleet(cluster("east-1", hosts=4, gpus=8)), profile, Settings()
    )


def test_idle_gpus_are_used_and_jobs_are_done_sooner() -> None:
    """With restarts charged, elastic jobs take less time in the mean than rigid ones, and fewer GPUs stand idle."""
    rigid, resized = _bursts(elastic=False), _bursts(elastic=True)
    fitted = _bursts(elastic=True, resizing=False)
    done = [found.result.summary["finished"] for found in (rigid, fitted, resized)]
    assert done == [60, 60, 60]
    mean_s = [found.result.summary["jct_s"]["mean"] for found in (rigid, fitted, resized)]
    assert mean_s[2] < 0.75 * mean_s[0]
    assert mean_s[2] < mean_s[1]
    assert _in_use(resized) > 1.25 * _in_use(rigid)
    assert rigid.result.summary["resizes"] == 0 < resized.result.summary["resizes"]


def _in_use(found: Run) -> float:
    """How many GPUs are held in the mean while any are."""
    rows = found.allocations
    ends_s = sorted({at_s for row in rows for at_s in (row["start_s"], row["end_s"])})
    held = [
        (end_s - start_s, sum(r["gpus"] for r in rows if r["start_s"] <= start_s < r["end_s"]))
        for start_s, end_s in pairwise(ends_s)
    ]
    some = [(length_s, gpus) for length_s, gpus in held if gpus]
    mean: float = sum(s * gpus for s, gpus in some) / sum(s for s, _ in some)
    return mean


def test_the_same_run_gives_the_same_rows() -> None:
    """Sizes are decided by what happened alone."""
    first, again = _bursts(elastic=True), _bursts(elastic=True)
    assert first.allocations == again.allocations
