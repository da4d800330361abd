"""Files and fields of other schedulers, mainly SkyPilot, and what to write here instead."""

from __future__ import annotations

import re
from collections.abc import Sequence

from topmast.model.errors import InvalidInput
from topmast.model.files.source import Node

_CHOSEN = "Topmast chooses the region and the cluster (leave it out)"
_HARDWARE = "a fleet has the hosts it has (say what a task needs with accelerators, cpus, memory)"
_IMAGE = "unknown field (write image: NAME at the top of the file, without docker:)"
_DISK = "disks are not requested (leave it out)"
_PREEMPTIBLE = "there are no spot machines (write preemptible: true at the top of the file)"
_ALTERNATIVES = "alternatives are a list in order of preference (accelerators: [H100:8, A100:8])"
_DATA = "storage is not mounted (put the code in workdir, and list what it reads under datasets)"
_TAGS = "unknown field (write labels: {team: vision} at the top of the file)"
_NOTIFYING = "notifications are not supported (watch the job with: topmast wait)"
_RESTARTS = "unknown field (write max_restarts)"
_SERVING = "serving is not supported: a job runs to its end (leave it out)"

TOP_FIELDS = {
    "cloud": _CHOSEN,
    "region": _CHOSEN,
    "zone": _CHOSEN,
    "infra": _CHOSEN,
    "cluster": _CHOSEN,
    "notify": _NOTIFYING,
    "notifications": _NOTIFYING,
    "mail": _NOTIFYING,
    "email": _NOTIFYING,
    "retries": _RESTARTS,
    "max_retries": _RESTARTS,
    "restarts": _RESTARTS,
    "dependency": "unknown field (write depends_on: [j7])",
    "dependencies": "unknown field (write depends_on: [j7])",
    "matrix": "belongs to a sweep (sweep: {matrix: {LR: [0.1, 0.2]}})",
    "array": "unknown field (write sweep: {range: {variable: INDEX, from: 0, to: 99}})",
    "min_count": "belongs to a group (write min_nodes)",
    "max_count": "belongs to a group (write max_nodes)",
    "min_replicas": "unknown field (write min_nodes)",
    "max_replicas": "unknown field (write max_nodes)",
    "file_mounts": _DATA,
    "storage_mounts": _DATA,
    "volumes": _DATA,
    "service": _SERVING,
    "pool": _SERVING,
    "config": "a job carries no configuration of the system (leave it out)",
    "experimental": "a job carries no configuration of the system (leave it out)",
    "event_callback": "callbacks are not supported (watch the job with: topmast wait)",
    "inputs": _DATA,
    "outputs": _DATA,
    "image_id": _IMAGE,
    "docker": _IMAGE,
    "tags": _TAGS,
    "use_spot": _PREEMPTIBLE,
    "accelerators": "belongs to resources (resources: {accelerators: H100:8})",
    "cpus": "belongs to resources (resources: {cpus: 32})",
    "memory": "belongs to resources (resources: {memory: 256})",
    "gpus": "unknown field (write resources: {accelerators: 8})",
    "command": "unknown field (write run)",
    "cmd": "unknown field (write run)",
    "env": "unknown field (write envs)",
    "container": _IMAGE,
    "nodes": "unknown field (write num_nodes)",
    "queue": "unknown field (write tenant, priority)",
    "timeout": "unknown field (write time_limit)",
}
"""At the top of a job file."""

RESOURCE_FIELDS = {
    "cloud": _CHOSEN,
    "region": _CHOSEN,
    "zone": _CHOSEN,
    "infra": _CHOSEN,
    "instance_type": _HARDWARE,
    "accelerator_args": _HARDWARE,
    "use_spot": _PREEMPTIBLE,
    "spot_recovery": "jobs are always recovered (see max_restarts at the top of the file)",
    "job_recovery": "jobs are always recovered (see max_restarts at the top of the file)",
    "disk_size": _DISK,
    "disk_tier": _DISK,
    "local_disk": _DISK,
    "network_tier": "say how near the tasks must be instead (topology: {preferred: rack})",
    "image_id": _IMAGE,
    "image": "belongs to the whole job (move image to the top of the file)",
    "ports": "ports are not opened (tasks of a job reach one another through TOPMAST_HOSTS)",
    "labels": _TAGS,
    "any_of": _ALTERNATIVES,
    "ordered": _ALTERNATIVES,
    "autostop": "a job holds its hosts until it ends (see time_limit at the top of the file)",
    "priority": "belongs to the whole job (move priority to the top of the file)",
    "num_nodes": "belongs to the whole job (move num_nodes to the top of the file)",
    "gpus": "unknown field (write accelerators: 8)",
    "gpu": "unknown field (write accelerators: H100:8)",
    "mem": "unknown field (write memory)",
    "cpu": "unknown field (write cpus)",
}
"""In ``resources``."""

_SCRIPTS = {
    b"#SBATCH": "a Slurm batch script",
    b"#PBS": "a PBS batch script",
    b"#BSUB": "an LSF batch script",
}
_DIRECTIVE = re.compile(rb"^(#SBATCH|#PBS|#BSUB)\b", re.MULTILINE)

_SKYPILOT = {
    "file_mounts", "storage_mounts", "service", "config", "pool", "resources.cloud",
    "resources.infra", "resources.region", "resources.zone", "resources.use_spot",
    "resources.disk_size", "resources.image_id", "resources.ports", "resources.any_of",
    "resources.ordered", "resources.instance_type",
}  # fmt: skip


def refuse_scripts(data: bytes, where: str) -> None:
    """Refuse a file that is a script for another scheduler, or any script."""
    found = _DIRECTIVE.search(data)
    if found:
        line = data.count(b"\n", 0, found.start()) + 1
        directive = found[1].decode()
        remedy = (
            "write a job file, or let topmast import sbatch make one of it"
            if directive == "#SBATCH"
            else "write a job file: its commands under run, "
            f"what its {directive} lines ask for under num_nodes and resources"
        )
        raise InvalidInput(
            f"this looks like {_SCRIPTS[found[1]]}",
            where=f"{where}:{line}",
            remedy=remedy,
        )
    if data.startswith(b"#!"):
        remedy = "write a job file, such as run: bash SCRIPT"
        raise InvalidInput("this looks like a script", where=f"{where}:1", remedy=remedy)


def refuse_objects(node: Node, where: str) -> None:
    """Refuse a Kubernetes object."""
    if "apiVersion" not in node.entries:
        return
    line = node.key_lines.get("apiVersion", 0)
    raise InvalidInput(
        "this looks like a Kubernetes object",
        where=f"{where}:{line}" if line else where,
        remedy="write a job file, or let topmast import kubernetes make one of it",
    )


def skypilot_hint(errors: Sequence[InvalidInput], where: str) -> tuple[InvalidInput, ...]:
    """One more line for a file with several fields that only SkyPilot knows."""
    known = [error for error in errors if error.field in _SKYPILOT]
    if len(known) < 2:
        return ()
    message = "this looks like a SkyPilot task, and most of it runs here"
    remedy = "change the fields named above, or let topmast import skypilot do it"
    return (InvalidInput(message, where=where, remedy=remedy),)
