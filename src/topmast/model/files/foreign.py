"""Fields that people know from elsewhere, chiefly SkyPilot, and what to write here instead."""

from __future__ import annotations

_CHOSEN = "Topmast chooses the region and the cluster (leave it out)"
_HARDWARE = "a fleet has the hosts it has (say what a task needs with accelerators, cpus, memory)"
_IMAGE = "images are not supported (prepare the environment in setup)"
_DISK = "disks are not requested (leave it out)"
_PREEMPTIBLE = "there are no spot machines (write preemptible: true at the top of the file)"
_ALTERNATIVES = "alternatives are a list in order of preference (accelerators: [H100:8, A100:8])"
_DATA = "storage is not mounted (put the code in workdir, and list what it reads under datasets)"
_TAGS = "labels are not supported (tag recurring runs with group)"
_SERVING = "serving is not supported: a job runs to its end (leave it out)"

TOP_FIELDS = {
    "depends_on": "not yet supported (submit the second job when the first has ended)",
    "sweep": "not yet supported (submit a job for each setting)",
    "min_count": "belongs to a group (write min_nodes)",
    "max_count": "belongs to a group (write max_nodes)",
    "min_replicas": "unknown field (write min_nodes)",
    "max_replicas": "unknown field (write max_nodes)",
    "file_mounts": _DATA,
    "storage_mounts": _DATA,
    "volumes": _DATA,
    "secrets": "secrets are not supported (let the script read a file that only its hosts have)",
    "service": _SERVING,
    "pool": _SERVING,
    "config": "a job carries no configuration of the system (leave it out)",
    "experimental": "a job carries no configuration of the system (leave it out)",
    "event_callback": "callbacks are not supported (watch the job with: topmast wait)",
    "inputs": _DATA,
    "outputs": _DATA,
    "image_id": _IMAGE,
    "docker": _IMAGE,
    "labels": _TAGS,
    "tags": _TAGS,
    "use_spot": _PREEMPTIBLE,
    "accelerators": "belongs to resources (resources: {accelerators: H100:8})",
    "cpus": "belongs to resources (resources: {cpus: 32})",
    "memory": "belongs to resources (resources: {memory: 256})",
    "gpus": "unknown field (write resources: {accelerators: 8})",
    "command": "unknown field (write run)",
    "cmd": "unknown field (write run)",
    "env": "unknown field (write envs)",
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
