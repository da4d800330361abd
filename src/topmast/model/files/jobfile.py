"""The job file: what people write to run a job, read into a `JobSpec` and written back.

`read_job` reads a file, `parse_job` a document that is in memory already (a request's body);
`dump_job` is the inverse of `parse_job`. Each reader below reads one field.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

from msgspec import UNSET, Struct

from topmast.model.dataset import dataset_variable
from topmast.model.errors import InvalidInput
from topmast.model.files.accelerators import dump_accelerators, read_accelerators
from topmast.model.files.dependencies import read_dependencies
from topmast.model.files.documents import from_document
from topmast.model.files.environment import read_envs, read_secrets
from topmast.model.files.every import every_error
from topmast.model.files.fields import PATH_LIMIT_BYTES, Record, Value, one_of
from topmast.model.files.foreign import (
    RESOURCE_FIELDS,
    TOP_FIELDS,
    refuse_objects,
    refuse_scripts,
    skypilot_hint,
)
from topmast.model.files.labels import read_labels
from topmast.model.files.source import JOB_LIMITS, Kind, Node, parse_text, read_bytes
from topmast.model.files.sweeps import dump_sweep, read_sweep
from topmast.model.job import (
    MILLI,
    Band,
    Checkpoint,
    JobSpec,
    Level,
    Resources,
    TaskGroup,
    Topology,
)
from topmast.model.sweep import PREFIX
from topmast.model.units import exact_bytes, parse_duration_s, parse_memory_gb, show

MAX_TASKS = 100_000
MAX_GPUS = 1_000_000
MAX_CPUS = 1_000_000
MAX_GROUPS = 100
MAX_DATASETS = 1_000
MAX_RESTARTS = 100_000
MAX_GRACE_S = 86_400.0
SCRIPT_LIMIT_BYTES = 100_000

DEFAULT_NAME = "job"
DEFAULT_GROUP = "main"
"""The name of the only group of a job that names none."""

BANDS = {band.name.lower(): band for band in Band}
LEVELS = {level.name.lower(): level for level in Level}

_JOB_FIELDS = (
    "name", "tenant", "num_nodes", "min_nodes", "max_nodes", "resources", "priority", "envs",
    "secrets", "workdir", "datasets", "topology", "checkpoint", "time_limit", "max_restarts",
    "preemptible", "group", "setup", "run", "expected_duration", "skew", "work", "image", "labels",
    "depends_on", "sweep", "groups",
)  # fmt: skip
_GROUP_FIELDS = ("name", "count", "min_count", "max_count", "resources", "setup", "run")
_SIZES_AT_TOP = {"num_nodes": "count", "min_nodes": "min_count", "max_nodes": "max_count"}
"""What a file without groups calls the number of its tasks, and what a group calls it."""
_RESOURCE_FIELDS = ("accelerators", "cpus", "memory", "gpu_memory")

_CPUS = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?\+?")
_SHARE = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,30})?(?:[eE]-[0-9]{1,3})?")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class JobFile(Struct, frozen=True):
    """A job as written."""

    spec: JobSpec
    workdir: str | None = None
    """The folder to snapshot, as written, relative to the file's folder.

    None: there is none, or the document names a snapshot (then ``spec.workdir`` has it).
    """


class JobOptions(TypedDict, total=False):
    """What a job file leaves open."""

    tenant_default: str
    """The tenant of a job that names none: else ``default``."""
    user: str
    before: Mapping[str, int]
    """How many jobs that come before it in the same submission have a name."""


def read_job(path: Path, **options: Unpack[JobOptions]) -> JobFile:
    """The job in the file at ``path``. A job without a name takes the file's."""
    where = str(path) if str(path).isprintable() else show(str(path))
    data = read_bytes(path, where, JOB_LIMITS)
    return job_in(data, where, name=path.stem, **options)


def job_in(data: bytes, where: str, *, name: str = "", **options: Unpack[JobOptions]) -> JobFile:
    """The job in the text of a job file; ``where`` names it in errors.

    A job without a name takes ``name``, as far as that can be one.
    """
    refuse_scripts(data, where)
    return _job(parse_text(data, where, JOB_LIMITS), where, job_name(name), options)


def job_name(text: str) -> str:
    """A name for a job, made of any text."""
    return re.sub(r"[^A-Za-z0-9._-]+|^[._-]+", "-", text).strip("-._")[:100] or DEFAULT_NAME


def parse_job(
    document: Mapping[str, Any], *, where: str = "request", **options: Unpack[JobOptions]
) -> JobFile:
    """The job in ``document``, for example the JSON body of a request."""
    return _job(from_document(document, where, JOB_LIMITS), where, DEFAULT_NAME, options)


def _job(node: Node, where: str, name_default: str, options: JobOptions) -> JobFile:
    refuse_objects(node, where)
    try:
        return every_error(lambda n: _read(n, where, name_default, options), node)
    except InvalidInput as error:
        error.more += skypilot_hint([error, *error.more], where)
        raise


def _read(node: Node, where: str, name_default: str, options: JobOptions) -> JobFile:
    root = Value(node, "", where)
    job = root.record(_JOB_FIELDS, TOP_FIELDS)
    tenant, group, limit = job.get("tenant"), job.get("group"), job.get("time_limit")
    restarts, preemptible, name = job.get("max_restarts"), job.get("preemptible"), job.get("name")
    expected, skew, work = job.get("expected_duration"), job.get("skew"), job.get("work")
    image = job.get("image")
    digest, folder = _workdir(job.get("workdir"))
    envs = read_envs(job.get("envs"))
    band = _band(job.get("priority"))
    if band is Band.OPPORTUNISTIC and preemptible and not preemptible.boolean():
        message = "an opportunistic job runs on what others do not need now, and must make way"
        raise preemptible.error(message, "leave it out, or ask for another priority")
    spec = JobSpec(
        name=name.name() if name else name_default,
        groups=_groups(root, job),
        tenant=tenant.name() if tenant else options.get("tenant_default", "default"),
        user=options.get("user", ""),
        band=band,
        envs=envs,
        workdir=digest,
        datasets=_datasets(job.get("datasets")),
        topology=_topology(job.get("topology")),
        checkpoint=_checkpoint(job.get("checkpoint")),
        time_limit_s=_duration(limit, above_zero=True) if limit else None,
        max_restarts=restarts.integer(low=0, high=MAX_RESTARTS) if restarts else 3,
        preemptible=preemptible.boolean() if preemptible else True,
        group=group.name() if group else "",
        duration_s=_duration(expected, above_zero=True) if expected else None,
        skew=skew.quantity(_parse_skew, "a share of the parameters, 0 to 1") if skew else None,
        work=work.text(limit_bytes=200) if work else UNSET,
        image=image.image() if image else UNSET,
        secrets=read_secrets(job.get("secrets"), envs) or UNSET,
        labels=read_labels(job.get("labels")) or UNSET,
        depends_on=read_dependencies(job.get("depends_on"), options.get("before", {})) or UNSET,
        sweep=read_sweep(job.get("sweep")) or UNSET,
    )
    return JobFile(spec, folder)


# ------------------------------------------------------------------------------------- task groups


def _groups(root: Value, job: Record) -> tuple[TaskGroup, ...]:
    """The task groups: those listed, or the one that the top level describes."""
    resources, setup = _resources(job.get("resources")), read_script(job.get("setup"))
    listed = job.get("groups")
    if listed is None:
        count, fewest, most = _size(job, tuple(_SIZES_AT_TOP))
        meant = ("groups", "command", "cmd")
        run = read_script(job.need("run", "python train.py", meant))
        only = TaskGroup(DEFAULT_GROUP, count, resources, run, setup, fewest, most)
        groups: tuple[TaskGroup, ...] = (only,)
    else:
        for field in (*_SIZES_AT_TOP, "run"):
            given = job.get(field)
            if given is not None:
                instead = _SIZES_AT_TOP.get(field, field)
                raise given.error(
                    "cannot stand beside groups", f"give each group its own '{instead}'"
                )
        groups = _listed_groups(listed, resources, setup)
    _check_size(listed or job.get("max_nodes") or job.get("num_nodes") or root, groups)
    return groups


def _size(fields: Record, names: tuple[str, ...]) -> tuple[int, int | None, int | None]:
    """The number of tasks, and its limits; no limits if the number is fixed.

    ``names``: the fields with the number, the minimum and the maximum. Without a number, the
    minimum counts.
    """
    wanted, fewest, most = (fields.get(name) for name in names)
    low = fewest.integer(low=1, high=MAX_TASKS) if fewest else None
    high = most.integer(low=1, high=MAX_TASKS) if most else None
    count = wanted.integer(low=1, high=MAX_TASKS) if wanted else low or 1
    if fewest and low is not None and low > count:
        raise fewest.error(f"is above {names[0]}, {count:,}", f"at most {count:,}")
    if most and high is not None and high < count:
        what = names[0] if wanted or not fewest else names[1]
        raise most.error(f"is below {what}, {count:,}", f"at least {count:,}")
    low, high = low or count, high or count
    return (count, None, None) if low == high else (count, low, high)


def _listed_groups(listed: Value, resources: Resources, setup: str) -> tuple[TaskGroup, ...]:
    groups: dict[str, TaskGroup] = {}
    for item in listed.items(limit=MAX_GROUPS):
        fields = item.record(_GROUP_FIELDS, _NOT_IN_A_GROUP)
        name = fields.need("name", "trainer")
        own, own_setup = fields.get("resources"), fields.get("setup")
        count, fewest, most = _size(fields, tuple(_SIZES_AT_TOP.values()))
        group = TaskGroup(
            name=name.name(),
            count=count,
            resources=_resources(own) if own else resources,
            run=read_script(fields.need("run", "python train.py")),
            setup=read_script(own_setup) if own_setup else setup,
            min_count=fewest,
            max_count=most,
        )
        if group.is_elastic and any(other.is_elastic for other in groups.values()):
            place = fields.get("min_count") or fields.get("max_count") or item
            remedy = "leave min_count and max_count to one group"
            raise place.error("a second group of varying size", remedy)
        if group.name in groups:
            raise name.error(f"a second group named {show(group.name)}", "rename one of them")
        groups[group.name] = group
    if not groups:
        raise listed.error("lists no group", "leave it out for a job of identical tasks")
    return tuple(groups.values())


_NOT_IN_A_GROUP = {
    **{top: f"a group has no {top} (write {own})" for top, own in _SIZES_AT_TOP.items()},
    **{
        field: f"belongs to the whole job (move {field} to the top of the file)"
        for field in _JOB_FIELDS
        if field not in (*_GROUP_FIELDS, *_SIZES_AT_TOP, "groups")
    },
}


def _check_size(place: Value, groups: Sequence[TaskGroup]) -> None:
    tasks = sum(group.most for group in groups)
    if tasks > MAX_TASKS:
        raise place.error(f"the gang has {tasks:,} tasks", f"at most {MAX_TASKS:,}")
    largest = [
        group.most * max((choice.gpus_milli for choice in group.resources.accelerators), default=0)
        for group in groups
    ]
    if sum(largest) > MAX_GPUS * MILLI:
        gpus = sum(largest) // MILLI
        raise place.error(f"the gang asks for {gpus:,} GPUs", f"at most {MAX_GPUS:,}")


def read_script(value: Value | None) -> str:
    """A shell script; empty without one. Raises InvalidInput."""
    if value is None:
        return ""
    if value.node.kind is Kind.LIST:
        raise value.wrong("text", "a script of several lines begins with '|', without dashes")
    return value.text(limit_bytes=SCRIPT_LIMIT_BYTES)


def _resources(value: Value | None) -> Resources:
    if value is None:
        return Resources()
    fields = value.record(_RESOURCE_FIELDS, RESOURCE_FIELDS)
    cpus, memory, gpu_memory = (fields.get(f) for f in ("cpus", "memory", "gpu_memory"))
    wanted = "an amount of memory: GB as a number, or 64GiB"
    return Resources(
        accelerators=read_accelerators(fields.get("accelerators")),
        cpus=cpus.quantity(_parse_cpus, "a number of CPUs: 32, 32+ or 0.5") if cpus else 0.0,
        memory_bytes=memory.quantity(parse_memory_gb, wanted) if memory else 0,
        gpu_memory_bytes=gpu_memory.quantity(parse_memory_gb, wanted) if gpu_memory else 0,
    )


def _parse_cpus(text: str) -> float:
    remedy = f"a number such as 32, 32+ or 0.5, at most {MAX_CPUS:,}"
    if len(text) > 40 or not _CPUS.fullmatch(text):
        raise InvalidInput(f"{show(text)} is not a number of CPUs", remedy=remedy)
    cpus = float(text.removesuffix("+"))
    if cpus > MAX_CPUS:
        raise InvalidInput("the number of CPUs is too large", remedy=remedy)
    return cpus


# ------------------------------------------------------------------------------ the job as a whole


_BAND_NUMBERS = {str(band.value): band for band in Band}


def _band(value: Value | None) -> Band:
    if value is None:
        return Band.NORMAL
    number = _BAND_NUMBERS.get(value.node.text)
    return value.choice(BANDS, "a priority") if number is None else number


def _workdir(value: Value | None) -> tuple[str, str | None]:
    """The digest of a snapshot, and the folder to snapshot: one of the two, or neither."""
    if value is None:
        return "", None
    text = value.text(limit_bytes=PATH_LIMIT_BYTES)
    if text.startswith("sha256:"):
        if not _DIGEST.fullmatch(text):
            raise value.error(f"{show(text)} is not a digest", "sha256: and 64 hexadecimal digits")
        return text, None
    if not text.isprintable():
        raise value.error(f"{show(text)} is not a usable path")
    return "", value.no_url(text)


def _datasets(value: Value | None) -> tuple[str, ...]:
    names: dict[str, str] = {}
    """By the variable of each."""
    for item in value.items(limit=MAX_DATASETS) if value else []:
        name = item
        if item.node.entries:
            fields = item.record(("name", "access"))
            name, access = fields.need("name"), fields.get("access")
            if access is not None and access.text() != "read":
                message = f"access {show(access.node.text)} is not yet supported"
                raise access.error(message, "write: access: read")
        variable = dataset_variable(name.name())
        other = names.get(variable)
        if other == name.name():
            raise name.error(f"the dataset {show(name.name())} is listed twice", "list it once")
        if other is not None:
            message = f"tasks would find {show(name.name())} and {show(other)} both by {variable}"
            raise name.error(message, "add one of them again under another name")
        names[variable] = name.name()
    return tuple(names.values())


def _topology(value: Value | None) -> Topology:
    if value is None:
        return Topology()
    fields = value.record(("required", "preferred"))
    required, preferred = fields.get("required"), fields.get("preferred")
    what = "a level of the topology"
    return Topology(
        required=required.choice(LEVELS, what) if required else None,
        preferred=preferred.choice(LEVELS, what) if preferred else None,
    )


def _checkpoint(value: Value | None) -> Checkpoint:
    default = Checkpoint()
    if value is None:
        return default
    fields = value.record(("path", "interval", "grace"))
    path, interval, grace = fields.get("path"), fields.get("interval"), fields.get("grace")
    grace_s = _duration(grace) if grace else default.grace_s
    if grace and grace_s > MAX_GRACE_S:
        raise grace.error("the grace period is too long", "at most 24h")
    return Checkpoint(
        path=path.relative_path() if path else default.path,
        interval_s=_duration(interval, above_zero=True) if interval else default.interval_s,
        grace_s=grace_s,
    )


def _parse_skew(text: str) -> float:
    remedy = "the share of the model's parameters that its largest tensor holds, such as 0.74"
    if not _SHARE.fullmatch(text) or float(text) > 1:
        raise InvalidInput(f"{show(text)} is not a share from 0 to 1", remedy=remedy)
    return float(text)


def _duration(value: Value, *, above_zero: bool = False) -> float:
    duration_s = value.quantity(parse_duration_s, "a duration: seconds, or 10m, 1h30m")
    if above_zero and duration_s <= 0:
        raise value.error("must be longer than 0s", "leave it out for the default")
    return duration_s


# ------------------------------------------------------------------------------------ writing back


def dump_job(spec: JobSpec) -> dict[str, Any]:
    """A document that `parse_job` reads back to ``spec`` (its user is not part of it)."""
    document: dict[str, Any] = {"name": spec.name, "tenant": spec.tenant}
    document["priority"] = spec.band.name.lower()
    optional = {
        "envs": {name: text for name, text in spec.envs.items() if not name.startswith(PREFIX)},
        "workdir": spec.workdir,
        "datasets": list(spec.datasets),
        "topology": _dump_topology(spec.topology),
        "time_limit": spec.time_limit_s,
        "group": spec.group,
        "expected_duration": spec.duration_s,
    }
    document |= {field: value for field, value in optional.items() if value}
    document |= {} if spec.skew is None else {"skew": spec.skew}
    document |= {"work": spec.work} if spec.work else {}
    document |= {"image": spec.image} if spec.image else {}
    document |= {"secrets": dict(spec.secrets)} if spec.secrets else {}
    document |= {"labels": dict(spec.labels)} if spec.labels else {}
    if spec.depends_on:
        after = ({"job": job, "after": after.value} for job, after in spec.depends_on.items())
        document["depends_on"] = list(after)
    document |= {"sweep": dump_sweep(spec.sweep)} if spec.sweep else {}
    checkpoint = {"interval": spec.checkpoint.interval_s, "grace": spec.checkpoint.grace_s}
    path = {"path": spec.checkpoint.path} if spec.checkpoint.path else {}
    document["checkpoint"] = path | checkpoint
    document |= {"max_restarts": spec.max_restarts, "preemptible": spec.preemptible}
    only = spec.groups[0]
    if len(spec.groups) == 1 and only.name == DEFAULT_GROUP:
        return document | _dump_size(only, tuple(_SIZES_AT_TOP)) | _dump_work(only)
    names = tuple(_SIZES_AT_TOP.values())
    listed = [{"name": g.name} | _dump_size(g, names) | _dump_work(g) for g in spec.groups]
    return document | {"groups": listed}


def _dump_size(group: TaskGroup, names: tuple[str, ...]) -> dict[str, int]:
    sizes = (group.count, group.min_count, group.max_count)
    return {name: size for name, size in zip(names, sizes, strict=True) if size is not None}


def _dump_topology(topology: Topology) -> dict[str, str]:
    levels = {"required": topology.required, "preferred": topology.preferred}
    return {field: level.name.lower() for field, level in levels.items() if level is not None}


def _dump_work(group: TaskGroup) -> dict[str, Any]:
    resources: dict[str, Any] = {}
    if group.resources.accelerators:
        resources["accelerators"] = dump_accelerators(group.resources.accelerators)
    if group.resources.cpus:
        resources["cpus"] = group.resources.cpus
    if group.resources.memory_bytes:
        resources["memory"] = exact_bytes(group.resources.memory_bytes)
    if group.resources.gpu_memory_bytes:
        resources["gpu_memory"] = exact_bytes(group.resources.gpu_memory_bytes)
    work: dict[str, Any] = {"resources": resources} if resources else {}
    return work | ({"setup": group.setup} if group.setup else {}) | {"run": group.run}


# ------------------------------------------------------------------------- against a certain fleet


def faults_in_fleet(
    spec: JobSpec, tenants: Collection[str], models: Collection[str], where: str = ""
) -> Iterator[InvalidInput]:
    """Each name in a job that the fleet does not have: the tenant, and every GPU model."""
    if spec.tenant not in tenants:
        remedy = one_of(spec.tenant, sorted(tenants))
        message = f"unknown tenant {show(spec.tenant)}"
        yield InvalidInput(message, field="tenant", where=where, remedy=remedy)
    alone = len(spec.groups) == 1 and spec.groups[0].name == DEFAULT_GROUP
    for index, group in enumerate(spec.groups):
        for choice in group.resources.accelerators:
            if choice.model is not None and choice.model not in models:
                prefix = "" if alone else f"groups[{index}]."
                yield InvalidInput(
                    f"no region has the GPU model {show(choice.model)}",
                    field=f"{prefix}resources.accelerators",
                    where=where,
                    remedy=one_of(choice.model, sorted(models)),
                )
