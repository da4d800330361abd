"""`topmast whatif`: a system's state run ahead twice, as it is and with something changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from topmast.adapters.clock import SystemClock
from topmast.adapters.kernels import load_kernels, load_solvers
from topmast.adapters.store import open_journal
from topmast.cli.root import WhatIfOptions
from topmast.composition import JOURNAL, PROFILE
from topmast.model.errors import InvalidInput, NotFound
from topmast.model.fleet import ClusterSpec, Fleet, RegionSpec, TenantSpec
from topmast.policies.options import Profile
from topmast.policies.registry import DEFAULT_PROFILE, load_profile, with_options
from topmast.runtime.machines import Machines
from topmast.runtime.recovery import rebuild
from topmast.server import SERVER_FILE
from topmast.sim.fork import Moment, moment_of
from topmast.sim.outlook import Outlook
from topmast.sim.settings import PREFIX, Settings, read_settings, told_apart
from topmast.traces.throughputs import read_throughputs

OVERHEADS = tuple(f"{PREFIX}{key}" for key in ("startup_s", "checkpoint_s", "restore_s"))
Tell = Callable[[int, int, float], None]


def compare_futures(options: WhatIfOptions, tell: Tell) -> dict[str, Any]:
    """The figures of both futures, as a document. Raises a TopmastError for what does not fit."""
    base = _profile_of(options.state)
    own, world = told_apart(options.settings)
    settings = _world(world)
    changed = with_options(load_profile(options.profile) if options.profile else base, own)
    moment, fleet = _moment(options, base)
    wanted = _changed(fleet, options)
    load_kernels()
    load_solvers(base)
    load_solvers(changed)
    before = Outlook(moment, base, options.for_s, settings).run(tell)
    future = Outlook(moment, changed, options.for_s, settings)
    if wanted != fleet:
        future.fork.configure(wanted)
    for region in options.lose_regions:
        future.fork.lose(region)
    return {
        "state": str(options.state),
        "at_s": moment.at_s,
        "seq": moment.seq,
        "for_s": options.for_s,
        "changes": _told(options),
        "base": {"profile": base.name, **before},
        "changed": {"profile": changed.name, **future.run(tell)},
    }


def _world(options: dict[str, str]) -> Settings:
    """The overheads of both futures: none, unless they are given."""
    for key in options:
        if key not in OVERHEADS:
            raise InvalidInput(
                "is not an option of whatif", field=f"--set {key}",
                remedy=f"of the world: {', '.join(OVERHEADS)}",
            )  # fmt: skip
    return read_settings({**dict.fromkeys(OVERHEADS, "0"), **options})


def _profile_of(state: Path) -> Profile:
    """The policies that the server of a state folder last ran with."""
    file = state / PROFILE
    if not file.is_file():
        return load_profile(DEFAULT_PROFILE)
    try:
        return msgspec.json.decode(file.read_bytes(), type=Profile)
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidInput(
            f"cannot be read: {error}", field=str(file), remedy="remove it: the default is taken"
        ) from error


def _moment(options: WhatIfOptions, profile: Profile) -> tuple[Moment, Fleet]:
    """The state as it is now, or was when its server stopped; the folder is only read."""
    state = options.state
    if not (state / JOURNAL).is_file():
        raise NotFound(f"no journal in '{state}' (give the folder of a server with --state)")
    speeds = read_throughputs(options.throughputs) if options.throughputs else None
    machines = Machines(profile, pair_speeds=speeds)
    journal = open_journal(state / JOURNAL, read_only=True)
    try:
        rebuilt = rebuild(machines, journal, options.until_s)
        snapshot = journal.latest_snapshot(options.until_s)
    finally:
        journal.close()
    at_s = options.until_s
    if at_s is None and (state / SERVER_FILE).is_file():
        at_s = SystemClock().now()
    if at_s is None:
        last_s = [machine.now for machine in (machines.queue, *machines.placers.values())]
        at_s = max(*last_s, 0.0 if snapshot is None else snapshot.at_s)
    fleet = machines.queue.fleet
    apart = [r.name for r in fleet.regions if r.name not in machines.placers]
    if apart:
        raise InvalidInput(
            f"the books of region '{apart[0]}' are not in it: its placer ran apart",
            field="--state", remedy="whatif needs the state folder of a server that runs all regions in one process",
        )  # fmt: skip
    return moment_of(machines.queue, machines.placers, at_s, rebuilt.seq), fleet


def _changed(fleet: Fleet, options: WhatIfOptions) -> Fleet:
    """The fleet with more hosts and other quotas."""
    regions = [region.name for region in fleet.regions]
    for name in options.lose_regions:
        if name not in regions:
            raise _unknown("region", name, "--lose-region", regions)
    for cluster, count in options.add_hosts.items():
        fleet = _with_hosts(fleet, cluster, count)
    for key, gpus in options.quotas.items():
        tenant, _, model = key.partition(":")
        fleet = _with_quota(fleet, tenant, model, gpus)
    return fleet


def _with_hosts(fleet: Fleet, cluster: str, count: int) -> Fleet:
    known = [c.name for region in fleet.regions for c in region.clusters]
    if cluster not in known:
        raise _unknown("cluster", cluster, "--add-hosts", known)

    def grown(spec: ClusterSpec) -> ClusterSpec:
        if spec.name != cluster:
            return spec
        if not spec.hosts:
            raise InvalidInput(
                f"cluster '{cluster}' has no host to take as a model", field="--add-hosts"
            )
        more = tuple(
            msgspec.structs.replace(spec.hosts[-1], name=f"{cluster}-added-{i + 1}")
            for i in range(count)
        )
        return msgspec.structs.replace(spec, hosts=spec.hosts + more)

    def with_clusters(region: RegionSpec) -> RegionSpec:
        return msgspec.structs.replace(region, clusters=tuple(grown(c) for c in region.clusters))

    regions = tuple(with_clusters(region) for region in fleet.regions)
    return msgspec.structs.replace(fleet, regions=regions)


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


def _told(options: WhatIfOptions) -> list[str]:
    """The changes in words."""
    told = [f"{count} more hosts in {name}" for name, count in options.add_hosts.items()]
    told += [f"quota {key} = {gpus}" for key, gpus in options.quotas.items()]
    told += [f"profile {options.profile}"] if options.profile else []
    told += [f"{key} = {value}" for key, value in options.settings.items()]
    return told + [f"region {name} lost" for name in options.lose_regions]
