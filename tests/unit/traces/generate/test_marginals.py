"""Generated traces have the published marginals. Figures here are those printed by the sources."""

import heapq
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.unit.traces.test_writing import assert_same
from topmast.model.errors import InvalidInput
from topmast.model.files.fleetfile import parse_fleet
from topmast.model.job import Band
from topmast.traces.generate import KINDS, generate
from topmast.traces.trace import Trace

JOBS = 20_000


@cache
def made(kind: str, jobs: int = JOBS, seed: int = 1) -> tuple[Trace, dict[str, Any]]:
    """A trace, made once."""
    return generate(kind, jobs, seed)


@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_trace(kind: str) -> None:
    """A seed names one trace, and another seed another."""
    again, plan = generate(kind, 3000, 7)
    assert_same(again, generate(kind, 3000, 7)[0])
    assert plan == generate(kind, 3000, 7)[1]
    assert not np.array_equal(again.submit_s, generate(kind, 3000, 8)[0].submit_s)


@pytest.mark.parametrize("kind", KINDS)
def test_as_many_jobs_as_asked_in_order(kind: str) -> None:
    """Ids are unique, times begin at 0 and do not go back."""
    trace, _ = made(kind)
    assert len(trace) == JOBS == len(dict.fromkeys(trace.job_id))
    assert trace.submit_s[0] == 0
    assert (np.diff(trace.submit_s) >= 0).all()
    assert (trace.duration_s > 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_every_job_fits_the_fleet(kind: str) -> None:
    """No task asks for more than a host of an accepted model has, and the fleet file can be read."""
    trace, plan = made(kind)
    fleet = parse_fleet(plan)
    hosts = [h for region in fleet.regions for c in region.clusters for h in c.hosts]
    largest = {m: max(h.gpus for h in hosts if h.model == m) for m in fleet.models()}
    largest[""] = max(largest.values())
    accepted = [name.split("|") for name in trace.gpu_models.names]
    limit = np.array([max(largest[name] for name in names) for names in accepted])
    assert (trace.gpus <= limit[trace.gpu_models.codes]).all()
    assert {name for name in trace.tenant.names if name != "default"} <= {
        tenant.name for tenant in fleet.tenants
    }


# --------------------------------------------------------------------------------------- pai-like

TASKS = 1_261_050
PLAN_GPU = {1.0: 442_591, 0.25: 272_243, 0.0: 223_965, 0.5: 136_701, 0.1: 116_648, 2.0: 16_312, 8.0: 4_943}  # fmt: skip
GPU_TYPE = {"MISC": 696_000, "T4": 227_000, "": 218_000, "P100": 73_000, "V100": 29_000, "V100M32": 19_000}  # fmt: skip


@pytest.mark.parametrize(("gpus", "tasks"), PLAN_GPU.items())
def test_pai_requests(gpus: float, tasks: int) -> None:
    """Shares of tasks by GPUs requested, within half a per cent of all tasks."""
    trace, _ = made("pai-like")
    assert float((trace.gpus == gpus).mean()) == pytest.approx(tasks / TASKS, abs=0.005)


@pytest.mark.parametrize(("model", "tasks"), GPU_TYPE.items())
def test_pai_types(model: str, tasks: int) -> None:
    """Shares of tasks by GPU type, within a per cent of all tasks."""
    trace, _ = made("pai-like")
    share = trace.gpu_models.counts()[model] / JOBS
    assert share == pytest.approx(tasks / TASKS, abs=0.01)


def test_pai_gangs() -> None:
    """963,703 tasks have one instance."""
    trace, _ = made("pai-like")
    assert float((trace.tasks == 1).mean()) == pytest.approx(963_703 / TASKS, abs=0.01)


def test_pai_durations() -> None:
    """P50, P90 and P99 of run times."""
    trace, _ = made("pai-like")
    found = np.percentile(trace.duration_s, [50, 90, 99])
    np.testing.assert_allclose(found, [614, 12_390, 67_166], rtol=0.02)


def test_pai_sizes() -> None:
    """P95 of what a task asks for: 12 vCPUs, one GPU, 59 GB."""
    trace, _ = made("pai-like")
    assert np.percentile(trace.cpus, 95) == pytest.approx(12, abs=1)
    assert np.percentile(trace.gpus, 95) == 1
    assert np.percentile(trace.memory_gb, 95) == pytest.approx(59, rel=0.02)


def test_pai_recurrence() -> None:
    """65% of tasks recur at least five times; 78% of those last within 25% of what is usual for them."""
    trace, _ = made("pai-like")
    sizes = np.bincount(trace.group.codes)
    assert sizes[sizes >= 5].sum() / JOBS == pytest.approx(0.65, abs=0.005)
    often = np.flatnonzero(sizes >= 5)
    durations = [trace.duration_s[trace.group.codes == g] for g in often]
    near = sum(int((np.abs(d / np.median(d) - 1) <= 0.25).sum()) for d in durations)
    assert near / sizes[sizes >= 5].sum() == pytest.approx(0.78, abs=0.03)
    users = [len(np.unique(trace.user.codes[trace.group.codes == g])) for g in often[:100]]
    assert users == [1] * 100


def test_pai_arrivals() -> None:
    """The tasks of two months come in two months: 1,261,050 in 62 days."""
    trace, _ = made("pai-like")
    assert trace.submit_s[-1] / JOBS == pytest.approx(62 * 86_400 / TASKS, rel=0.02)


def test_pai_fleet() -> None:
    """1,897 machines with 6,742 GPUs, by type as in the machine table."""
    fleet = parse_fleet(made("pai-like")[1])
    assert fleet.gpus() == {"MISC": 2240, "P100": 1596, "V100M32": 1080, "T4": 994, "V100": 832}
    assert len(fleet.regions[0].clusters[0].hosts) == 1897


# -------------------------------------------------------------------------------------- gavel-like


def test_gavel_sizes_durations_and_speeds() -> None:
    """70% of one GPU, 20% that run for more than a day on V100, and every job slower or faster by its type."""
    trace, plan = made("gavel-like")
    assert float((trace.total_gpus() == 1).mean()) == pytest.approx(0.7, abs=0.002)
    assert float((trace.duration_s > 60_000).mean()) == pytest.approx(0.2, abs=0.002)
    assert trace.duration_s.min() >= 60 * 10**1.5 * 0.999
    assert trace.duration_s.max() <= 60 * 10**4 * 1.001
    assert len(trace.model.names) == 26
    speeds = np.array([[float(x) for x in text.split("|")] for text in trace.speeds.names])
    assert (speeds[:, 0] == 1).all()
    assert speeds[:, 2].min() == 0.086
    assert parse_fleet(plan).gpus() == {"V100": 32, "P100": 32, "K80": 32}


# ------------------------------------------------------------------------------------- philly-like

PHILLY_GPUS = {1: 76_627, 2: 1_818, 4: 1_870, 8: 1_643}


@pytest.mark.parametrize(("gpus", "jobs"), PHILLY_GPUS.items())
def test_philly_sizes(gpus: int, jobs: int) -> None:
    """Shares of jobs by GPUs, of 82,247."""
    trace, _ = made("philly-like")
    share = float((trace.total_gpus() == gpus).mean())
    assert share == pytest.approx(jobs / 82_247, abs=0.002)


def test_philly_durations() -> None:
    """P25, P50, P75, P90 and P95 of run times, as measured on the public trace."""
    trace, _ = made("philly-like")
    found = np.percentile(trace.duration_s, [25, 50, 75, 90, 95, 99])
    np.testing.assert_allclose(found, [115, 1144, 2932, 11_265, 43_646, 254_758], rtol=0.08)


def test_philly_large_jobs_run_longer() -> None:
    """The median job of eight GPUs runs 23,683 s, that of one 1,117 s."""
    trace, _ = made("philly-like")
    for gpus, median_s in ((1, 1117), (8, 23_683)):
        rows = trace.total_gpus() == gpus
        assert np.median(trace.duration_s[rows]) == pytest.approx(median_s, rel=0.1)


def test_philly_tenants_and_fleet() -> None:
    """The largest of 15 virtual clusters has half of the jobs; 552 machines have 2,490 GPUs."""
    trace, plan = made("philly-like")
    assert max(trace.tenant.counts().values()) / JOBS == pytest.approx(41_226 / 82_247, abs=0.002)
    fleet = parse_fleet(plan)
    assert len(fleet.tenants) == 15
    assert sum(fleet.gpus().values()) == 2490
    assert len(fleet.regions[0].clusters[0].hosts) == 552


def test_philly_arrivals() -> None:
    """82,247 jobs in 109 days, most of them in the busiest hours of the day."""
    trace, _ = made("philly-like")
    assert trace.submit_s[-1] / JOBS == pytest.approx(9_408_690 / 82_247, rel=0.02)
    hours = np.bincount((trace.submit_s // 3600 % 24).astype(np.int64), minlength=24) / JOBS
    assert hours[7] == pytest.approx(0.087, abs=0.01)
    assert hours[15] == pytest.approx(0.027, abs=0.01)


# --------------------------------------------------------------------------------------- mast-like


def test_mast_popularity() -> None:
    """Partitions are read by 3, 17 and 45 workloads at P50, P90 and P99."""
    trace, plan = made("mast-like")
    readers = dict.fromkeys(plan["datasets"], 0)
    for datasets, jobs in trace.datasets.counts().items():
        for name in datasets.split("|"):
            readers[name] += jobs
    found = np.percentile(list(readers.values()), [50, 90, 99])
    assert found == pytest.approx([3, 17, 45], abs=2)


def test_mast_first_time_workloads() -> None:
    """70% of workloads are the first of their kind; the others run again on the same data."""
    trace, _ = made("mast-like")
    assert len(np.unique(trace.group.codes)) / JOBS == pytest.approx(0.7, abs=0.001)
    data: dict[str, set[str]] = {}
    for group, datasets in zip(trace.group.values(), trace.datasets.values(), strict=True):
        data.setdefault(group, set()).add(datasets.split("|")[0])
    assert {len(first) for first in data.values()} == {1}


def test_mast_data_lies_in_one_region_and_jobs_live_there() -> None:
    """At the start a dataset has one replica; the home of a job holds all that it reads."""
    trace, plan = made("mast-like")
    where = {name: spec["replicas"] for name, spec in plan["datasets"].items()}
    for home, datasets in zip(trace.home_region.values(), trace.datasets.values(), strict=True):
        assert all(where[name] == [home] for name in datasets.split("|"))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_mast_skew(seed: int) -> None:
    """Run by hand, high-priority work asks 2.63 times what the worst region has.

    Recounted here: in every region and on every model first come, first served; what is held and waited
    for, on average over time, by the GPUs there. The other regions could take it all.
    """
    trace, plan = made("mast-like", seed=seed)
    ratios = {}
    for name, region in plan["regions"].items():
        supply = {h["gpu"]: h["count"] * h["gpus"] for c in region["clusters"].values() for h in c["hosts"]}  # fmt: skip
        asked = sum(_demand(trace, name, model, gpus) for model, gpus in supply.items())
        ratios[name] = asked / sum(supply.values())
    assert max(ratios, key=lambda name: ratios[name]) == "alpha"
    assert ratios["alpha"] == pytest.approx(2.63, rel=0.02)
    fleet_gpus = sum(parse_fleet(plan).gpus().values())
    high = trace.band >= Band.HIGH
    work = (trace.total_gpus() * trace.duration_s)[high].sum() / trace.submit_s[-1]
    assert work / fleet_gpus < 0.98


def _demand(trace: Trace, home: str, model: str, gpus: int) -> float:
    """GPUs held and waited for in one pool, on average from the first submission to the last."""
    homes, models = np.array(trace.home_region.names), np.array(trace.gpu_models.names)
    rows = np.flatnonzero(
        (homes[trace.home_region.codes] == home)
        & (models[trace.gpu_models.codes] == model)
        & (trace.band >= Band.HIGH)
    )
    end_s = float(trace.submit_s[-1])
    ends: list[tuple[float, float]] = []
    free, now_s, held = float(gpus), 0.0, 0.0
    for row in rows.tolist():
        wants, submit_s = float(trace.total_gpus()[row]), float(trace.submit_s[row])
        now_s = max(now_s, submit_s)
        while ends and (ends[0][0] <= now_s or free < wants):
            end, back = heapq.heappop(ends)
            now_s, free = max(now_s, end), free + back
        free -= wants
        finish_s = now_s + float(trace.duration_s[row])
        heapq.heappush(ends, (finish_s, wants))
        held += wants * (min(finish_s, end_s) - submit_s)
    return held / end_s


def test_mast_storage_leaves_room_for_replicas() -> None:
    """Regions hold what they have, and the fleet more than two copies of everything."""
    fleet = parse_fleet(made("mast-like")[1])
    there = dict.fromkeys([region.name for region in fleet.regions], 0)
    for dataset in fleet.datasets:
        there[dataset.replicas[0]] += dataset.size_bytes
    for region in fleet.regions:
        assert region.storage_bytes is not None
        assert there[region.name] < region.storage_bytes
    total = sum(region.storage_bytes or 0 for region in fleet.regions)
    assert 2 < total / sum(there.values()) < 3


# ----------------------------------------------------------------------------------------- misuse

MISUSE = [
    (
        "slurm-like",
        10,
        0,
        "kind: no kind 'slurm-like' is known (pai-like, philly-like, mast-like, gavel-like, gandiva-like, gandiva-elastic-like)",
    ),
    ("pai-like", 0, 0, "jobs: is out of range"),
    ("pai-like", 10**9, 0, "jobs: is out of range"),
    ("pai-like", 10, -1, "seed: is negative"),
    ("mast-like", 10, 0, "jobs: mast-like needs from 2000 to 500,000 jobs"),
]


@pytest.mark.parametrize(("kind", "jobs", "seed", "want"), MISUSE)
def test_misuse(kind: str, jobs: int, seed: int, want: str) -> None:
    """What cannot be made says what can."""
    with pytest.raises(InvalidInput) as caught:
        generate(kind, jobs, seed)
    assert str(caught.value).startswith(want)


@pytest.mark.parametrize("jobs", [1, 2, 7, 30])
@pytest.mark.parametrize(
    "kind", ["pai-like", "philly-like", "gavel-like", "gandiva-like", "gandiva-elastic-like"]
)
def test_small_traces(kind: str, jobs: int) -> None:
    """A few jobs are no trouble."""
    trace, _ = generate(kind, jobs, 0)
    assert len(trace) == jobs


# ------------------------------------------------------------------------------------ gandiva-like


def test_gandiva_sizes_durations_bursts_and_fleet() -> None:
    """70% of one GPU, 70% that end within the hour, bursts of six in the mean, on 180 GPUs in hosts of four."""
    trace, plan = made("gandiva-like")
    assert float((trace.total_gpus() == 1).mean()) == pytest.approx(0.7, abs=0.002)
    assert float((trace.total_gpus() == 8).mean()) == pytest.approx(0.04, abs=0.002)
    assert float((trace.duration_s <= 3_600).mean()) == pytest.approx(0.7, abs=0.002)
    assert trace.duration_s.min() * 1.001 >= 600
    assert trace.duration_s.max() <= 36_000 * 1.001
    gaps_s = np.diff(trace.submit_s)
    assert float((gaps_s == 1.0).mean()) == pytest.approx(5 / 6, abs=0.01)
    assert parse_fleet(plan).gpus() == {"V100": 92, "P100": 88}


def test_elastic_jobs_of_gandiva_are_the_same_jobs() -> None:
    """The same GPUs at the same times; those of several are tasks of one, from half to twice as many."""
    rigid, _ = generate("gandiva-like", 500, 3)
    trace, plan = generate("gandiva-elastic-like", 500, 3)
    for one, other in (
        (rigid.submit_s, trace.submit_s),
        (rigid.duration_s, trace.duration_s),
        (rigid.total_gpus(), trace.total_gpus()),
    ):
        assert one.tolist() == other.tolist()
    assert set(trace.gpus.tolist()) == {1.0}
    sizes = set(zip(trace.min_tasks.tolist(), trace.tasks.tolist(), trace.max_tasks.tolist(), strict=True))  # fmt: skip
    assert sizes == {(1, 1, 1), (1, 2, 4), (2, 4, 8), (4, 8, 16)}
    assert parse_fleet(plan).gpus() == {"V100": 92, "P100": 88}
