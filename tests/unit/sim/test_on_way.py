"""A job that says on its way how long it will run, and gangs of tasks of several sizes."""

from __future__ import annotations

import pytest

from tests.support.build import cluster, fleet
from tests.support.simulated import jobs, run
from topmast.sim.workload import Workload

ONE_HOST = fleet(cluster("pool-1", hosts=1, gpus=8))


@pytest.mark.parametrize(
    ("story", "expected", "stops"),
    [
        ("it is known from the start that it runs for 1,000 s", "", 0),
        ("it said 5,000 s, and the shorter one goes first", "5000", 1),
        ("at 300 s it said that it needs but 1,000 s", "5000|0.3:1000", 0),
        ("at 500 s it is too late to say so", "5000|0.5:1000", 1),
    ],
)
def test_the_order_goes_by_what_a_job_said_last(story: str, expected: str, stops: int) -> None:
    """SRTF: at 400 s a job of 900 s comes; the one that runs takes 1,000 s in truth."""
    trace = jobs((0.0, 1_000.0, 8), (400.0, 900.0, 8), expected_s=[expected, ""])
    summary = run(trace, ONE_HOST, "srtf").result.summary
    assert summary["preemptions"] == stops
    assert summary["makespan_s"] == 1_900.0, "the work is what it is"


def test_what_was_done_again_is_not_said_again() -> None:
    """A job that is stopped after it spoke goes on from its checkpoint, and is done in time."""
    trace = jobs((0.0, 1_000.0, 8), (400.0, 100.0, 8), expected_s=["800|0.2:900|0.9:1000", ""])
    found = run(trace, ONE_HOST, "srtf")
    assert found.job("0")["finish_s"] == 1_100.0
    assert found.result.summary["preemptions"] == 1


@pytest.mark.parametrize("told", [True, False])
def test_where_lengths_are_predicted_nothing_is_said(told: bool) -> None:
    """Neither at the start nor on the way: the queue has to find out by itself."""
    trace = jobs((0.0, 1_000.0, 8), expected_s=["5000|0.3:1000"])
    [arrival] = Workload(trace, ONE_HOST, durations_told=told).arrivals()
    assert (arrival.spec.duration_s, arrival.expects) == (
        (5_000.0, ((0.3, 1_000.0),)) if told else (None, ())
    )


def test_tasks_of_several_sizes_are_one_gang() -> None:
    """Two tasks of two GPUs, one of four, and three that read with 4 CPUs each: all or none."""
    world = fleet(
        cluster("pool-1", hosts=1, gpus=8, cpus=16.0), cluster("pool-2", hosts=1, gpus=4, cpus=64.0)
    )
    trace = jobs(
        (0.0, 100.0, 2.0), (1.0, 100.0, 8.0),
        tasks=[2, 1], more_tasks=["1x4|3x0/4/1", ""],
    )  # fmt: skip
    found = run(trace, world)
    held = [row for row in found.allocations if row["job_id"] == "0"]
    assert sum(row["gpus"] for row in held) == 8.0
    assert found.job("0")["gpus"] == 8.0
    assert found.job("1")["first_start_s"] == 100.0, "the whole host was taken"


def test_a_gang_that_fits_nowhere_with_all_its_tasks_is_set_aside() -> None:
    """The first size alone would fit."""
    trace = jobs((0.0, 100.0, 2.0), more_tasks="4x4")
    assert run(trace, ONE_HOST).result.summary["never_startable"] == 1
