"""What a user should know at once about an accepted job that will not start as the fleet is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import combinations

import numpy as np
from msgspec.structs import replace

from topmast.fast.queue import GlobalQueue
from topmast.fast.region import (
    Columns,
    Space,
    choices_of,
    cpus_of,
    emptied,
    gpus_of_task,
    roomy_hosts,
)
from topmast.model.bisection import most_with
from topmast.model.decided import joined
from topmast.model.engines import Capability
from topmast.model.files.fields import nearest
from topmast.model.fleet import Fleet
from topmast.model.job import MILLI, JobSpec, TaskGroup, secrets_of
from topmast.model.plan import GroupRequest, PlacementRequest, capabilities_of
from topmast.model.reason import PendingReason
from topmast.model.states import TERMINAL
from topmast.model.units import format_bytes, format_gpus

EVERY_CHOICE = tuple(range(100))


def warnings_of(
    queue: GlobalQueue, regions: Sequence[Columns] | None, spec: JobSpec
) -> tuple[str, ...]:
    """One line for each thing that keeps a job from starting, as the fleet and the quotas are.

    ``regions``: the hosts of each, None if those of some are not known. What is in use does not
    matter. O(regions x hosts x log tasks).
    """
    found = [
        f"dataset '{name}' is not in the catalogue: the job waits until it is added"
        f"{_meant(queue, name)}"
        for name in queue.data.catalogue.unknown(spec.datasets)
    ]
    found += [
        f"no region has the files of dataset '{name}': the job waits until they are added by "
        f"{to_add(queue, name)}"
        for name in nowhere(queue, spec)
    ]
    required, preferred = spec.topology.required, spec.topology.preferred
    if required is not None and preferred is not None and preferred > required:
        found.append(
            f"topology.preferred: {preferred.name.lower()} is wider than the "
            f"{required.name.lower()} that is required, and changes nothing (leave it out)"
        )
    reason, _ = queue.tenancy.entitlements.quota_reason(spec)
    if reason is PendingReason.EXCEEDS_MAX_QUOTA:
        found.append(
            f"tenant: {gang_in_words(spec)} is more than one job of {spec.tenant} may hold: "
            "the job waits until the quota is raised (see `topmast tenants`)"
        )
    if queue.tenancy.paused_by(spec.tenant):
        found.append(
            f"tenant: {spec.tenant} is paused: the job waits until it is resumed "
            "(`topmast status JOB` says why)"
        )
    return (*found, *(too_large(queue, regions, spec) if regions is not None else ()))


def nowhere(queue: GlobalQueue, spec: JobSpec) -> list[str]:
    """The datasets of a job that have no replica anywhere, not even one on its way."""
    known = queue.data.catalogue.datasets
    return [name for name in spec.datasets if name in known and not known[name].replicas]


def residence(queue: GlobalQueue, spec: JobSpec) -> tuple[str, ...] | None:
    """The regions in which all datasets of a job may be, sorted; None if they may be anywhere."""
    known = queue.data.catalogue.datasets
    limits = [known[name].spec.allowed for name in spec.datasets if name in known]
    limited = [set(allowed) for allowed in limits if allowed is not None]
    return tuple(sorted(set.intersection(*limited))) if limited else None


def to_add(queue: GlobalQueue, dataset: str) -> str:
    """The command that brings the files of a dataset to a region, one that may hold it."""
    known = queue.data.catalogue.datasets.get(dataset)
    allowed = known.spec.allowed if known is not None else None
    region = allowed[0] if allowed else "REGION"
    return f"`topmast datasets add {dataset} --region {region} --source FOLDER`"


def _meant(queue: GlobalQueue, dataset: str) -> str:
    near = nearest(dataset, queue.data.catalogue.datasets)
    return f" ({near})" if near else ""


def quotas_beyond(fleet: Fleet, models: Collection[str] | None = None) -> tuple[str, ...]:
    """A line for each model with quotas for more GPUs than there are. O(hosts + tenants).

    ``models``: only of these.
    """
    there = fleet.gpus()
    return tuple(
        f"the quotas add up to {promised} {model}, and there are {there.get(model, 0)}: "
        "not all tenants can have theirs at once"
        for model, promised in sorted(fleet.quotas().items())
        if promised > there.get(model, 0) and (models is None or model in models)
    )


def tenants_gone(queue: GlobalQueue) -> tuple[str, ...]:
    """A line for each tenant that has left the fleet and has jobs that have not ended. O(kinds)."""
    there, found = queue.tenancy.ledger.tenants, dict[str, int]()
    for (tenant, _, _, state), tally in list(queue.jobs.tallies.kinds.items()):
        if tenant not in there and state not in TERMINAL:
            found[tenant] = found.get(tenant, 0) + tally.jobs
    return tuple(
        f"tenant {tenant} is not in the fleet any more, and {count} of its jobs "
        f"{'has' if count == 1 else 'have'} not ended: its people see them again once it is back "
        "(topmast tenants apply)"
        for tenant, count in sorted(found.items())
    )


def too_large(queue: GlobalQueue, regions: Sequence[Columns], spec: JobSpec) -> tuple[str, ...]:
    """What is too much of a job that no empty cluster could hold, and the most that would do.

    Only regions count in which all its datasets may be.
    """
    only = residence(queue, spec)
    if only is None:
        return _too_large(queue, regions, spec)
    if not only:
        return (
            "datasets: there is no region in which all of them may be: the job waits until the "
            "`allowed` regions of one change",
        )
    texts = _too_large(queue, [one for one in regions if one.region in only], spec)
    return tuple(f"datasets: they may be in {joined(only)} only, and there {t}" for t in texts)


def _too_large(queue: GlobalQueue, regions: Sequence[Columns], spec: JobSpec) -> tuple[str, ...]:
    ask = queue.request(spec, False, EVERY_CHOICE)
    spaces = [emptied(columns, ask) for columns in regions]
    if _where(spaces, ask) is not None:
        return ()
    if dropped := _to_drop(regions, ask):
        return (_unsupported(ask, dropped, spec),)
    return tuple(_alone(spaces, ask, spec)) or (_largest(spaces, ask, spec),)


def _to_drop(regions: Sequence[Columns], ask: PlacementRequest) -> tuple[Capability, ...]:
    """The fewest needs without which an empty cluster could hold the gang; empty: none would do.

    A gang has three needs at most. O(2^needs x regions x hosts).
    """
    needs = ask.capabilities
    empty = [columns.empty() for columns in regions] if needs else []
    for dropped in (some for n in range(len(needs)) for some in combinations(needs, n + 1)):
        kept = [need for need in needs if need not in dropped]
        spaces = [Space(one, [row for need in kept for row in one.unable[need]]) for one in empty]
        if _where(spaces, ask) is not None:
            return dropped
    return ()


def _unsupported(ask: PlacementRequest, dropped: Iterable[Capability], spec: JobSpec) -> str:
    """What no engine of the clusters with room can do, and what helps with each thing."""
    pods, hosts = secrets_of_engines(spec)
    fields, remedies, named = list[str](), list[str](), list[str]()
    for need in dropped:
        if need is Capability.SHARES:
            fields.append("resources.accelerators")
            remedies.append("ask for whole GPUs")
        if need is Capability.IMAGES and spec.image:
            fields.append("image")
            remedies.append("leave out the image")
        if need is Capability.IMAGES and pods:
            named += pods
            remedies.append("leave out the secrets of Kubernetes")
        if need is Capability.ENV:
            named += hosts
            remedies.append("refer to files on the hosts (file:/PATH)")
    fields += [f"secrets: {', '.join(named)}"] if named else []
    return (
        f"{', '.join(fields)}: no cluster with the hardware for it has an engine that "
        f"{_in_words(spec, ask.capabilities)}: {' and '.join(remedies)}, or the job waits until "
        "one has"
    )


def secrets_of_engines(spec: JobSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the secrets that not all engines can give: of Kubernetes, of variables of hosts."""
    return tuple(secrets_of(spec, "kubernetes")), tuple(secrets_of(spec, "env"))


def engines_for(queue: GlobalQueue, spec: JobSpec) -> tuple[str, bool]:
    """What a job needs of an engine that not all can do, and whether a cluster has such an engine.

    In words; empty if all engines will do. O(clusters).
    """
    needs = capabilities_of(spec)
    clusters = (cluster for region in queue.fleet.regions for cluster in region.clusters)
    return _in_words(spec, needs), any(all(map(one.can, needs)) for one in clusters)


def _in_words(spec: JobSpec, needs: Iterable[Capability]) -> str:
    # A job without an image is told why it needs one all the same.
    images = "" if spec.image else " (for its secrets of Kubernetes)"
    return " and ".join(
        _WANTS[need] + (images if need is Capability.IMAGES else "") for need in needs
    )


_WANTS = {
    Capability.SHARES: "gives parts of a GPU",
    Capability.IMAGES: "runs container images",
    Capability.ENV: "gives tasks variables of their hosts (env:NAME)",
}


def gang_in_words(spec: JobSpec) -> str:
    """The gang: ``2 tasks with 8 H100 each``."""
    each = _task_in_words(spec.groups[0])
    return f"{spec.tasks} tasks with {each} each" if spec.tasks > 1 else f"1 task with {each}"


def _task_in_words(group: TaskGroup) -> str:
    listed = group.resources.accelerators
    gpus = format_gpus(listed[0].gpus_milli) if listed else ""
    if any(a.model is None for a in listed):
        return f"{gpus} GPU{'s' * (listed[0].gpus_milli > MILLI)} of any model"
    models = " or ".join(a.model or "" for a in listed)
    return f"{gpus} {models}" if listed else "no GPU"


def _where(spaces: Sequence[Space], ask: PlacementRequest) -> str | None:
    """A cluster that could hold the gang with nothing else on it."""
    for space in spaces:
        for cluster, rows in sorted(space.columns.clusters.items()):
            if roomy_hosts(space, ask, rows).any():
                return cluster
    return None


# --- one task by itself -------------------------------------------------------------------------


def _alone(spaces: Sequence[Space], ask: PlacementRequest, spec: JobSpec) -> Iterator[str]:
    """The groups with tasks too large for any host, and what is too much of them."""
    for at, group in enumerate(ask.groups):
        choices = choices_of(ask)
        if any(space.room(group.resources, c).any() for space in spaces for c in choices):
            continue
        prefix = f"groups[{at}]." if len(ask.groups) > 1 else ""
        field, text = _too_much(spaces, ask, group, spec.groups[at])
        yield f"{prefix}{field}: {text}: the job waits until one has"


def _too_much(
    spaces: Sequence[Space], ask: PlacementRequest, group: GroupRequest, told: TaskGroup
) -> tuple[str, str]:
    """The field of which one task requests too much, with the most that there is."""
    gpus, most_gpus = _with_gpus(spaces, ask, group)
    wanted = _task_in_words(told)
    if not any(hosts.any() for hosts in gpus):
        return (
            "resources.accelerators",
            f"no host has {wanted}; the most is {most_gpus}",
        )
    needs = group.resources
    of = f" with {wanted}" if needs.accelerators else ""
    most_cpus = max(
        float(s.columns.cpus[h].max(initial=0)) for s, h in zip(spaces, gpus, strict=True)
    )
    if most_cpus < cpus_of(needs):
        text = f"no host{of} has {needs.cpus:g} CPUs; the most is {most_cpus:g}"
        return "resources.cpus", text
    most = max(float(s.columns.memory[h].max(initial=0)) for s, h in zip(spaces, gpus, strict=True))
    if most < needs.memory_bytes:
        size = format_bytes(needs.memory_bytes)
        return (
            "resources.memory",
            f"no host{of} has {size} of memory; the most is {format_bytes(most)}",
        )
    return (
        "resources",
        f"no one host has {wanted} and as many CPUs and as much memory as it asks for",
    )


def _with_gpus(
    spaces: Sequence[Space], ask: PlacementRequest, group: GroupRequest
) -> tuple[list[np.ndarray[tuple[int], np.dtype[np.bool_]]], int]:
    """Which hosts have the GPUs of one task, and the most GPUs of its models that a host has."""
    listed = group.resources.accelerators
    found, most = [], 0
    for space in spaces:
        columns = space.columns
        has = np.zeros(len(columns.hosts), dtype=np.bool_)
        for choice in choices_of(ask):
            model = listed[min(choice, len(listed) - 1)].model if listed else None
            right = columns.models == model if model is not None else np.ones(len(has), np.bool_)
            most = max(most, int(columns.gpus[np.asarray(right, np.bool_)].max(initial=0)))
            has |= np.asarray(right, np.bool_) & (
                columns.gpus * MILLI >= gpus_of_task(group.resources, choice)
            )
        found.append(has)
    return found, most


# --- all together -------------------------------------------------------------------------------


def _largest(spaces: Sequence[Space], ask: PlacementRequest, spec: JobSpec) -> str:
    """What is too much of the whole gang, with the largest that would fit."""
    level = spec.topology.required
    within = "cluster" if level is None else level.name.lower()
    field = "num_nodes" if level is None else f"topology.required: {within}"
    text = f"{field}: no {within} could hold {gang_in_words(spec)}, even empty"
    at = max(range(len(ask.groups)), key=lambda i: (_gpus(ask, i), ask.groups[i].count))
    fewer = _most_tasks(spaces, ask, at)
    if fewer is None:
        return f"{text}: the job waits until one can"
    tasks, cluster = fewer
    gpus = f" ({format_gpus(tasks * _gpus(ask, at))} GPUs)" if _gpus(ask, at) else ""
    of = f" of group {ask.groups[at].name}" if len(ask.groups) > 1 else ""
    some = f"{tasks} task{'' if tasks == 1 else 's'}{of}{gpus}"
    return (
        f"{text}; the largest that would fit is {some}, in {cluster}: the job waits until one can"
    )


def _gpus(ask: PlacementRequest, at: int) -> int:
    return gpus_of_task(ask.groups[at].resources, choices_of(ask)[0])


def _most_tasks(spaces: Sequence[Space], ask: PlacementRequest, at: int) -> tuple[int, str] | None:
    """The most tasks of one group with which the gang would fit, and in which cluster."""

    def where(count: int) -> str | None:
        groups = list(ask.groups)
        groups[at] = replace(groups[at], count=count)
        return _where(spaces, replace(ask, groups=tuple(groups)))

    return most_with(where, 0, ask.groups[at].count)
