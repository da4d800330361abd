"""What is there, free, held and used: regions, clusters, hosts, GPUs, tenants, datasets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from topmast.fast.queue import Catalogue, GlobalQueue, Share
from topmast.fast.region import RegionalPlacer
from topmast.model.absent import given
from topmast.model.engines import PROCESSES
from topmast.model.errors import MOST_TOLD, InvalidInput, NotFound, refuse_all
from topmast.model.files.fields import no_such
from topmast.model.job import MILLI, JobSpec
from topmast.model.messages import Closure
from topmast.model.reason import PendingReason
from topmast.model.states import SUSPECTED, HostState
from topmast.model.views import (
    ClusterView,
    CopyView,
    DatasetView,
    DrainView,
    GpuView,
    HostView,
    MoveView,
    RegionView,
    ReplicaView,
    TenantView,
)

Placers = Mapping[str, RegionalPlacer]
Processes = Callable[[str, str], tuple[int, bool] | None]
"""The process that stands for a host of a cluster, and whether it is halted; None without one."""
STOPPED = "stopped"
"""The process that stands for a host: (cluster, host) -> pid, where an engine has one."""

OPEN, PARTLY, CLOSED, DOWN = "open", "partly", "closed", "down"
"""States of a cluster."""
Seen = frozenset[str] | None
"""The tenants with jobs that a caller may see; None: all."""
Why = Callable[[str, str], str]
"""Why a dataset is in a region: (dataset, region) -> words."""


def _sorted(placers: Placers) -> list[RegionalPlacer]:
    return [placers[name] for name in sorted(placers) if placers[name].columns.clusters]


def _clusters_of(queue: GlobalQueue, placer: RegionalPlacer, seen: Seen) -> list[str]:
    """The cluster of each job of a region that may be seen. O(allocations)."""
    records, allocations = queue.jobs.records, placer.state.allocations.values()
    if seen is None:
        return [one.plan.cluster for one in allocations]
    pairs = ((one.plan.cluster, records.get(one.job)) for one in allocations)
    return [
        cluster for cluster, record in pairs if record is not None and record.spec.tenant in seen
    ]


def regions(queue: GlobalQueue, placers: Placers, seen: Seen = None) -> tuple[RegionView, ...]:
    """Every region, with a count of the jobs that may be seen. O(slots + datasets x regions)."""
    found = []
    for placer in _sorted(placers):
        columns = placer.columns
        free, places = columns.unheld_by_host(), slice(columns.places)
        gpus, available = columns.gpus[places], columns.available[places]
        total = float(gpus.sum())
        usable = float(gpus[available].sum())
        name = placer.region
        found.append(
            RegionView(
                name=name,
                clusters=len(columns.clusters),
                hosts=columns.places,
                gpus=total,
                free_gpus=float(free[available].sum()) / MILLI,
                unavailable_gpus=total - usable,
                running_jobs=(
                    len(placer.state.allocations)
                    if seen is None
                    else len(_clusters_of(queue, placer, seen))
                ),
                demand_supply=queue.tenancy.loads((name,))[name],
                datasets=sum(name in d.replicas for d in queue.data.catalogue.datasets.values()),
                stored_bytes=queue.data.catalogue.stored_bytes(name),
                storage_bytes=placer.state.region.storage_bytes,
                version=placer.state.version,
                places_kept=len(placer.state.places),
                places_used=placer.state.places_used,
                places_missed=placer.state.places_missed,
            )
        )
    return tuple(found)


def clusters(queue: GlobalQueue, placers: Placers, seen: Seen = None) -> tuple[ClusterView, ...]:
    """Every cluster, by region and name, with a count of the jobs that may be seen.

    O(hosts + allocations).
    """
    found = []
    for placer in _sorted(placers):
        columns, shut = placer.columns, placer.columns.closed
        running = Counter(_clusters_of(queue, placer, seen))
        free_milli = columns.unheld_by_host()
        for spec in placer.state.region.clusters:
            rows = columns.clusters[spec.name]
            names = [columns.hosts[row].name for row in rows]
            closed = {name: shut[name] for name in names if name in shut} if shut else {}
            state = _state_of(placer, names)
            found.append(
                ClusterView(
                    name=spec.name,
                    region=placer.region,
                    engine=spec.engine,
                    hosts=len(rows),
                    healthy_hosts=int(columns.available[rows].sum()),
                    gpus=float(columns.gpus[rows].sum()),
                    free_gpus=int(free_milli[rows][columns.available[rows]].sum()) / MILLI,
                    running_jobs=running[spec.name],
                    state=state,
                    closed="" if state in (OPEN, PARTLY) else _of_most(closed),
                    closed_hosts=closed,
                    until_s=closed_until_s(placer, spec.name),
                    capabilities=tuple(sorted(given(spec.capabilities, PROCESSES))),
                )
            )
    return tuple(found)


def closure_of(placer: RegionalPlacer, name: str) -> Closure | None:
    """What an operator closed under a name; a cluster under its own."""
    return given(placer.state.closures, {}).get(name)


def closed_by(placer: RegionalPlacer | None, cluster: str) -> str:
    """Whether a cluster is closed, for the audit log; empty for a region of another process."""
    if placer is None:
        return ""
    closure = closure_of(placer, cluster)
    return msgspec.json.encode({"closed": "" if closure is None else closure.why}).decode()


def closed_why(placer: RegionalPlacer, host: str) -> str:
    """By what order a host takes no work and why, or what its engine says; empty: it does."""
    order = given(placer.state.orders, {}).get(host)
    if order is None:
        return placer.columns.closed.get(host, "")
    return order.said(placer.state.wanted[host])


def closed_until_s(placer: RegionalPlacer, cluster: str) -> float | None:
    """When a cluster that an operator closed opens by itself, if it does."""
    closure = closure_of(placer, cluster)
    return None if closure is None else given(closure.until_s, None)


def _state_of(placer: RegionalPlacer, hosts: Sequence[str]) -> str:
    """Whether a cluster takes new work, as far as its engine decides that."""
    away, closed = placer.state.down, placer.columns.closed
    if not closed and not any(away.values()):
        return OPEN
    down = sum(away.get(host, False) for host in hosts)
    shut = sum(away.get(host, False) or host in closed for host in hosts)
    if hosts and shut == len(hosts):
        return DOWN if down == len(hosts) else CLOSED
    return PARTLY if shut else OPEN


def _of_most(reasons: Mapping[str, str]) -> str:
    """The reason that most hosts have, the first by name of several."""
    counts = Counter(reasons[host] for host in sorted(reasons))
    return counts.most_common(1)[0][0] if counts else ""


def with_reach(hosts: Sequence[HostView], absent: Collection[str]) -> tuple[HostView, ...]:
    """The same hosts, where those of ``absent`` regions are marked as out of reach."""
    return tuple(replace(h, reachable=False) if h.region in absent else h for h in hosts)


def with_processes(hosts: Sequence[HostView], process_of: Processes) -> tuple[HostView, ...]:
    """The same hosts with the processes that stand for them: files of each may be read."""
    return tuple(_with_process(host, process_of(host.cluster, host.name)) for host in hosts)


def _with_process(host: HostView, process: tuple[int, bool] | None) -> HostView:
    if process is None:
        return host
    pid, stopped = process
    return replace(host, agent_pid=pid, state=STOPPED if stopped else host.state)


def hosts(placers: Placers, now: float) -> tuple[HostView, ...]:
    """Every host with its jobs, but without its process.

    O(hosts + running tasks), and a search for each job to be moved.
    """
    found = []
    for placer in _sorted(placers):
        columns = placer.columns
        stays = _staying(placer, now)
        jobs: dict[str, list[str]] = {}
        for allocation in placer.state.allocations.values():
            for host in allocation.plan.hosts:
                jobs.setdefault(host, []).append(allocation.job)
        kept: dict[str, list[str]] = {}
        for job, place in placer.state.places.items():
            for host in place.plan.hosts:
                kept.setdefault(host, []).append(job)
        free = columns.unheld_by_host()
        for row, spec in enumerate(columns.hosts[: columns.places]):
            cluster = columns.cluster_of[row]
            order = given(placer.state.orders, {}).get(spec.name)
            state = columns.states[row]
            is_suspect = state is HostState.SUSPECT
            ends_s = placer.state.suspect if is_suspect else given(placer.state.until, {})
            found.append(
                HostView(
                    name=spec.name,
                    region=placer.region,
                    cluster=cluster,
                    state=state.value,
                    gpu_model=spec.model if spec.gpus else "",
                    gpus=spec.gpus,
                    free_gpus=int(free[row]) / MILLI if columns.available[row] else 0.0,
                    datacenter=spec.datacenter,
                    pod=spec.pod,
                    rack=spec.rack,
                    jobs=tuple(jobs.get(spec.name, ())),
                    leaves_for=placer.state.assigned.get(spec.name),
                    kept_for=tuple(kept.get(spec.name, ())),
                    stays={j: stays[j] for j in jobs.get(spec.name, ()) if j in stays}
                    if state is HostState.DRAINING
                    else {},
                    closed=SUSPECTED if is_suspect else closed_why(placer, spec.name),
                    reason="" if order is None else order.reason,
                    until_s=ends_s.get(spec.name),
                )
            )
    return tuple(found)


def _staying(placer: RegionalPlacer, now: float) -> dict[str, str]:
    """Why each job on a host that is drained is still there."""
    return {x.job: x.why for x in placer.departures(placer.drained_hosts(), now) if x.why}


def states(placer: RegionalPlacer | None, hosts: Sequence[str]) -> str:
    """The states of hosts for the audit log; empty for a region of another process."""
    if placer is None:
        return ""
    found = {host: placer.host_state(host).value for host in hosts}
    return msgspec.json.encode(found).decode()


def replicas(catalogue: Catalogue, name: str) -> str:
    """The replicas of a dataset for the audit log; empty for an unknown one."""
    record = catalogue.datasets.get(name)
    found = None if record is None else {r: s.value for r, s in sorted(record.replicas.items())}
    return "" if found is None else msgspec.json.encode(found).decode()


def together(
    views: Sequence[HostView], host: str, also: Sequence[str]
) -> tuple[str, tuple[str, ...]]:
    """The region of a host, which the others must be in too. Raises NotFound, InvalidInput."""
    regions = {view.name: view.region for view in views}
    names = dict.fromkeys((host, *also))
    absent = [name for name in names if name not in regions]
    found: list[InvalidInput | NotFound] = [
        no_such("host", name, regions, "" if name == host else "also") for name in absent
    ]
    if host in regions:
        found += (
            InvalidInput(
                f"host '{name}' is in region '{regions[name]}', not in '{regions[host]}'",
                field="also",
                remedy="name hosts of one region",
            )
            for name in also
            if name in regions and regions[name] != regions[host]
        )
    refuse_all(found[:MOST_TOLD])
    return regions[host], tuple(also)


def drain_plans(placer: RegionalPlacer, hosts: Sequence[str], now: float) -> tuple[DrainView, ...]:
    """What a drain of hosts together does now, or would do; one for each of them.

    O(attempts + region + a search for each of their jobs).
    """
    moves: dict[str, list[MoveView]] = {host: [] for host in hosts}
    for leaving in placer.departures(tuple(hosts), now):
        move = MoveView(
            job=leaving.job,
            hosts=leaving.hosts,
            moves=leaving.to is not None,
            to_cluster=leaving.to.cluster if leaving.to else None,
            to_hosts=leaving.to.hosts if leaving.to else (),
            cost_gpu_s=leaving.cost_gpu_s,
            why=leaving.why,
            may_stop=leaving.may_stop,
        )
        for host in dict.fromkeys(leaving.hosts):
            if host in moves:
                moves[host].append(move)
    return tuple(
        DrainView(host, placer.region, placer.host_state(host).value, tuple(found))
        for host, found in moves.items()
    )


def gpus(placers: Placers) -> tuple[GpuView, ...]:
    """GPUs by region, cluster and model."""
    found = []
    for placer in _sorted(placers):
        columns = placer.columns
        free = columns.unheld_by_host()
        for cluster in sorted(columns.clusters):
            rows = columns.clusters[cluster]
            models = columns.models[rows]
            for model in sorted({*models} - {""}):
                of = rows[models == model]
                is_open = columns.available[of]
                total, unheld = float(columns.gpus[of].sum()), int(free[of].sum()) / MILLI
                usable = int(free[of][is_open].sum()) / MILLI
                found.append(
                    GpuView(
                        placer.region, cluster, model, total, usable, total - unheld,
                        unheld - usable,
                    )
                )  # fmt: skip
    return tuple(found)


def tenants(
    queue: GlobalQueue,
    waiting: Iterable[tuple[JobSpec, PendingReason, int]] | None = None,
    now: float | None = None,
) -> tuple[TenantView, ...]:
    """Every tenant and GPU model that it has quota for, holds or waits for, children after parents.

    ``waiting``: what `GlobalQueue.waiting` tells, if it is known. With ``now`` the recent usage
    has what runs so far; without, only what has ended, as the order of jobs counts it.

    O(job classes x depth + tenants x models), and with ``now`` O(jobs that run) more.
    """
    ledger = queue.tenancy.ledger
    pending = _pending(queue, queue.waiting() if waiting is None else waiting)
    models: dict[str, set[str]] = {name: set(t.quota or ()) for name, t in ledger.tenants.items()}
    for name, model in (*ledger.totals, *pending):
        if model and name in models:
            models[name].add(model)
    lent = {model: ledger.lent(model) for model in sorted(set().union(*models.values()))}
    there = queue.fleet.gpus()
    shares = {} if now is None else _shares_now(queue, now)
    found = []
    for node in ledger.tree.downwards:
        spec = ledger.tenants.get(node.name)
        share = shares.get(node.name) or ledger.share(node.name)
        known = queue.tenancy.timed.get(node.name)
        timed = None if known is None else known.timed
        for model in (sorted(models[node.name]) or [""]) if spec is not None else ():
            total = ledger.total(node.name, model)
            nominal = ledger.nominal_milli(node.name, model)
            found.append(
                TenantView(
                    name=node.name,
                    gpu_model=model,
                    nominal=None if nominal is None else nominal / MILLI,
                    used=total.guaranteed / MILLI,
                    borrowed=total.borrowed / MILLI,
                    lent=lent.get(model, {}).get(node.name, 0) / MILLI,
                    pending=pending.get((node.name, model), 0) / MILLI,
                    weight=node.weight,
                    parent=(node.parent.name or None) if node.parent else None,
                    fair_share=share.fair,
                    usage_share=share.used,
                    present=float(there.get(model, 0)),
                    paused=queue.tenancy.paused_by(node.name),
                    for_a_while=timed.why() if timed is not None else "",
                    from_s=timed.from_s if timed is not None else None,
                    until_s=timed.until_s if timed is not None else None,
                )
            )
    return tuple(found)


def _shares_now(queue: GlobalQueue, now: float) -> dict[str, Share]:
    """The share of every tenant, with the GPU-seconds that its running jobs have had so far."""
    running_gpu_s: dict[str, float] = {}
    for record in queue.jobs.placed.values():
        if record.start_s is not None and record.plan is not None:
            gpu_s = max(0.0, now - record.start_s) * record.plan.gpus_milli / MILLI
            tenant = record.spec.tenant
            running_gpu_s[tenant] = running_gpu_s.get(tenant, 0.0) + gpu_s
    return queue.tenancy.ledger.shares_with(running_gpu_s, now, queue.profile.rank)


def _pending(
    queue: GlobalQueue, waiting: Iterable[tuple[JobSpec, PendingReason, int]]
) -> dict[tuple[str, str], int]:
    """Thousandths of GPUs that waiting jobs request, by tenant (and each above it) and model."""
    pending: dict[tuple[str, str], int] = {}
    for spec, _, count in waiting:
        for model, milli in spec.gpus_by_model().items():
            for node in queue.tenancy.ledger.tree.node(spec.tenant).up():
                key = (node.name, model or "any")
                pending[key] = pending.get(key, 0) + count * milli
    return pending


def dataset(
    queue: GlobalQueue, name: str, copied: Callable[[str], int], why: Why = lambda name, region: ""
) -> DatasetView:
    """One dataset; ``copied`` tells the bytes of a copy so far, ``why`` why a region has it."""
    record = queue.data.catalogue.datasets[name]
    spec = record.spec
    copies = tuple(
        CopyView(c.id, c.dataset, c.source, c.target, c.bytes, copied(c.id), c.cause, c.begun_s)
        for c in queue.data.catalogue.copies.values()
        if c.dataset == name
    )
    replicas = tuple(
        ReplicaView(r, record.replicas[r].value, why(name, r)) for r in sorted(record.replicas)
    )
    return DatasetView(
        name, spec.size_bytes, spec.path, spec.allowed, spec.min_replicas, replicas, copies
    )


def datasets(
    queue: GlobalQueue, copied: Callable[[str], int], why: Why = lambda name, region: ""
) -> tuple[DatasetView, ...]:
    """Every dataset by name."""
    names = sorted(queue.data.catalogue.datasets)
    return tuple(dataset(queue, name, copied, why) for name in names)
