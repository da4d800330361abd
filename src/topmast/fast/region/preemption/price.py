"""Which attempts may be stopped for a gang, and at what price: in Python, and compiled beside it.

The cost itself is `fast.preemption_cost.stop_cost_gpu_s`, which both call. A *floor* is a price
that freeing some GPUs of a host cannot be below; it is worked out from the least weight, loss and
product of weight and GPUs of the attempts there, for a cost does not fall when one of these grows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topmast.fast.preemption_cost import stop_cost_gpu_s, weight_of
from topmast.fast.region.inventory.allocation import Allocation
from topmast.fast.region.inventory.allocation_table import THRESHOLDS, AllocationTable
from topmast.fast.region.inventory.arrays import MILLI
from topmast.fast.region.search.kernels import INFINITE
from topmast.jit import inner
from topmast.model.job import Band
from topmast.model.plan import PlacementRequest
from topmast.policies.options import Profile

STOP, STOP_OUTRANKED, MOVE = range(3)
"""What may happen to attempts for a gang. Those of lower bands are stopped, at prices that rise
with the band; or those named are stopped, at one price for all bands; or those named are moved, at
prices that rise with the band."""

# --- in Python ------------------------------------------------------------------------------------


def eligible_victims(
    allocations: Mapping[str, Allocation], ask: PlacementRequest, profile: Profile, now: float
) -> list[Allocation]:
    """Running attempts that may be stopped for a gang and are old enough. O(A).

    Those of a lower effective band; or, if the request names jobs, these, whatever their bands.
    """
    named = None if ask.outranked is None else frozenset(ask.outranked)
    return [
        a
        for a in allocations.values()
        if (a.band < ask.band if named is None else a.job in named)
        and a.may_stop
        and old_enough_s(a, profile) <= now
    ]


def old_enough_s(allocation: Allocation, profile: Profile) -> float:
    """When an attempt has run long enough to be stopped."""
    return allocation.start_s + profile.min_runtime_s


def too_young_until_s(
    allocations: Mapping[str, Allocation], ask: PlacementRequest, profile: Profile, now: float
) -> float | None:
    """When the next of the attempts that may be stopped for a gang becomes old enough."""
    able = eligible_victims(allocations, ask, profile, float("inf"))
    times_s = (old_enough_s(attempt, profile) for attempt in able)
    return min((at_s for at_s in times_s if at_s > now), default=None)


def may_of(ask: PlacementRequest) -> int:
    """What a request that may stop jobs allows."""
    return STOP if ask.outranked is None else STOP_OUTRANKED


def cost_gpu_s(allocation: Allocation, profile: Profile, now: float, may: int = STOP) -> float:
    """What it costs that an attempt stops, for good or to move."""
    weight = weight_of(0 if may == STOP_OUTRANKED else int(allocation.band))
    gpus = allocation.plan.gpus_milli / MILLI
    return stop_cost_gpu_s(weight, allocation.lost_s(now), profile.restart_cost_s, gpus)


# --- compiled -------------------------------------------------------------------------------------

HEAVIEST = weight_of(Band.CRITICAL)

_stop_cost_gpu_s = inner(stop_cost_gpu_s)


class Terms(NamedTuple):
    """On which terms attempts may be stopped."""

    threshold: int
    """Index into THRESHOLDS."""
    now: float
    min_runtime_s: float
    restart_s: float
    per_gpu_s: float
    """Points of a GPU-second lost."""
    may: int
    """STOP, STOP_OUTRANKED or MOVE."""
    named: NDArray[np.bool_]
    """(A) unless `STOP`: the only ones."""
    usable: NDArray[np.bool_]
    """(H) hosts that may be used."""
    cpus: float
    """Of a task; 0 where they do not limit."""
    memory: float


@inner
def price_of(h: AllocationTable, p: Terms, v: int) -> float:
    """The points that stopping an attempt costs; infinite if it may not be stopped."""
    if not h.attempts[v].evictable or h.attempts[v].start_s + p.min_runtime_s > p.now:
        return INFINITE
    if p.may != STOP:
        if not p.named[v]:
            return INFINITE
    elif h.attempts[v].band >= THRESHOLDS[p.threshold]:
        return INFINITE
    weight = 1.0 if p.may == STOP_OUTRANKED else h.attempts[v].weight
    lost_s = max(0.0, p.now - h.attempts[v].kept_s)
    gpus = h.attempts[v].gpus
    price: float = p.per_gpu_s * _stop_cost_gpu_s(weight, lost_s, p.restart_s, gpus)
    return price


@inner
def floor_of(h: AllocationTable, p: Terms, host: int, gpus: int) -> float:
    """A price that freeing so many more GPUs on the host cannot be below. O(1)."""
    lightest = h.hosts[host].lightest
    if p.may == STOP_OUTRANKED:
        lightest /= HEAVIEST  # an attempt may weigh so much less than it would by its band
    if lightest == np.inf:
        return INFINITE
    floor: float = max(gpus * rate_of(h, p, host), _least_price(h, p, host, 1.0, lightest))
    return floor


@inner
def rate_of(h: AllocationTable, p: Terms, host: int) -> float:
    """A price per GPU that no victim on the host can be below."""
    weight = h.hosts[host].weight
    if weight == np.inf:
        return INFINITE
    if p.may == STOP_OUTRANKED:
        weight = min(1.0, weight)
    return _least_price(h, p, host, weight, 1.0)


@inner
def _least_price(h: AllocationTable, p: Terms, host: int, weight: float, gpus: float) -> float:
    """The price of so many GPUs on the host, at the latest checkpoint there."""
    lost_s = max(0.0, p.now - h.hosts[host].latest_s)
    price: float = p.per_gpu_s * _stop_cost_gpu_s(weight, lost_s, p.restart_s, gpus)
    return price
