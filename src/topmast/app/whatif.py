"""`topmast whatif`: a system's state run ahead twice, as it is and with something changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count as numbers
from itertools import repeat
from typing import Any

import msgspec
from msgspec import json

from topmast.adapters.clock import SystemClock
from topmast.adapters.kernels import load_kernels, load_solvers
from topmast.adapters.store import existing_store, open_journal
from topmast.app.replay import profile_of_state
from topmast.cli.rootoptions import WhatIfOptions
from topmast.client.address import SERVER_FILE
from topmast.model.errors import Faults, InvalidInput, NotFound
from topmast.model.files.changes import changes_within
from topmast.model.fleet import ClusterSpec, Fleet, HostSpec, RegionSpec, TenantSpec
from topmast.model.units import format_bytes
from topmast.policies.options import Profile
from topmast.policies.registry import load_profile, with_options
from topmast.runtime.machines import Machines
from topmast.runtime.recovery import rebuild
from topmast.service.forecast import FORESEEN, foreseen
from topmast.sim.outlook import Outlook
from topmast.sim.settings import ROUNDS, check_models, read_foreseen, told_apart
from topmast.sim.whatif import StateSnapshot, state_snapshot_of
from topmast.traces.throughputs import read_throughputs

NO_GPUS = "cpu"
"""The kind of hosts without GPUs."""
Tell = Callable[[int, int, float], None]


def compare_futures(options: WhatIfOptions, tell: Tell) -> dict[str, Any]:
    """The figures of both futures, as a document. Raises a TopmastError for what does not fit."""
    base, faults = profile_of_state(options.state), Faults()
    edits = {
        job: faults.of(partial(changes_within, of, f"--job {job}"))
        for job, of in options.jobs.items()
    }
    own, world = told_apart({**options.found, **options.settings})
    named = options.profile
    chosen = faults.rest_of(partial(load_profile, named)) if named else None
    changed = faults.of(lambda: with_options(chosen or base, own))
    base = with_options(base, _rounds_of_both(options))
    snapshot_, fleet, kept = _state_snapshot(options, base, faults)
    wanted = faults.of(lambda: _changed(fleet, options))
    foreseen_ = faults.of(lambda: read_foreseen(world, "whatif"))
    faults.refuse()
    check_models(foreseen_, wanted.models())
    settings = read_foreseen({**kept, **world}, "whatif")
    load_kernels()
    load_solvers(base)
    load_solvers(changed)
    as_it_is = Outlook(snapshot_, base, options.for_s, settings)
    before = as_it_is.run(_of_both(tell, 0), edits)
    future = Outlook(snapshot_, changed, options.for_s, settings)
    for job, changes in edits.items():
        future.whatif.edit(job, changes)
    if wanted != fleet:
        future.whatif.configure(wanted)
    for region in options.lose_regions:
        future.whatif.lose(region)
    after = future.run(_of_both(tell, 1), edits)
    return {
        "state": str(options.state),
        "at_s": snapshot_.at_s,
        "seq": snapshot_.seq,
        "for_s": options.for_s,
        "changes": _told(options, fleet),
        "warnings": _warnings(options, fleet),
        "base": {"profile": base.name, **before},
        "changed": {"profile": changed.name, **after},
        "moved": _moved(as_it_is.starts(), future.starts(), future.until_s),
    }


MOVED_SHOWN = 10
"""Jobs that start sooner, and jobs that start later: the ones with the largest difference."""
MOVED_S = 1.0


def _moved(
    base: dict[str, float | None], changed: dict[str, float | None], until_s: float
) -> dict[str, Any]:
    """The jobs that gain and lose most; one that starts in neither future does neither."""
    away_s = {
        job: (until_s if changed[job] is None else changed[job] or 0.0)
        - (until_s if start_s is None else start_s)
        for job, start_s in base.items()
        if job in changed
    }
    order = sorted(away_s, key=lambda job: (away_s[job], len(job), job))
    sooner = [job for job in order if away_s[job] < -MOVED_S]
    later = [job for job in reversed(order) if away_s[job] > MOVED_S]

    def rows(jobs: list[str]) -> list[dict[str, Any]]:
        shown = jobs[:MOVED_SHOWN]
        return [{"job": j, "base_start_s": base[j], "changed_start_s": changed[j]} for j in shown]

    return {
        "sooner": len(sooner), "later": len(later),
        "gain_most": rows(sooner), "lose_most": rows(later),
    }  # fmt: skip


def _of_both(tell: Tell, before: int) -> Tell:
    """Tells the jobs of both futures together, with ``before`` futures that have been run."""
    return lambda over, jobs, now_s: tell(before * jobs + over, 2 * jobs, now_s)


def _rounds_of_both(options: WhatIfOptions) -> dict[str, str]:
    """Rounds that were found are of the cluster as it is; those that a person sets are a change."""
    return {
        key: text
        for key, text in options.found.items()
        if key in ROUNDS and key not in options.settings
    }


def _state_snapshot(
    options: WhatIfOptions, profile: Profile, faults: Faults
) -> tuple[StateSnapshot, Fleet, dict[str, str]]:
    """The state as it is now, or was when its server stopped, and what forecasts there go by.

    The folder is only read.
    """
    state = options.state
    target = existing_store(state)
    speeds = read_throughputs(options.throughputs) if options.throughputs else None
    machines = Machines(profile, pair_speeds=speeds)
    journal = open_journal(target, read_only=True)
    try:
        rebuilt = rebuild(machines, journal, options.until_s)
        snapshot = journal.latest_snapshot(options.until_s)
        kept = foreseen(journal.option(FORESEEN))
    finally:
        journal.close()
    at_s = options.until_s
    if at_s is None and (state / SERVER_FILE).is_file():
        at_s = SystemClock().now()
    if at_s is None:
        last_s = [machine.now for machine in (machines.queue, *machines.placers.values())]
        at_s = max(*last_s, 0.0 if snapshot is None else snapshot.at_s)
    for job in options.jobs:
        record = machines.queue.jobs.records.get(job)
        if record is None or record.finished:
            faults.take(NotFound(f"--job: no job '{job[:40]}' that has not ended"))
    fleet = machines.queue.fleet
    apart = [r.name for r in fleet.regions if r.name not in machines.placers]
    if apart:
        raise InvalidInput(
            f"the books of region '{apart[0]}' are not in it: its placer ran apart",
            field="--state",
            remedy="whatif needs the state folder of a server that runs all regions in one process",
        )  # fmt: skip
    state_ = state_snapshot_of(machines.queue, machines.region_states(), at_s, rebuilt.seq)
    return state_, fleet, kept


def _changed(fleet: Fleet, options: WhatIfOptions) -> Fleet:
    """The fleet with more hosts and other quotas. Raises InvalidInput, with all that it lacks."""
    faults = Faults()
    regions = [region.name for region in fleet.regions]
    for name in options.lose_regions:
        if name not in regions:
            faults.take(_unknown("region", name, "--lose-region", regions))
    for cluster, count in options.add_hosts.items():
        fleet = faults.rest_of(partial(_with_hosts, fleet, cluster, count)) or fleet
    for key, gpus in options.quotas.items():
        tenant, _, model = key.partition(":")
        fleet = faults.rest_of(partial(_with_quota, fleet, tenant, model, gpus)) or fleet
    faults.refuse()
    return fleet


def _with_hosts(fleet: Fleet, key: str, count: int) -> Fleet:
    """More hosts in a cluster, like the one that the ``CLUSTER`` or ``CLUSTER:KIND`` means."""
    cluster, like = _model_host(fleet, key)

    def grown(spec: ClusterSpec) -> ClusterSpec:
        if spec.name != cluster:
            return spec
        before = sum(host.name.startswith(f"{cluster}-added-") for host in spec.hosts)
        names = (f"{cluster}-added-{before + i + 1}" for i in range(count))
        more = tuple(
            msgspec.structs.replace(like, name=name, rack=rack)
            for name, rack in zip(names, _racks(spec, like), strict=False)
        )
        return msgspec.structs.replace(spec, hosts=spec.hosts + more)

    def with_clusters(region: RegionSpec) -> RegionSpec:
        return msgspec.structs.replace(region, clusters=tuple(grown(c) for c in region.clusters))

    regions = tuple(with_clusters(region) for region in fleet.regions)
    return msgspec.structs.replace(fleet, regions=regions)


def _racks(spec: ClusterSpec, like: HostSpec) -> Iterator[str]:
    """The racks of new hosts: that of ``like`` until it is full, then new ones, without end.

    A rack is full with as many hosts as the fullest of the cluster; one that is alone never is.
    """
    hosts = Counter((host.datacenter, host.pod, host.rack) for host in spec.hosts)
    most, rack = max(hosts.values()), like.rack
    free = most - hosts[like.datacenter, like.pod, rack] if len(hosts) > 1 else None
    if free is None:
        yield from repeat(rack)
    yield from repeat(rack, free or 0)
    added = {rack for _, _, rack in hosts if rack.startswith(f"{spec.name}-added-r")}
    for number in numbers(len(added) + 1):
        yield from repeat(f"{spec.name}-added-r{number}", most)


def _model_host(fleet: Fleet, key: str) -> tuple[str, HostSpec]:
    """The cluster that is meant, and the host that new ones are like.

    That is the last host of the kind; without a kind, the last with GPUs.
    """
    cluster, _, kind = key.partition(":")
    known = {c.name: c.hosts for region in fleet.regions for c in region.clusters}
    if cluster not in known:
        raise _unknown("cluster", cluster, "--add-hosts", list(known))
    hosts = known[cluster]
    if not hosts:
        raise InvalidInput(
            f"cluster '{cluster}' has no host to take as a model", field="--add-hosts"
        )
    if not kind:
        return cluster, next((h for h in reversed(hosts) if h.gpus), hosts[-1])
    found = [h for h in hosts if kind == (h.model if h.gpus else NO_GPUS)]
    if not found:
        kinds = list(dict.fromkeys(h.model if h.gpus else NO_GPUS for h in hosts))
        raise _unknown(f"kind of host in {cluster}:", kind, "--add-hosts", kinds)
    return cluster, found[-1]


def _host_in_words(host: HostSpec) -> str:
    parts = [f"{host.gpus} {host.model}" if host.gpus else "no GPUs"]
    parts += [f"{host.cpus:g} CPUs"] if host.cpus else []
    parts += [f"{format_bytes(host.memory_bytes)} of memory"] if host.memory_bytes else []
    return ", ".join(parts)


def _with_quota(fleet: Fleet, tenant: str, model: str, gpus: int) -> Fleet:
    names = [spec.name for spec in fleet.tenants]
    if tenant not in names:
        raise _unknown("tenant", tenant, "--quota", names)
    if model not in fleet.models():
        raise _unknown("GPU model", model, "--quota", list(fleet.models()))

    def granted(spec: TenantSpec) -> TenantSpec:
        if spec.name != tenant:
            return spec
        return msgspec.structs.replace(spec, quota={**(spec.quota or {}), model: gpus})

    return msgspec.structs.replace(fleet, tenants=tuple(granted(spec) for spec in fleet.tenants))


def _unknown(what: str, name: str, field: str, known: list[str]) -> InvalidInput:
    remedy = f"known: {', '.join(known[:10]) or 'none'}"
    return InvalidInput(f"no {what} '{name}'", field=field, remedy=remedy)


def _warnings(options: WhatIfOptions, fleet: Fleet) -> list[str]:
    """What is added and brings no GPUs."""
    return [
        f"--add-hosts {key}: hosts of {cluster} have no GPUs; only jobs without GPUs gain by more "
        "of them"
        for key, (cluster, like) in ((k, _model_host(fleet, k)) for k in options.add_hosts)
        if not like.gpus
    ]


def _told(options: WhatIfOptions, fleet: Fleet) -> list[str]:
    """The changes in words."""
    told = []
    for key, count in options.add_hosts.items():
        cluster, like = _model_host(fleet, key)
        hosts = f"{count} more host{'' if count == 1 else 's'} in {cluster}"
        told.append(f"{hosts}, like {like.name} ({_host_in_words(like)})")
    told += [f"quota {key} = {gpus}" for key, gpus in options.quotas.items()]
    told += [f"profile {options.profile}"] if options.profile else []
    both = _rounds_of_both(options)
    own, _ = told_apart({**options.found, **options.settings})
    told += [f"{key} = {value}" for key, value in own.items() if key not in both]
    told += [
        f"{key} of {job} = {value if isinstance(value, str) else json.encode(value).decode()}"
        for job, document in options.jobs.items()
        for key, value in document.items()
    ]
    return told + [f"region {name} lost" for name in options.lose_regions]
