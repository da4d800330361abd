"""Parts of the fleet that are to leave while the system runs: what is there yet, and keeps them."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from topmast.fast.queue.cycle.views import QueueViews
from topmast.model.fleet import Fleet
from topmast.model.fleet_changes import cluster_regions

NAMED = 3
"""So many jobs are named."""
TOLD = 20
"""So many reasons are."""


def stranded(queue: QueueViews, fleet: Fleet) -> str:
    """Why a fleet cannot be taken up now, all reasons; empty if all that leaves is. O(jobs)."""
    looks = (_of_tenants, _of_clusters, _of_data)
    found = [why for look in looks for why in look(queue, fleet)]
    more = [f"and {len(found) - TOLD:,} more reasons"] if len(found) > TOLD else []
    return "; ".join([*found[:TOLD], *more])


def jobs_in_clusters(queue: QueueViews, clusters: Mapping[str, str]) -> dict[str, list[str]]:
    """The jobs that hold GPUs in each of some clusters (to their regions), or keep a place there.

    A place is kept somewhere in a region while a job moves. O(jobs that have a plan or wait).
    """
    regions = set(clusters.values())
    found: dict[str, list[str]] = {name: [] for name in clusters}
    for record in queue.jobs.placed.values():
        if record.plan is not None and record.plan.cluster in found:
            found[record.plan.cluster].append(record.id)
    moving = [r for r in queue.jobs.records.values() if r.moves and r.region in regions]
    for name, region in clusters.items():
        found[name] += [r.id for r in moving if r.region == region and r.id not in found[name]]
    return found


def _of_tenants(queue: QueueViews, fleet: Fleet) -> Iterator[str]:
    """Jobs of tenants that leave have not ended."""
    staying = {tenant.name for tenant in fleet.tenants}
    gone = {tenant.name for tenant in queue.fleet.tenants} - staying
    records = queue.jobs.records.values() if gone else ()
    left = [record for record in records if record.spec.tenant in gone and not record.finished]
    for tenant in sorted({record.spec.tenant for record in left}):
        jobs = _named([record.id for record in left if record.spec.tenant == tenant])
        yield (
            f"tenant {tenant} has jobs that have not ended ({jobs}): "
            "cancel them, or wait for them, first"
        )


def _of_clusters(queue: QueueViews, fleet: Fleet) -> Iterator[str]:
    """Jobs run in clusters that leave."""
    staying = cluster_regions(fleet)
    gone = {name: r for name, r in cluster_regions(queue.fleet).items() if staying.get(name) != r}
    for cluster, jobs in jobs_in_clusters(queue, gone).items() if gone else ():
        if jobs:
            yield (
                f"jobs are in cluster {cluster} ({_named(jobs)}), and nothing would look after "
                f"them: `topmast drain -l cluster={cluster}` first, and apply this when it is empty"
            )


def _of_data(queue: QueueViews, fleet: Fleet) -> Iterator[str]:
    """Datasets are kept in regions that leave, are copied there or deleted, or allowed nowhere."""
    staying = {region.name for region in fleet.regions}
    catalogue = queue.data.catalogue
    for name in (region.name for region in queue.fleet.regions if region.name not in staying):
        for record in catalogue.datasets.values():
            if name in record.replicas:
                yield (
                    f"region {name} has a replica of dataset {record.spec.name}: "
                    f"`topmast datasets drop {record.spec.name} {name}` first"
                )
        for deletion in catalogue.deletions.all():
            if deletion.region == name:
                yield (
                    f"dataset {deletion.dataset} is being deleted in region {name}: "
                    "wait for it, and apply this again"
                )
    for record in catalogue.datasets.values():
        if record.spec.allowed is not None and not _any(record.spec.allowed, staying):
            yield (
                f"dataset {record.spec.name} may be in no region that stays: remove it first "
                f"(`topmast datasets rm {record.spec.name}`)"
            )


def _any(names: tuple[str, ...], staying: Container[str]) -> bool:
    return any(name in staying for name in names)


def _named(jobs: list[str]) -> str:
    return ", ".join(jobs[:NAMED]) + (" and more" if len(jobs) > NAMED else "")
