"""Choosing victims as a set: the cheapest found that makes room for the whole gang in one domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topmast.fast.placement.allocation import Allocation, Hold
from topmast.fast.placement.columns import Columns, Ints
from topmast.fast.placement.holdings import weight_of
from topmast.fast.placement.packing import seat_gang
from topmast.model.job import MILLI, Band
from topmast.model.plan import GroupAsk, Seat, Victim
from topmast.policies.base import Profile


def eligible_victims(
    allocations: Mapping[str, Allocation], band: Band, profile: Profile, now: float
) -> list[Allocation]:
    """Running attempts of a lower effective band, preemptible and old enough. O(attempts)."""
    return [
        a
        for a in allocations.values()
        if a.band < band
        and a.spec.preemptible
        and a.hold in (Hold.STARTING, Hold.RUNNING)
        and a.start_s + profile.min_runtime_s <= now
    ]


def cost_gpu_s(
    allocation: Allocation, profile: Profile, now: float, whatever_band: bool = False
) -> float:
    """What stopping an attempt costs: its lost work and its restart, more in higher bands.

    ``whatever_band``: as if it were of the lowest.
    """
    restart_gpu_s = profile.restart_cost_s * allocation.plan.gpus_milli / MILLI
    weight = weight_of(0 if whatever_band else int(allocation.band))
    return weight * (allocation.lost_gpu_s(now) + restart_gpu_s)


def cheapest_victims(
    columns: Columns,
    rows: Ints,
    groups: tuple[GroupAsk, ...],
    choice: int,
    victims: Sequence[Allocation],
    profile: Profile,
    now: float,
) -> tuple[tuple[Seat, ...], tuple[Victim, ...]] | None:
    """Seats on ``rows`` and the victims that free them, or None.

    Greedy by cost per GPU freed on these hosts until the gang fits, then whoever is not needed
    is spared, dearest first: the set is minimal (no victim can be left out), not always of least
    cost. O(victims x slots).
    """
    names = {columns.hosts[row].name for row in rows.tolist()}
    here = [(a, _freed_milli(a, names)) for a in victims if _on(a, names)]
    here.sort(key=lambda pair: _dearness(pair[0], pair[1], profile, now))
    trial = columns.trial()
    chosen: list[Allocation] = []
    seats = seat_gang(trial, rows, groups, choice)
    for allocation, _ in here:
        if seats is not None:
            break
        trial.give_back(allocation.plan.seats, allocation.needs())
        chosen.append(allocation)
        seats = seat_gang(trial, rows, groups, choice)
    if seats is None or not chosen:
        return None
    for allocation in sorted(chosen, key=lambda a: (-cost_gpu_s(a, profile, now), a.job)):
        trial.take(allocation.plan.seats, allocation.needs())
        without = seat_gang(trial, rows, groups, choice)
        if without is None:
            trial.give_back(allocation.plan.seats, allocation.needs())
        else:
            seats = without
            chosen.remove(allocation)
    if not chosen:
        return None
    stopped = tuple(
        Victim(a.job, a.epoch, cost_gpu_s(a, profile, now))
        for a in sorted(chosen, key=lambda a: a.job)
    )
    return seats, stopped


def _on(allocation: Allocation, names: set[str]) -> bool:
    return any(seat.host in names for seat in allocation.plan.seats)


def _freed_milli(allocation: Allocation, names: set[str]) -> int:
    return sum(len(s.slots) * s.slot_milli for s in allocation.plan.seats if s.host in names)


def _dearness(
    allocation: Allocation, freed_milli: int, profile: Profile, now: float
) -> tuple[int, float, str]:
    per_gpu = cost_gpu_s(allocation, profile, now) / max(freed_milli, 1)
    return (int(allocation.band), per_gpu, allocation.job)
