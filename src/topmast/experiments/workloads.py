"""The jobs and the fleet of a run: generated, or read from a public file, and made to fit the
question asked.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from msgspec import Struct, structs

from topmast.model.errors import InvalidInput
from topmast.model.files.fleetfile import parse_fleet
from topmast.model.fleet import ClusterSpec, Fleet, HostSpec, RegionSpec
from topmast.traces.generate import generate
from topmast.traces.reading import read
from topmast.traces.trace import Texts, Trace, texts_of

HOST_GPUS = 8


class Workload(Struct, frozen=True, forbid_unknown_fields=True):
    """Where jobs come from (the generator ``kind``, or ``file`` in the folder of public data),
    and what is changed.

    ``pool_gpus``: they run on one pool of hosts of 8 GPUs, whatever model they ask for;
    ``machines``: on this part of the fleet that belongs to them. ``gpus_only``: tasks without
    GPUs are left out; ``most_gpus``, ``most_tasks``: and those that ask for more; ``whole``:
    shares of a GPU are rounded up; ``longest_s``: longer ones are cut; ``spread_s``: they arrive
    one after the other, so far apart. ``flexible``: tasks that ask for one of these models take
    any. ``by_request``: a job's tenant is the model that it asks for, so that figures by tenant
    are figures by request.
    """

    kind: str = ""
    file: str = ""
    format: str = ""
    pool_gpus: int | None = None
    machines: float | None = None
    gpus_only: bool = False
    most_gpus: int | None = None
    most_tasks: int | None = None
    whole: bool = False
    longest_s: float | None = None
    spread_s: float | None = None
    flexible: tuple[str, ...] = ()
    by_request: bool = False
    cpus: bool = True

    @property
    def label(self) -> str:
        """What the rows are, for people."""
        return f"{self.kind}, generated" if self.kind else Path(self.file).name


def is_there(workload: Workload, data: Path | None) -> bool:
    """Whether the jobs can be had: a public file has to be in the folder of public data."""
    return not workload.file or (data is not None and (data / workload.file).is_file())


def make(
    workload: Workload, jobs: int, seed: int, days: float | None, data: Path | None
) -> tuple[Trace, Fleet]:
    """The jobs and the fleet. Raises InvalidInput for a file that is not there."""
    if workload.file:
        if data is None or not is_there(workload, data):
            raise InvalidInput(f"{workload.file} is not there", field="--data")
        trace = read(data / workload.file, workload.format, host_gpus=HOST_GPUS)
        fleet = _pool(workload.pool_gpus or 0, seed=0)
        trace = _drawn(trace, jobs, seed)
    else:
        trace, document = generate(workload.kind, jobs, seed, days)
        fleet = parse_fleet(document)
    trace = _changed(trace, workload)
    if workload.pool_gpus is not None:
        fleet = _pool(workload.pool_gpus, seed)
        trace = structs.replace(trace, gpu_models=texts_of([""] * len(trace)))
    if workload.machines is not None:
        fleet = _part(fleet, workload.machines)
    return _able(trace, fleet), fleet


def _drawn(trace: Trace, jobs: int, seed: int) -> Trace:
    """So many of the jobs at random, in the order of time."""
    if jobs >= len(trace):
        return trace
    rows = np.random.default_rng((seed, 0xD2A3)).choice(len(trace), jobs, replace=False)
    return trace.take(np.sort(rows))


def _changed(trace: Trace, workload: Workload) -> Trace:
    rows = np.ones(len(trace), np.bool_)
    if workload.gpus_only:
        rows &= trace.gpus > 0
    if workload.most_gpus is not None:
        rows &= trace.total_gpus() <= workload.most_gpus
    if workload.most_tasks is not None:
        rows &= trace.tasks <= workload.most_tasks
    if not rows.all():
        trace = trace.take(np.flatnonzero(rows))
    requested = trace.gpu_models
    changes: dict[str, object] = {}
    if workload.whole:
        changes["gpus"] = np.ceil(trace.gpus)
    if workload.longest_s is not None:
        changes["duration_s"] = np.minimum(trace.duration_s, workload.longest_s)
    if workload.spread_s is not None:
        changes["submit_s"] = np.arange(len(trace)) * workload.spread_s
    if not workload.cpus:
        changes["cpus"] = changes["memory_gb"] = np.zeros(len(trace))
    if workload.flexible:
        names = ["" if name in workload.flexible else name for name in requested.names]
        renamed = texts_of(names)
        changes["gpu_models"] = Texts(renamed.codes[requested.codes], renamed.names)
    if workload.by_request:
        changes["tenant"] = Texts(requested.codes, [name or "cpu" for name in requested.names])
    return structs.replace(trace, **changes)


def _pool(gpus: int, seed: int) -> Fleet:
    """One cluster of hosts of 8 GPUs, at least one."""
    hosts = tuple(HostSpec(f"h{i}", "GPU", HOST_GPUS) for i in range(max(1, gpus // HOST_GPUS)))
    return Fleet((RegionSpec("pool", (ClusterSpec("pool", hosts),)),))


def _part(fleet: Fleet, part: float) -> Fleet:
    """Every so-manieth host of each kind, one of each at least."""
    regions = []
    for region in fleet.regions:
        clusters = []
        for cluster in region.clusters:
            kinds: dict[tuple[object, ...], list[HostSpec]] = {}
            for host in cluster.hosts:
                kinds.setdefault((host.model, host.gpus, host.cpus, host.memory_bytes), []).append(
                    host
                )
            hosts = [h for of in kinds.values() for h in of[: max(1, round(part * len(of)))]]
            clusters.append(structs.replace(cluster, hosts=tuple(hosts)))
        regions.append(structs.replace(region, clusters=tuple(clusters)))
    return structs.replace(fleet, regions=tuple(regions))


def _able(trace: Trace, fleet: Fleet) -> Trace:
    """The jobs of which the fleet has as many GPUs of a model that they accept."""
    there = fleet.gpus()
    most = {name: max((there.get(m, 0) for m in name.split("|")), default=0) if name
            else max(there.values(), default=0) for name in trace.gpu_models.names}  # fmt: skip
    limit = np.array([most[name] for name in trace.gpu_models.names])[trace.gpu_models.codes]
    fits = trace.total_gpus() <= limit
    return trace if fits.all() else trace.take(np.flatnonzero(fits))
