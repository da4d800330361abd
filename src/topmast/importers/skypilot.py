"""SkyPilot's task files: most fields are those of a job file."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

from topmast.importers.notes import Imported, Notes, Part
from topmast.model.files.source import JOB_LIMITS, documents_in, parse_text

_CHOSEN = "Topmast chooses where it runs"
_DISK = "disks are not requested"
_TOP = {
    "file_mounts": "put code into workdir, and list what is read under datasets",
    "storage_mounts": "list what is read under datasets",
    "volumes": "list what is read under datasets",
    "service": "jobs run to their end; serving is not supported",
    "pool": "jobs run to their end; serving is not supported",
    "config": "it is about the system, not the job",
    "experimental": "it is about the system, not the job",
    "event_callback": "topmast notify add sends webhooks",
    "inputs": "list what is read under datasets",
    "outputs": "write to TOPMAST_CHECKPOINT_DIR, or to a store of your own",
}
_RESOURCES = {
    "cloud": _CHOSEN, "region": _CHOSEN, "zone": _CHOSEN, "infra": _CHOSEN,
    "instance_type": "say what a task needs: accelerators, cpus, memory",
    "accelerator_args": "say what a task needs: accelerators, cpus, memory",
    "disk_size": _DISK, "disk_tier": _DISK, "local_disk": _DISK,
    "network_tier": "say how near the tasks must be: topology: {preferred: rack}",
    "ports": "ports are not opened; tasks reach one another at TOPMAST_HOSTS",
    "autostop": "a job holds its hosts until it ends",
    "priority": "write priority: high, normal or low at the top",
}  # fmt: skip
_HEADER = frozenset({"name", "execution"})
"""The fields of the first document of a pipeline, which is no task."""
_OF_HEADER = {"name": "each job has a name of its own; give them a label to find them together"}
_ALIASES = """\
# As SkyPilot runs it: what a line returns does not end the script.
set +eu +o pipefail
export SKYPILOT_NODE_RANK="$RANK" SKYPILOT_NUM_NODES="$WORLD_SIZE"
export SKYPILOT_NODE_IPS="${TOPMAST_HOSTS//,/$'\\n'}" SKYPILOT_TASK_ID="$TOPMAST_JOB_ID"
export SKYPILOT_NUM_GPUS_PER_NODE="$TOPMAST_GPUS_PER_TASK"
"""


def import_skypilot(data: bytes, where: str) -> Imported:
    """The job of a task file, or the jobs of a pipeline. Raises InvalidInput."""
    parts = [Part(parse_text(text, where, JOB_LIMITS), "", Notes()) for text in documents_in(data)]
    header = parts.pop(0) if len(parts) > 1 and set(parts[0].keys()) <= _HEADER else None
    tasks = [_task(part) for part in parts]
    if len(tasks) > 1:
        tasks = _named_apart(tasks)
        _chain(tasks, header)
    found = [part.notes.imported(task) for part, task in zip(parts, tasks, strict=True)]
    notes = [note for one in found for note in one.notes]
    if header is not None:
        header.leave(_OF_HEADER)
        notes = [*header.notes.imported({}).notes, *notes]
    return Imported(found[0].job, tuple(notes), tuple(one.job for one in found[1:]))


def _chain(tasks: list[dict[str, Any]], header: Part | None) -> None:
    """Let each task of a pipeline start when the one before it has succeeded."""
    execution = header.get("execution") if header else None
    if execution and execution.text == "parallel":
        execution.note("each starts as soon as it has a place", "they do not wait for one another")
        return
    for before, task in pairwise(tasks):
        task["depends_on"] = [before["name"]]


def _named_apart(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same with a name for each that no other has."""
    taken = Counter(task["name"] for task in tasks)
    return [
        task if taken[task["name"]] == 1 and task["name"] else {**task, "name": _name(task, number)}
        for number, task in enumerate(tasks, 1)
    ]


def _name(task: dict[str, Any], number: int) -> str:
    return f"{task['name'] or 'task'}-{number}"


def _task(root: Part) -> dict[str, Any]:
    """The job of one task."""
    notes = root.notes
    name, workdir, nodes = root.get("name"), root.get("workdir"), root.get("num_nodes")
    job: dict[str, Any] = {"name": notes.name(name.line, "name", name.text) if name else None}
    job["num_nodes"] = nodes.plain if nodes else None
    resources = root.get("resources")
    if resources:
        job |= _resources(resources)
    job["envs"] = _envs(root.get("envs"))
    job["secrets"] = _secrets(root.get("secrets"))
    if workdir and workdir.is_mapping:
        workdir.note("a repository is not fetched", "check it out in setup, or name a folder")
    elif workdir:
        job["workdir"] = workdir.text
    for field in ("setup", "run"):
        script = root.get(field)
        if script:
            job[field] = _ALIASES + script.text
    root.leave(_TOP)
    return job


def _resources(part: Part) -> dict[str, Any]:
    """What a task needs, and what is said there about the job."""
    job: dict[str, Any] = {}
    own: dict[str, Any] = {}
    accelerators = _accelerators(part)
    if accelerators:
        own["accelerators"] = accelerators if len(accelerators) > 1 else accelerators[0]
    for field in ("cpus", "memory"):
        amount = part.get(field)
        if amount and amount.text.endswith("x"):
            amount.note("a multiple of the CPUs is not known here", "write GB, such as 64")
        elif amount:
            own[field] = amount.plain
    spot, image, labels = part.get("use_spot"), part.get("image_id"), part.get("labels")
    if spot and spot.plain is True:
        spot.note("there are no spot machines", "jobs may be preempted unless preemptible: false")
    if image and image.text.startswith("docker:"):
        job["image"] = image.text.removeprefix("docker:")
    elif image:
        image.note("images of machines are not known here", "image names a container image")
    if labels and labels.is_mapping:
        job["labels"] = {key: str(value) for key, value in labels.plain.items()}
    for field in ("job_recovery", "spot_recovery"):
        recovery = part.get(field)
        restarts = recovery.get("max_restarts_on_errors") if recovery else None
        if recovery and restarts:
            job["max_restarts"] = restarts.plain
        elif recovery:
            recovery.note("jobs are always recovered", "max_restarts limits failures of their own")
    part.leave(_RESOURCES)
    return {**job, "resources": own}


def _accelerators(part: Part) -> list[Any]:
    """The choices of GPUs, best first."""
    found: list[Any] = []
    given = part.get("accelerators")
    if given and given.is_mapping:
        found += [f"{model}:{count or 1}" for model, count in given.plain.items()]
    elif given and given.is_list:
        found += given.plain
    elif given:
        found.append(given.plain)
    for field in ("any_of", "ordered"):
        choices = part.get(field)
        for choice in choices.items() if choices else ():
            found += _accelerators(choice)
            choice.leave(_RESOURCES, ignored=("use_spot",))
    return list(dict.fromkeys(found))


def _envs(part: Part | None) -> dict[str, Any]:
    """The variables that have values."""
    found = {}
    for name in part.keys() if part else ():
        value = part.get(name) if part else None
        if value is None and part:
            Part(part.node.entries[name], f"envs.{name}", part.notes).note(
                "has no value", f"launch the job with --env {name}=..."
            )
        elif value:
            found[name] = value.text
    return found


def _secrets(part: Part | None) -> dict[str, Any]:
    """References in place of secrets; values are not taken over."""
    found = {}
    for name in part.keys() if part else ():
        line = Part(part.node.entries[name], f"secrets.{name}", part.notes) if part else None
        if line is not None:
            line.note(
                "its value is not kept here",
                f"it is read from {name} on the hosts, env:{name}; engine local gives tasks no "
                "such variables, so the job waits for another: for local, write file:/PATH",
            )
        found[name] = f"env:{name}"
    return found
