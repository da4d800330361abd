"""Parts of the fleet that are to leave while the system runs: what is there yet, and keeps them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from topmast.fast.queue.cycle.views import QueueViews
from topmast.model.fleet import ClusterSpec, Fleet, HostSpec, RegionSpec
from topmast.model.fleet_changes import cluster_regions
from topmast.model.job import JobSpec
from topmast.model.plan import Plan, Seat

NAMED = 3
"""So many jobs are named."""
TOLD = 20
"""So many reasons are."""


def stranded(queue: QueueViews, fleet: Fleet) -> str:
    """Why a fleet cannot be taken up now, all reasons; empty if all that leaves is. O(jobs)."""
    looks = (_of_tenants, _of_clusters, hosts_in_use, _of_data)
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
            f"tenant {tenant} is left out, which removes it, and has jobs that have not ended "
            f"({jobs}): add it to the file, or cancel them, or wait for them, first"
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


def hosts_in_use(queue: QueueViews, fleet: Fleet) -> Iterator[str]:
    """Hosts that come back as others before they are gone, or are in another region, with jobs.

    Their GPUs would be given twice. O(hosts + seats of jobs).
    """
    at = {host.name: region.name for region, _, host in _hosts(queue.fleet)}
    new = {h.name: (r.name, c.name, h) for r, c, h in _hosts(fleet) if at.get(h.name) != r.name}
    plans: dict[str, list[Plan]] = {}
    for record in queue.jobs.placed.values() if new else ():
        assert record.plan is not None
        for name in record.plan.hosts:
            if name in new:
                plans.setdefault(name, []).append(record.plan)
    for name in sorted(plans):
        region, cluster, spec = new[name]
        was = plans[name][0].cluster
        seats = [(queue.jobs.records[p.job].spec, p, s) for p in plans[name] for s in p.seats]
        here = [(job, plan, seat) for job, plan, seat in seats if seat.host == name]
        stays = all((plan.region, plan.cluster) == (region, cluster) for plan in plans[name])
        if not stays or not _holds(spec, here):
            yield (
                f"jobs are on host {name} of cluster {was} yet "
                f"({_named([plan.job for plan in plans[name]])}): leave the host out until they "
                "have ended, or give it as it was"
            )


def _hosts(fleet: Fleet) -> Iterator[tuple[RegionSpec, ClusterSpec, HostSpec]]:
    for region in fleet.regions:
        for cluster in region.clusters:
            yield from ((region, cluster, host) for host in cluster.hosts)


def _holds(host: HostSpec, seats: list[tuple[JobSpec, Plan, Seat]]) -> bool:
    """Whether a host has what these tasks hold of it."""
    needs = [g.resources for job, _, seat in seats for g in job.groups if g.name == seat.group]
    return (
        all(host.model in plan.held() for _, plan, seat in seats if seat.slots)
        and all(slot < host.gpus for *_, seat in seats for slot in seat.slots)
        and (not host.cpus or sum(need.cpus for need in needs) <= host.cpus)
        and (not host.memory_bytes or sum(n.memory_bytes for n in needs) <= host.memory_bytes)
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
        if record.spec.allowed is not None and staying.isdisjoint(record.spec.allowed):
            yield (
                f"dataset {record.spec.name} may be in no region that stays: remove it first "
                f"(`topmast datasets rm {record.spec.name}`)"
            )


def _named(jobs: list[str]) -> str:
    return ", ".join(jobs[:NAMED]) + (" and more" if len(jobs) > NAMED else "")
