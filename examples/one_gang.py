"""Follows one gang through the search, step by step, with the numbers that the real code computes.

    python examples/one_gang.py

Its output is in docs/internals/one-gang.md, word for word; a test compares the two.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numba import njit
from numpy.typing import NDArray

from topmast.fast.region.inventory.allocation import Allocation, AllocationPhase
from topmast.fast.region.inventory.allocation_table import NONE
from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.inventory.index import index_of
from topmast.fast.region.preemption.plain import PlainPreemption
from topmast.fast.region.preemption.price import STOP, cost_gpu_s
from topmast.fast.region.preemption.search import PreemptiveSearch
from topmast.fast.region.preemption.sections import section_offer
from topmast.fast.region.search.compiled import costs_of
from topmast.model.fleet import ClusterSpec, HostSpec, RegionSpec
from topmast.model.job import (
    MILLI,
    Accelerator,
    Band,
    JobSpec,
    Level,
    Resources,
    TaskGroup,
    Topology,
)
from topmast.model.plan import GroupRequest, PlacementRequest, Plan, Preempt, Seat
from topmast.policies.registry import load_profile

NOW = 3_600.0
HOSTS = {"r1": 3, "r2": 3}
RUNNING = (
    # job, GPUs on each of its hosts, band, started, last checkpoint
    ("j1", {"r1-0": 8}, Band.LOW, 0.0, 3_000.0),
    ("j2", {"r1-1": 4}, Band.LOW, 600.0, 3_540.0),
    ("j3", {"r1-1": 4, "r1-2": 4}, Band.NORMAL, 600.0, 3_480.0),
    ("j4", {"r2-0": 8}, Band.HIGH, 0.0, 3_500.0),
    ("j5", {"r2-1": 2}, Band.OPPORTUNISTIC, 1_200.0, 3_590.0),
    ("j6", {"r2-1": 6, "r2-2": 8}, Band.LOW, 1_200.0, 3_560.0),
)


def region() -> RegionSpec:
    """One cluster: two racks of three hosts with eight GPUs each."""
    hosts = tuple(
        HostSpec(f"{rack}-{i}", "H100", 8, rack=rack)
        for rack, count in HOSTS.items()
        for i in range(count)
    )
    return RegionSpec("east", (ClusterSpec("east-1", hosts),))


def fill(columns: Columns) -> dict[str, Allocation]:
    """The attempts that run there, by job."""
    held: dict[str, Allocation] = {}
    columns.allocations = held
    for job, hosts, band, start_s, kept_s in RUNNING:
        seats = []
        for name, gpus in hosts.items():
            free = [
                s for s, milli in enumerate(columns.slots(columns.index[name])) if milli == MILLI
            ]
            seats.append(Seat("main", len(seats), name, tuple(free[:gpus])))
        total = sum(hosts.values())
        needs = Resources((Accelerator("H100", total * MILLI // len(hosts)),))
        spec = JobSpec(job, (TaskGroup("main", len(hosts), needs, "train"),), band=band)
        plan = Plan(job, "east", "east-1", "H100", total * MILLI, tuple(seats), Level.RACK, 0.0, {})
        held[job] = Allocation(
            plan,
            1,
            spec,
            band,
            start_s,
            None,
            AllocationPhase.RUNNING,
            [],
            running_s=start_s,
            kept_until_s=kept_s,
        )
        columns.hold(held[job])
    return held


def main() -> None:
    """Print each step."""
    columns = Columns(region())
    held = fill(columns)
    profile = load_profile("mast")
    task = Resources((Accelerator("H100", 8 * MILLI),))
    ask = PlacementRequest(
        "j7",
        (GroupRequest("main", 2, task),),
        Topology(Level.POD, Level.RACK),
        Band.HIGH,
    )
    print("the gang: 2 tasks of 8 GPUs, band high, at most a pod, preferably a rack")
    show_hosts(columns)
    show_free(columns)
    search = PreemptiveSearch("east", columns, held, profile, 0, NOW)
    print("\non free GPUs alone:", search.best(ask))
    show_victims(search, ask)


def show_hosts(columns: Columns) -> None:
    """What the index knows of every host."""
    index = index_of(columns)
    arrays, cleared = index.arrays, index.holders.held.cleared
    print("\nhost   free   free without those below low / normal / high")
    for row, host in enumerate(columns.hosts):
        without = " / ".join(str(n) for n in cleared[:3, row])
        print(f"{host.name:5}  {arrays.whole[row]:4}   {without}")


def show_free(columns: Columns) -> None:
    """The sections at each level, and whether their free GPUs hold the gang."""
    arrays = index_of(columns).arrays
    print("\nsection              hosts with 0..8 free GPUs      tasks that fit")
    for level, name in enumerate(("rack", "pod", "datacenter", "cluster")):
        low, high = arrays.by_cluster[0, 0, level].tolist()
        for section in range(low, high):
            hist = arrays.hist[arrays.hist_start[section] : arrays.hist_start[section + 1]]
            fits = sum(int(n) * (free // 8) for free, n in enumerate(hist))
            print(f"{name:10} {section - low}         {' '.join(f'{n:2}' for n in hist)}    {fits}")


@njit
def offer_of(
    a: Any, h: Any, q: Any, p: Any, s: Any, place: NDArray[np.int64]
) -> tuple[float, float, int]:
    """`section_offer`, which only compiled code may call."""
    return section_offer(a, h, q, p, s, place)


def show_victims(search: PreemptiveSearch, ask: PlacementRequest) -> None:
    """What stopping each attempt costs, what each rack offers, and the plan that wins."""
    columns, profile = search.columns, search.profile
    print("\nattempt  band           GPUs   lost since its checkpoint   cost, GPU-s   as a score")
    for attempt in search.allocations.values():
        cost = cost_gpu_s(attempt, profile, NOW)
        gpus = attempt.plan.gpus_milli // MILLI
        lost = attempt.lost_s(NOW) * gpus
        may = (
            f"{profile.score.preemption * cost / 3600:.3f}" if attempt.band < ask.band else "stays"
        )
        print(
            f"{attempt.job:8} {attempt.band.name.lower():13} {gpus:5}   {lost:25.0f}   {cost:11.0f}   {may:>10}"
        )
    index = index_of(columns)
    weights = profile.score
    costs = costs_of(index, {columns.region: ask.terms}, weights, profile.slices.price)
    hunt = PlainPreemption(index, ask, profile, weights, costs, NOW, STOP)
    print("\nsection      bound   truth   branch on attempt")
    for level, name in ((1, "rack"), (2, "pod")):
        low, high = index.arrays.by_cluster[0, 0, level - 1].tolist()
        for section in range(low, high):
            place = np.array([0, 0, 0, section])
            bound, truth, branch = offer_of(
                hunt.arrays, hunt.held, hunt.question, hunt.terms, hunt.scratch, place
            )
            job = "" if branch == NONE else index.holders.jobs[branch][1]
            print(f"{name:6} {section - low}   {bound:7.3f} {truth:7.3f}   {job}")
    plan = search.best(msgspec.structs.replace(ask, mode=Preempt()))
    assert plan is not None
    print(
        "\nthe plan:", ", ".join(plan.hosts), "instead of", ", ".join(v.job for v in plan.victims)
    )
    for term, value in plan.terms.items():
        print(f"  {term:13} {value:7.3f}")
    print(f"  {'score':13} {plan.score:7.3f}")


if __name__ == "__main__":
    main()
