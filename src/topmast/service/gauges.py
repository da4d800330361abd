"""What a server has and owes at one moment, as figures for `metrics`: read between two commits.

No figure walks the jobs: those that wait are counted by class, those that run as they come and go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from topmast.fast.queue import GlobalQueue
from topmast.fast.region import RegionalPlacer
from topmast.model.job import MILLI, JobSpec
from topmast.model.reason import PendingReason
from topmast.model.states import HostState
from topmast.service import fleet

Waits = tuple[JobSpec, PendingReason, int]
"""One of some jobs that wait for one reason, and how many they are."""
Rows = Mapping[tuple[str, ...], float]


class Gauges(Struct, frozen=True):
    """One moment of a server."""

    pending_jobs: Rows
    """By tenant, band and reason."""
    pending_gpus: Rows
    """By tenant and model."""
    gpus: Rows
    """By region, cluster, model and state: free, held, unavailable."""
    hosts: Rows
    """By region, cluster and state."""
    tenant_gpus: Mapping[str, Rows]
    """By what: quota, used, borrowed, lent; each by tenant and model."""
    fair_share: Rows
    """By tenant: the part of the fleet that is fair, and the part that is used."""
    demand_supply: Rows
    """By region: GPUs held or promised over the GPUs present."""
    copies: Rows
    """Copies of datasets under way, by source and target."""


def gauges(queue: GlobalQueue, placers: Mapping[str, RegionalPlacer]) -> Gauges:
    """Read them. O(job classes + jobs in back-off + hosts + tenants x models)."""
    waiting = tuple(queue.waiting())
    jobs, gpus = _pending(waiting)
    quota, shares = _tenants(queue, waiting)
    loads = queue.tenancy.loads(queue.regions)
    return Gauges(
        jobs, gpus, _gpus(placers), _hosts(placers), quota, shares,
        {(region,): load for region, load in loads.items()}, _copies(queue),
    )  # fmt: skip


def _copies(queue: GlobalQueue) -> Rows:
    rows: dict[tuple[str, ...], float] = {}
    for copy in queue.data.catalogue.copies.values():
        rows[copy.source, copy.target] = rows.get((copy.source, copy.target), 0) + 1
    return rows


def _pending(waiting: Sequence[Waits]) -> tuple[Rows, Rows]:
    jobs: dict[tuple[str, ...], float] = {}
    gpus: dict[tuple[str, ...], float] = {}
    for spec, reason, count in waiting:
        key = (spec.tenant, spec.band.name.lower(), reason.value)
        jobs[key] = jobs.get(key, 0) + count
        for model, milli in spec.gpus_by_model().items():
            wanted = (spec.tenant, model or "any")
            gpus[wanted] = gpus.get(wanted, 0) + count * milli / MILLI
    return jobs, gpus


def _gpus(placers: Mapping[str, RegionalPlacer]) -> Rows:
    rows: dict[tuple[str, ...], float] = {}
    for one in fleet.gpus(placers):
        where = (one.region, one.cluster, one.gpu_model)
        rows[*where, "free"] = one.free
        rows[*where, "held"] = one.held
        rows[*where, "unavailable"] = one.unavailable
    return rows


def _hosts(placers: Mapping[str, RegionalPlacer]) -> Rows:
    rows: dict[tuple[str, ...], float] = {}
    for region in sorted(placers):
        columns = placers[region].columns
        for cluster in columns.clusters:
            # Also states that no host has: else an alert could not tell none from unknown.
            rows |= {(region, cluster, state.value): 0.0 for state in HostState}
        there = Counter(zip(columns.cluster_of, columns.states[: columns.places], strict=False))
        for (cluster, state), count in there.items():
            rows[region, cluster, state.value] += count
    return rows


def _tenants(queue: GlobalQueue, waiting: Sequence[Waits]) -> tuple[dict[str, Rows], Rows]:
    found: dict[str, dict[tuple[str, ...], float]] = {
        "quota": {}, "used": {}, "borrowed": {}, "lent": {},
    }  # fmt: skip
    shares: dict[tuple[str, ...], float] = {}
    for row in fleet.tenants(queue, waiting):
        shares[row.name, "fair"], shares[row.name, "used"] = row.fair_share, row.usage_share
        if not row.gpu_model:
            continue
        key = (row.name, row.gpu_model)
        if row.nominal is not None:
            found["quota"][key] = row.nominal
        found["used"][key], found["borrowed"][key] = row.used, row.borrowed
        found["lent"][key] = row.lent
    return {**found}, shares
