"""Small regions that are crowded at random, and every way to seat a gang there."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.support.build import job
from topmast.fast.region.inventory.allocation import Allocation, AllocationPhase
from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.inventory.index import index_of
from topmast.fast.region.inventory.overlay import Overlay
from topmast.model.fleet import ClusterSpec, HostSpec, RegionSpec
from topmast.model.job import MILLI, Accelerator, Band, Level, Resources
from topmast.model.plan import GroupRequest, Plan, Seat
from topmast.model.states import HostState

BANDS = (Band.OPPORTUNISTIC, Band.LOW, Band.NORMAL, Band.HIGH)


def crowded_columns(rng: random.Random) -> Columns:
    """One or two clusters with a few hosts in racks, some out of service, some short of CPUs."""
    clusters = []
    for c in range(rng.randint(1, 2)):
        hosts = tuple(
            HostSpec(
                f"c{c}-{i}", "H100", rng.choice((2, 4, 4, 8)), cpus=rng.choice((0.0, 0.0, 6.0)),
                rack=f"r{rng.randint(0, 1)}",
            )
            for i in range(rng.randint(1, 3))
        )  # fmt: skip
        clusters.append(ClusterSpec(f"c{c}", hosts))
    columns = Columns(RegionSpec("east", tuple(clusters)))
    if rng.random() < 0.5:
        index_of(columns)
    return columns


def run_jobs(rng: random.Random, columns: Columns) -> dict[str, Allocation]:
    """Up to seven attempts that hold GPUs, shares of them, or CPUs alone, on one host or several."""
    held: dict[str, Allocation] = {}
    columns.allocations = held
    for number in range(rng.randint(2, 7)):
        cluster = rng.choice(sorted(columns.clusters))
        rows = columns.clusters[cluster].tolist()
        size = rng.choice((0, 300, 500, 1000, 1000, 2000, 2000, 4000))
        resources = Resources(
            (Accelerator("H100", size),) if size else (), cpus=rng.choice((0.0, 0.0, 2.0))
        )
        seats: list[Seat] = []
        overlay = Overlay(columns)
        for row in rng.sample(rows, rng.randint(1, min(2, len(rows)))):
            seat = _seat(overlay, columns, row, resources, len(seats))
            if seat is not None:
                overlay.take([seat], {"main": resources})
                if overlay.overdrawn(seat, resources):
                    break
                seats.append(seat)
        if seats:
            attempt = attempt_of(rng, f"j{number + 10}", cluster, resources, tuple(seats))
            held[attempt.job] = attempt
            columns.hold(attempt)
            if rng.random() < 0.2:
                attempt.hold = rng.choice((AllocationPhase.STOPPING, AllocationPhase.RUNNING))
                columns.note(attempt)
    for host in columns.hosts:
        if rng.random() < 0.1:
            columns.set_state(host.name, HostState.CORDONED)
    return held


def _seat(
    overlay: Overlay, columns: Columns, row: int, resources: Resources, rank: int
) -> Seat | None:
    milli = resources.accelerators[0].gpus_milli if resources.accelerators else 0
    free = overlay.slots(row)
    if milli >= MILLI:
        slots = [s for s, left in enumerate(free) if left == MILLI][: milli // MILLI]
        if len(slots) * MILLI < milli:
            return None
    else:
        slots = [s for s, left in enumerate(free) if milli and left >= milli][:1]
        if milli and not slots:
            return None
    return Seat("main", rank, columns.hosts[row].name, tuple(slots), min(milli, MILLI) or MILLI)


def attempt_of(
    rng: random.Random, name: str, cluster: str, resources: Resources, seats: tuple[Seat, ...]
) -> Allocation:
    """An attempt of some band and age that holds these seats."""
    band = rng.choice(BANDS)
    spec = job(
        name, count=len(seats), resources=resources, band=band, preemptible=rng.random() < 0.9
    )
    milli = sum(len(s.slots) * s.slot_milli for s in seats)
    plan = Plan(name, "east", cluster, "H100", milli, seats, Level.CLUSTER, 0.0, {})
    started = rng.random() < 0.9
    return Allocation(
        plan, 1, spec, band, rng.choice((0.0, 500.0, 950.0)), None,
        AllocationPhase.RUNNING if started else AllocationPhase.STARTING, [],
        running_s=rng.choice((0.0, 500.0)) if started else None,
        kept_until_s=rng.choice((None, 700.0, 990.0)),
    )  # fmt: skip


def all_seated(
    columns: Columns, overlay: Overlay, spread: Sequence[int], group: GroupRequest
) -> tuple[Seat, ...] | None:
    """Seats on these hosts, if there is room; the overlay is left as it was."""
    seats: list[Seat] = []
    fits = True
    for row in spread:
        seat = _seat(overlay, columns, row, group.resources, len(seats))
        if seat is None:
            fits = False
            break
        overlay.take([seat], {"main": group.resources})
        seats.append(seat)
        if overlay.overdrawn(seat, group.resources):
            fits = False
            break
    overlay.give_back(seats, {"main": group.resources})
    return tuple(seats) if fits else None
