"""The profile `gandiva` in the simulator: turns, pairs and moves, each told by what the tables say."""

import random
from itertools import groupby, pairwise
from typing import Any

import pytest

from tests.support.build import cluster, fleet
from tests.support.simulated import FREE, Run, jobs, run, run_timed
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.policies.registry import load_profile
from topmast.sim.settings import Settings
from topmast.sim.sharing import CRAWL, Sharing
from topmast.traces.throughputs import Throughputs, Work
from topmast.traces.trace import Trace, texts_of, trace_of

ONE_GPU = fleet(cluster("lab-1", hosts=1, gpus=1, model="V100"))
EIGHT = fleet(cluster("lab-1", hosts=1, gpus=8, model="V100"))
TURNS: dict[str, Any] = {"pack": "none", "rebalance": "none"}
STAYS: dict[str, Any] = {"rebalancing.migrate": "false"}
BUSY: dict[str, Any] = {"gpu_busy": 1.0, "packing_loss": 0.05}


def held_s(found: Run, job: str) -> float:
    """How long a job had its GPUs, all its turns together."""
    turns = (r["end_s"] - r["start_s"] for r in found.allocations if r["job_id"] == job)
    return float(sum(turns))


def test_two_jobs_share_the_time_of_the_same_gpus() -> None:
    """Ten minutes of work each on all GPUs, a minute each in turns: both are over after twenty."""
    found = run(jobs((0, 600, 8), (0, 600, 8)), EIGHT, "gandiva", FREE, **TURNS)
    rows = sorted((r["start_s"], r["end_s"]) for r in found.allocations)
    assert len(rows) == 20
    assert all(before[1] == after[0] for before, after in pairwise(rows))
    assert rows[-1][1] == 1_200
    assert sorted(job["finish_s"] for job in found.jobs) == [1_140, 1_200]
    assert [held_s(found, job["job_id"]) for job in found.jobs] == [600, 600]
    for job in found.jobs:
        own = [r for r in found.allocations if r["job_id"] == job["job_id"]]
        assert [r["epoch"] for r in own] == list(range(1, len(own) + 1))
        assert [r["end_reason"] for r in own] == ["suspended"] * (len(own) - 1) + ["succeeded"]


def test_every_switch_costs_what_it_costs() -> None:
    """A second before a gang is back at work, for each time that it was suspended."""
    settings = Settings(startup_s=0.0, checkpoint_s=0.0, restore_s=0.0, switch_s=1.0)
    found = run(jobs((0, 600, 8), (0, 600, 8)), EIGHT, "gandiva", settings, **TURNS)
    switches = sum(r["end_reason"] == "suspended" for r in found.allocations)
    assert sum(held_s(found, job["job_id"]) for job in found.jobs) == 1_200 + switches


@pytest.mark.parametrize(
    ("at_once", "least_s", "most_s"), [({}, 1_890, 1_900), (TURNS, 3_590, 3_600)]
)
def test_half_busy_jobs_gain_by_being_together(
    at_once: dict[str, Any], least_s: float, most_s: float
) -> None:
    """Two that use half of their GPU each do nearly the work of two; in turns that of one."""
    settings = Settings(0.0, 0.0, 0.0, switch_s=0.0, gpu_busy=0.5, packing_loss=0.0)
    found = run(jobs((0, 1_800, 1), (0, 1_800, 1)), ONE_GPU, "gandiva", settings, **at_once)
    finish_s = max(job["finish_s"] for job in found.jobs)
    assert finish_s <= most_s + 240, "but for the time until they were tried"
    assert finish_s >= least_s - 100


def test_busy_jobs_are_tried_once_and_parted() -> None:
    """They would do 0.95 of the work of one: the trial is taken back, and not repeated within the hour."""
    found = run(jobs((0, 1_800, 1), (0, 1_800, 1)), ONE_GPU, "gandiva", Settings(**BUSY))
    halves = [r for r in found.allocations if r["gpus"] == 0.5]
    assert {r["end_reason"] for r in halves} == {"unpacked"}
    assert sum(r["end_s"] - r["start_s"] for r in halves) == pytest.approx(2 * 60, abs=10)


def test_the_first_mini_batches_come_early() -> None:
    """Four long jobs on one GPU: first come, first served, the last waits for hours."""
    trace = jobs(*((i, 3_600, 1) for i in range(4)))
    settings = Settings(minibatch_s=0.5)
    early = {
        name: run(trace, ONE_GPU, name, settings).result.summary["first_minibatches_s"]
        for name in ("fifo-skip", "gandiva")
    }
    assert early["fifo-skip"]["p99"] > 3 * 3_600
    assert early["gandiva"]["p99"] < 900


def test_failures_and_checkpoints_count_in_a_gangs_own_time() -> None:
    """A task that fails loses what it did since its checkpoint, and nothing of the time that others had."""
    trace = jobs(*((0, 7_200, 8) for _ in range(3)), checkpoint_interval_s=[600.0] * 3)
    settings = Settings(0.0, 0.0, 0.0, switch_s=0.0, task_mtbf_s=20_000.0)
    found = run(trace, EIGHT, "gandiva", settings, seed=5, **TURNS)
    assert found.result.summary["restarts"] > 0
    assert found.result.summary["finished"] == 3
    for job in found.jobs:
        own = [r for r in found.allocations if r["job_id"] == job["job_id"]]
        kept_s = sum(r["kept_s"] for r in own)
        assert kept_s == pytest.approx(7_200, abs=1e-6), "all work was done once, and kept"
        lost_s = held_s(found, job["job_id"]) - kept_s
        assert 0 <= lost_s <= 600 * job["restarts"] + 1e-6


def test_moving_uses_gpus_that_come_free() -> None:
    """Three long jobs on two hosts; when the short one is over, nobody shares any more."""
    world = fleet(cluster("lab-1", hosts=2, gpus=4, model="V100"))
    trace = jobs((0, 20_000, 4), (0, 1_500, 4), (0, 20_000, 4))
    moved = run(trace, world, "gandiva", FREE, pack="none")
    stays = run(trace, world, "gandiva", FREE, pack="none", **STAYS)
    assert moved.result.summary["migrations"] == 1
    assert stays.result.summary["migrations"] == 0
    last_s = [max(job["finish_s"] for job in found.jobs) for found in (moved, stays)]
    assert last_s[0] < 0.6 * last_s[1]


def test_speeds_of_pairs_come_from_the_table() -> None:
    """What the table has of a pair holds; who gets nowhere beside another crawls; others go by the settings."""
    small, large, odd = Work("small", 1), Work("large", 1), Work("odd", 1)
    alone = {small: {"V100": 10.0}, large: {"V100": 4.0}, odd: {"V100": 1.0}}
    together = {(small, large): {"V100": (8.0, 3.0)}, (large, small): {"V100": (3.0, 8.0)}}
    table = Throughputs("test", alone, {}, together)
    works = {"a": small, "b": large, "c": odd, "d": Work("small", 4), "e": None}
    sharing = Sharing(Settings(gpu_busy=1.0, packing_loss=0.1, minibatch_s=0.5), table, works.get)
    assert sharing.factor("a", "b", "V100") == pytest.approx(0.8)
    assert sharing.factor("b", "a", "V100") == pytest.approx(0.75)
    assert sharing.factor("d", "b", "V100") == pytest.approx(0.8), "of four GPUs as of one"
    assert sharing.factor("a", "c", "V100") == CRAWL
    assert sharing.factor("a", "e", "V100") == pytest.approx(0.45)
    assert [sharing.steps_per_s(job) for job in "abe"] == [10.0, 4.0, 2.0]


SHORT, LONG = 1_500, 20_000
ALONE: dict[str, Any] = {"pack": "none", "rebalancing.join": "false"}


def test_a_move_that_made_a_job_slower_is_taken_back() -> None:
    """Two share a GPU; one comes free on a host whose CPUs are nearly all held, where a job does 0.3 of its work."""
    hosts = (HostSpec("calm", "V100", 1, cpus=3.9), HostSpec("busy", "V100", 2, cpus=32.0))
    world = fleet(ClusterSpec("lab-1", hosts))
    trace = jobs(
        (0, LONG, 1), (0, SHORT, 1), (1, LONG, 1), (2, LONG, 1), cpus=[28.0, 4.0, 2.0, 2.0]
    )
    settings = Settings(0.0, 0.0, 0.0, switch_s=0.0, busy_cpus=0.2, minibatch_s=0.05)
    found = run(trace, world, "gandiva", settings, 0, **ALONE)
    ways = {}
    for job in ("2", "3"):
        turns = sorted((r["start_s"], r["host"]) for r in found.allocations if r["job_id"] == job)
        ways[job] = [host for host, _ in groupby(host for _, host in turns)]
    assert sorted(ways.values()) == [["calm", "busy", "calm"]] * 2, (
        "there, measured, back; for good"
    )
    assert found.result.summary["migrations"] == 4


def table_of(well: tuple[str, str]) -> Throughputs:
    """Three kinds of work on one GPU model, of which these two lose little beside one another, and others much."""
    kinds = ("a", "b", "c")
    alone = {Work(kind, 1): {"V100": 10.0} for kind in kinds}
    together = {
        (Work(one, 1), Work(two, 1)): {"V100": (9.0, 9.0) if {one, two} == set(well) else (3.0, 3.0)}
        for one in kinds
        for two in kinds
    }  # fmt: skip
    return Throughputs("test", alone, {}, together)


@pytest.mark.parametrize("join", [True, False])
def test_who_has_nobody_to_be_packed_with_joins_another(join: bool) -> None:
    """Two of three share a GPU and go badly together: one of them goes well with the third, and joins it."""
    world = fleet(cluster("lab-1", hosts=2, gpus=1, model="V100"))
    trace = jobs((0, LONG, 1), (1, LONG, 1), (2, LONG, 1), model=texts_of(["a", "b", "c"]))
    options = load_profile("gandiva", {**STAYS, "rebalancing.join": str(join).lower()})
    found = run_timed(trace, world, options, table_of(("b", "c")), FREE)
    assert bool(found.result.summary["migrations"]) is join
    last_s = max(job["finish_s"] for job in found.jobs)
    assert last_s < 1.25 * LONG if join else last_s > 1.4 * LONG


SIXTEEN = fleet(cluster("lab-1", hosts=4, gpus=4, model="V100"))
SIZES_STAY: dict[str, Any] = {"elastic.grow": "false", "elastic.shrink": "false"}


def few_jobs(elastic: bool) -> Trace:
    """Jobs of one to four tasks that come one after the other to 16 GPUs, of which most would idle."""
    rng = random.Random(7)
    submit_s = sorted(rng.uniform(0, 60_000.0) for _ in range(40))
    tasks = [rng.choice((1, 2, 4)) for _ in submit_s]
    return trace_of(
        "few", submit_s=submit_s, duration_s=[rng.uniform(600.0, 9_000.0) for _ in submit_s],
        gpus=[1.0] * len(tasks), tasks=tasks,
        min_tasks=[max(1, n // 2) if elastic else n for n in tasks],
        max_tasks=[2 * n if elastic else n for n in tasks],
    )  # fmt: skip


def test_idle_gpus_are_used_at_a_low_load() -> None:
    """With restarts charged, jobs that may have twice as many tasks are done sooner, and none is kept from its start."""
    trace = few_jobs(elastic=True)
    grown = run(trace, SIXTEEN, "gandiva", Settings())
    stay = run(trace, SIXTEEN, "gandiva", Settings(), **SIZES_STAY)
    assert stay.result.summary["resizes"] == 0 < grown.result.summary["resizes"]
    mean_s = [found.result.summary["jct_s"]["mean"] for found in (grown, stay)]
    assert mean_s[0] < 0.9 * mean_s[1]
    wait_s = [found.result.summary["first_wait_s"]["p99"] for found in (grown, stay)]
    assert wait_s[0] < 120


def test_a_grown_gang_gives_way_to_who_comes() -> None:
    """Alone it has all eight GPUs; another that wants two is laid over it, and soon both have their own."""
    trace = jobs(
        (0, 20_000, 1), (4_000, 6_000, 2), tasks=[2, 1], min_tasks=[1, 1], max_tasks=[8, 1]
    )
    world = fleet(cluster("lab-1", hosts=2, gpus=4, model="V100"))
    found = run(trace, world, "gandiva", FREE)
    grows: dict[str, Any] = {"elastic.shrink": "false"}
    taking_turns = run(trace, world, "gandiva", FREE, **grows)
    sizes = []
    for _, rows in groupby(
        sorted((r for r in found.allocations if r["job_id"] == "0"), key=lambda r: r["epoch"]),
        key=lambda r: r["epoch"],
    ):
        sizes.append(sum(r["gpus"] for r in rows))
    assert [size for size, _ in groupby(sizes)] == [2.0, 8.0, 6.0]
    last_turn_s = max(r["end_s"] for r in found.allocations if r["end_reason"] == "suspended")
    assert 4_000 < last_turn_s < 4_600
    assert held_s(found, "1") == 6_000
    for job in ("0", "1"):
        assert found.job(job)["finish_s"] < taking_turns.job(job)["finish_s"]


def test_jobs_of_one_size_do_not_notice() -> None:
    """Without elastic jobs every decision is the same, whether or not sizes may change."""
    trace = few_jobs(elastic=False).with_load(4.0)
    rows = [run(trace, SIXTEEN, "gandiva", Settings(), **more) for more in ({}, SIZES_STAY)]
    assert rows[0].allocations == rows[1].allocations
    assert rows[0].result.summary["suspensions"] > 0
    assert rows[0].jobs == rows[1].jobs


def test_the_same_run_gives_the_same_sizes() -> None:
    """Sizes are decided by what happened alone."""
    first, again = (run(few_jobs(elastic=True), SIXTEEN, "gandiva", Settings()) for _ in range(2))
    assert first.allocations == again.allocations
