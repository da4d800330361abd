"""Capacity planned on a cadence under the virtual clock: demand that goes from one cluster to the other."""

from __future__ import annotations

import pytest

from tests.support.build import cluster, fleet
from tests.support.simulated import FREE, Run, run
from topmast.model.errors import InvalidInput, TopmastError
from topmast.policies.registry import load_profile
from topmast.slow.capacity import planner
from topmast.traces.trace import Trace, trace_of

HOUR_S = 3_600.0
HALF_S = 24 * HOUR_S
CLUSTERS = ("east-1", "east-2")


def _shifting(jobs: int = 325) -> Trace:
    """Two days at 85% of all GPUs. Four of five jobs are sent to one cluster, from noon on to the other."""
    submit_s = [i * 2 * HALF_S / jobs for i in range(jobs)]
    day = [int(at_s // HALF_S) for at_s in submit_s]
    return trace_of(
        "shifting",
        submit_s=submit_s,
        duration_s=[2 * HOUR_S * (0.6 + 0.4 * (i % 3)) for i in range(jobs)],
        gpus=[4] * jobs,
        home_region=[CLUSTERS[(i % 5 == 0) ^ day[i]] for i in range(jobs)],
        preemptible=[0] * jobs,
    )


def _run(every_s: float | None, gain: float = 0.5, **more: str) -> Run:
    """Hydra's binding to home clusters, for good: who owns a host decides who can use it."""
    options = {"bind.patience_s": "null", "slow.capacity_gain": str(gain), **more}
    if every_s is not None:
        options["slow.plan_capacity_every_s"] = str(every_s)
    world = fleet(cluster("east-1", hosts=4, gpus=8), cluster("east-2", hosts=4, gpus=8))
    return run(_shifting(), world, load_profile("hydra", options), FREE)


def _wait_s(found: Run) -> float:
    assert found.result.summary["finished"] == len(found.jobs)
    return float(sum(row["wait_s"] for row in found.jobs)) / len(found.jobs)


def test_feedback_follows_demand_that_shifts_between_clusters() -> None:
    """Open loop, every cluster keeps what the fleet file gave it; closed loop, hosts go where jobs wait."""
    never, opened, closed = _run(None), _run(1_800.0, gain=0.0), _run(1_800.0)
    assert opened.result.summary["capacity_plans"]["hosts_moved"] == 0
    assert _wait_s(opened) == pytest.approx(_wait_s(never))
    assert _wait_s(closed) < _wait_s(opened) / 3
    assert closed.result.summary["capacity_plans"]["hosts_moved"] >= 4


def test_a_host_works_for_one_cluster_at_a_time() -> None:
    """Attempts on one host in two clusters never overlap: it is empty when it goes over."""
    found = _run(1_800.0)
    by_host: dict[str, list[tuple[float, float, str]]] = {}
    for row in found.allocations:
        by_host.setdefault(row["host"], []).append((row["start_s"], row["end_s"], row["cluster"]))
    both = [rows for rows in by_host.values() if len({cluster for _, _, cluster in rows}) == 2]
    assert both
    for rows in both:
        for start_s, _, owner in rows:
            others = [r for r in rows if r[2] != owner]
            assert not any(s < start_s < e for s, e, _ in others)


def test_the_same_run_twice_is_the_same() -> None:
    """Plans are limited by work, not by a clock."""
    one, other = _run(1_800.0), _run(1_800.0)
    assert one.allocations == other.allocations
    assert one.result.summary == other.result.summary


def _gangs(gpus: int, profile: str, **options: str) -> Run:
    """A gang comes to two clusters of two hosts, and small jobs for a day; plans every half hour."""
    small = 24
    trace = trace_of(
        "gang",
        submit_s=[60.0, *(HOUR_S * (i + 1) for i in range(small))],
        duration_s=[HOUR_S, *([60.0] * small)],
        gpus=[8, *([1] * small)],
        tasks=[gpus // 8, *([1] * small)],
        preemptible=[0] * (small + 1),
    )
    world = fleet(cluster("east-1", hosts=2, gpus=8), cluster("east-2", hosts=2, gpus=8))
    every = {"slow.plan_capacity_every_s": "1800"}
    return run(trace, world, load_profile(profile, every | options), FREE)


@pytest.mark.parametrize("profile", ["mast", "hydra", "federated"])
def test_a_gang_larger_than_every_cluster_makes_one_grow(profile: str) -> None:
    """Three hosts for a gang of 24 GPUs, where each cluster has two: without plans it waits for ever."""
    never = _gangs(24, profile, **{"slow.plan_capacity_every_s": "null"})
    assert never.result.summary["finished"] == 24
    grown = _gangs(24, profile)
    assert grown.result.summary["finished"] == 25
    assert grown.result.summary["capacity_plans"]["hosts_moved"] >= 1


def test_a_gang_makes_no_cluster_grow_beyond_the_limits() -> None:
    """All four hosts would leave the other cluster with nothing: none is moved, and the gang waits."""
    found = _gangs(32, "mast")
    assert found.result.summary["finished"] == 24
    assert found.result.summary["capacity_plans"]["hosts_moved"] == 0
    tight = _gangs(24, "mast", **{"slow.capacity_most": "1.25"})
    assert tight.result.summary["capacity_plans"]["hosts_moved"] == 0


def test_a_planner_that_fails_leaves_hosts_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every plan comes to nothing: the run is that without plans."""

    def fails(*args: object) -> object:
        raise TopmastError("out of memory")

    monkeypatch.setattr(planner, "plan", fails)
    found, never = _run(1_800.0), _run(None)
    assert found.result.summary["capacity_plans"]["applied"] == 0
    assert found.result.summary["capacity_plans"]["discarded"] > 10
    assert found.allocations == never.allocations


def test_limits_have_to_leave_room() -> None:
    """The error names the option."""
    with pytest.raises(InvalidInput, match=r"slow.capacity_least: 5 is more than"):
        load_profile("mast", {"slow.capacity_least": "5"})
