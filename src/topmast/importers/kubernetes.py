"""Jobs and PyTorchJobs of Kubernetes: the command of a container is what each task runs."""

from __future__ import annotations

import re
import shlex
from typing import Any

from topmast.importers.notes import Imported, Notes, Part
from topmast.model.errors import InvalidInput
from topmast.model.files.environment import OURS
from topmast.model.files.source import JOB_LIMITS, parse_text
from topmast.model.units import show

KINDS = ("Job", "PyTorchJob")
_HOSTS = "Topmast chooses the hosts; name GPU models under accelerators"
_DATA = "put code into the image or workdir, and list what is read under datasets"
_KEPT = "what has ended stays in the queue's records"
_ACCOUNT = "tasks run as the engine says"
_JOB = {
    "completions": "a job is one gang",
    "suspend": "topmast hold JOB",
    "ttlSecondsAfterFinished": _KEPT,
    "podFailurePolicy": "write max_restarts",
    "backoffLimitPerIndex": "write max_restarts",
    "maxFailedIndexes": "write max_restarts",
    "successPolicy": "a gang succeeds if all its tasks do",
    "podReplacementPolicy": "it is so here",
    "selector": "tasks are found by their job",
    "manualSelector": "tasks are found by their job",
}
_POD = {
    "volumes": _DATA,
    "nodeSelector": _HOSTS,
    "affinity": _HOSTS,
    "tolerations": _HOSTS,
    "nodeName": _HOSTS,
    "topologySpreadConstraints": "write topology: {preferred: rack}",
    "serviceAccountName": _ACCOUNT,
    "serviceAccount": _ACCOUNT,
    "securityContext": _ACCOUNT,
    "automountServiceAccountToken": _ACCOUNT,
    "runtimeClassName": _ACCOUNT,
    "initContainers": "write setup",
    "imagePullSecrets": "hosts pull images with their own accounts",
    "priorityClassName": "write priority: high, normal or low",
    "schedulerName": "Topmast schedules",
    "hostNetwork": "the engine decides",
    "hostIPC": "the engine decides",
    "hostPID": "the engine decides",
    "dnsPolicy": "the engine decides",
    "subdomain": "tasks reach one another at MASTER_ADDR",
    "hostname": "tasks reach one another at MASTER_ADDR",
    "activeDeadlineSeconds": "write time_limit",
    "overhead": "say what a task needs",
}
_CONTAINER = {
    "volumeMounts": _DATA,
    "volumeDevices": _DATA,
    "ports": "ports are not opened",
    "livenessProbe": "a task that hangs is not noticed",
    "securityContext": _ACCOUNT,
    "readinessProbe": "a task is ready when it runs",
    "startupProbe": "a task is ready when it runs",
    "lifecycle": "a task gets SIGTERM",
    "envFrom": "list the variables under envs or secrets",
    "resizePolicy": "say what a task needs",
}
_IGNORED_POD = ("restartPolicy", "enableServiceLinks", "terminationMessagePath")
_IGNORED_CONTAINER = (
    "name",
    "imagePullPolicy",
    "tty",
    "stdin",
    "terminationMessagePath",
    "terminationMessagePolicy",
)
_METADATA = {"namespace": "--tenant says for which tenant it is", "annotations": "use labels"}
_GPUS = ("nvidia.com/gpu", "amd.com/gpu")
_CPU = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m?)")
_MEMORY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(|[kMGTPE]i?|Ki|m)")
_ENV = re.compile(r"(?!TOPMAST_)[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


def import_kubernetes(data: bytes, where: str) -> Imported:
    """The job of a manifest. Raises InvalidInput for what is no such object."""
    notes = Notes()
    root = Part(parse_text(data, where, JOB_LIMITS), "", notes)
    kind = root.get("kind")
    if kind is None or kind.text not in KINDS:
        found = f"is {show(kind.text)}" if kind else "is missing"
        remedy = f"one of: {', '.join(KINDS)}; each object in a file of its own"
        place = f"{where}:{kind.line}" if kind else where
        raise InvalidInput(found, field="kind", where=place, remedy=remedy)
    root.get("apiVersion"), root.get("status")
    job = _metadata(root.get("metadata"), notes)
    spec = root.get("spec")
    if spec is None:
        raise InvalidInput("is missing", field="spec", where=where)
    job |= _job(spec) if kind.text == "Job" else _pytorch(spec)
    root.leave({})
    return notes.imported(job)


def _metadata(part: Part | None, notes: Notes) -> dict[str, Any]:
    job: dict[str, Any] = {}
    if part is None:
        return job
    name = part.get("name") or part.get("generateName")
    part.get("generateName")
    if name:
        job["name"] = notes.name(name.line, "metadata.name", name.text.rstrip("-"))
    labels = part.get("labels")
    if labels and labels.is_mapping:
        job["labels"] = {key: str(value) for key, value in labels.plain.items()}
    part.leave(_METADATA, ignored=("creationTimestamp", "uid", "resourceVersion", "generation"))
    return job


def _job(spec: Part) -> dict[str, Any]:
    parallel, completions = spec.get("parallelism"), spec.get("completions")
    mode = spec.get("completionMode")
    tasks = parallel.plain if parallel else 1
    job: dict[str, Any] = {"num_nodes": tasks if tasks != 1 else None}
    if completions and completions.plain != tasks:
        completions.note(
            f"a job is one gang of {tasks} tasks, not {completions.plain} runs",
            "launch a job for each run",
        )
    elif parallel and tasks != 1:
        parallel.note("all tasks start together; if one fails, all are started again")
    job |= _policy(spec)
    prefix = 'export JOB_COMPLETION_INDEX="$RANK"\n' if mode and mode.text == "Indexed" else ""
    template = spec.get("template")
    if template:
        job |= _pod(template, prefix)
    spec.leave(_JOB)
    return job


def _pytorch(spec: Part) -> dict[str, Any]:
    job: dict[str, Any] = {}
    policy = spec.get("runPolicy")
    if policy:
        job |= _policy(policy)
        policy.leave(
            {
                "cleanPodPolicy": "tasks of an attempt end together",
                "ttlSecondsAfterFinished": _KEPT,
                "schedulingPolicy": "tasks start together, or none does",
                "suspend": "topmast hold JOB",
                "managedBy": "Topmast manages it",
            }
        )
    replicas = spec.get("pytorchReplicaSpecs")
    groups, parts = [], []
    for role in replicas.keys() if replicas else ():
        part = replicas.get(role) if replicas else None
        if part is None:
            continue
        count, template = part.get("replicas"), part.get("template")
        group = {"name": role.lower(), "count": count.plain if count else 1}
        if not isinstance(group["count"], int):
            raise InvalidInput("is not a number", field=f"{part.field}.replicas")
        groups.append(group | (_pod(template, "") if template else {}))
        parts.append(part)
        part.leave({}, ignored=("restartPolicy",))
    elastic = spec.get("elasticPolicy")
    job |= _one_group(groups, parts, elastic)
    spec.leave({"nprocPerNode": "torchrun --nproc-per-node=$TOPMAST_GPUS_PER_TASK"})
    return job


def _one_group(
    groups: list[dict[str, Any]], parts: list[Part], elastic: Part | None
) -> dict[str, Any]:
    """One kind of task if all roles are alike, else a group for each."""
    alike = {
        repr({k: v for k, v in group.items() if k not in ("name", "count")}) for group in groups
    }
    if len(alike) > 1:
        if elastic:
            elastic.note("is left out", "write min_count and max_count in one of the groups")
        return _unlike(groups, parts)
    tasks = sum(int(group["count"]) for group in groups)
    size: dict[str, Any] = {"num_nodes": tasks if tasks != 1 else None}
    for name, field in (("minReplicas", "min_nodes"), ("maxReplicas", "max_nodes")):
        limit = elastic.get(name) if elastic else None
        if limit:
            size[field] = limit.plain
    if elastic:
        elastic.leave({"rdzvBackend": "torchrun meets at MASTER_ADDR:MASTER_PORT"})
    first = groups[0] if groups else {}
    return {**{k: v for k, v in first.items() if k not in ("name", "count")}, **size}


def _unlike(groups: list[dict[str, Any]], parts: list[Part]) -> dict[str, Any]:
    """A group for each role. What only a whole job can have is of the first role that has it."""
    job: dict[str, Any] = {"envs": _envs(groups, parts), "secrets": {}, "checkpoint": {}}
    listed = [_of_the_job(group) for group in groups]
    for place in dict.fromkeys(place for has in listed for place in has):
        field, name = place
        value = next(has[place] for has in listed if place in has)
        if name:
            job[field][name] = value
        else:
            job[field] = value
        for group, part, has in zip(groups, parts, listed, strict=True):
            own, called = has.get(place), f"{field} {name}".strip()
            if own != value:
                found = f"has {called} {show(own)}" if own else f"has no {called}"
                remedy = "the groups of a job share it"
                part.note(f"group {group['name']} {found}, and gets {show(value)}", remedy)
    shared = (*job, "image")
    own = [{k: v for k, v in group.items() if v and k not in shared} for group in groups]
    return {**job, "groups": own}


def _of_the_job(group: dict[str, Any]) -> dict[tuple[str, str], Any]:
    """What a group of a job file cannot have by itself, by field and name."""
    found = {("image", ""): group["image"]} if group.get("image") else {}
    return found | {
        (field, name): value
        for field in ("secrets", "checkpoint")
        for name, value in group.get(field, {}).items()
    }


def _envs(groups: list[dict[str, Any]], parts: list[Part]) -> dict[str, str]:
    """The variables that all groups have alike; the script of a group sets what it has alone."""
    of_each = [group.get("envs", {}) for group in groups]
    same = {k: v for k, v in of_each[0].items() if all(envs.get(k) == v for envs in of_each)}
    for group, part, envs in zip(groups, parts, of_each, strict=True):
        own = {name: value for name, value in envs.items() if name not in same}
        run = group.get("run")
        lines = []
        for name, value in own.items():
            if run and _ENV.fullmatch(name) and name not in OURS:
                lines.append(f"export {name}={shlex.quote(value)}\n")
            else:
                part.note(f"envs {name} of group {group['name']} is left out", "set it in its run")
        group["run"] = "".join(lines) + run if run else None
    return same


def _policy(part: Part) -> dict[str, Any]:
    restarts, limit = part.get("backoffLimit"), part.get("activeDeadlineSeconds")
    return {
        "max_restarts": restarts.plain if restarts else None,
        "time_limit": limit.plain if limit else None,
    }


def _pod(template: Part, prefix: str) -> dict[str, Any]:
    """What the pods of a template run, and what they need."""
    spec = template.get("spec")
    template.leave({}, ignored=("metadata",))
    if spec is None:
        return {}
    grace, containers = spec.get("terminationGracePeriodSeconds"), spec.get("containers")
    listed = containers.items() if containers else []
    for other in listed[1:]:
        other.note("a second container is left out", "write a group of its own")
    job = _container(listed[0], prefix) if listed else {}
    if grace:
        job["checkpoint"] = {"grace": grace.plain}
    spec.leave(_POD, _IGNORED_POD)
    return job


def _container(part: Part, prefix: str) -> dict[str, Any]:
    image, folder = part.get("image"), part.get("workingDir")
    command, args = part.get("command"), part.get("args")
    words = [word.text for one in (command, args) if one for word in one.items()]
    if command is None:
        part.note(
            "the command of the image is not known here", "write command in the manifest, or run"
        )
    run = prefix + (f"cd {shlex.quote(folder.text)}\n" if folder else "")
    if words:
        run += " ".join(_quoted(word) for word in words) + "\n"
    job: dict[str, Any] = {"image": image.text if image else None}
    job["run"] = run if words else None
    job |= _variables(part.get("env"))
    resources = part.get("resources")
    if resources:
        job["resources"] = _resources(resources)
    part.leave(_CONTAINER, _IGNORED_CONTAINER)
    return job


def _quoted(word: str) -> str:
    """A word for a shell, which replaces what Kubernetes would replace.

    A reference to what is no variable stays as it is, and `$$` stands for `$`.
    """
    if not _REFERENCE.search(word):
        return shlex.quote(word)
    parts, end = [], 0
    for match in _REFERENCE.finditer(word):
        before, name = word[end : match.start()], match[1]
        replaced = f'"${{{name}-\\$({name})}}"' if name else "'$'"
        parts += [shlex.quote(before) if before else "", replaced]
        end = match.end()
    return "".join(parts) + (shlex.quote(word[end:]) if word[end:] else "")


def _variables(part: Part | None) -> dict[str, Any]:
    envs, secrets = {}, {}
    for item in part.items() if part else ():
        name, value, source = item.get("name"), item.get("value"), item.get("valueFrom")
        if name is None:
            continue
        secret = source.get("secretKeyRef") if source else None
        if secret:
            of, key = secret.get("name"), secret.get("key")
            secrets[name.text] = f"kubernetes:{of.text if of else ''}/{key.text if key else ''}"
        elif source:
            remedy = "TOPMAST_HOST, TOPMAST_JOB_ID and others are set: see the job file"
            source.note(f"{name.text} is left out", remedy)
        else:
            envs[name.text] = value.text if value else ""
    return {"envs": envs, "secrets": secrets}


def _resources(part: Part) -> dict[str, Any]:
    """What a task needs: limits, or else requests."""
    found: dict[str, Any] = {}
    for field in ("requests", "limits"):
        amounts = part.get(field)
        for name in amounts.keys() if amounts else ():
            amount = amounts.get(name) if amounts else None
            if amount is None:
                continue
            cpus, memory = _CPU.fullmatch(amount.text), _MEMORY.fullmatch(amount.text)
            if name in _GPUS:
                found["accelerators"] = amount.plain
            elif name == "cpu" and cpus:
                found["cpus"] = float(cpus[1]) / (1000 if cpus[2] else 1)
            elif name == "memory" and memory and memory[2] != "m":
                unit = f"{memory[2]}B" if memory[2] else "B"
                found["memory"] = f"{memory[1]}{unit}"
            else:
                amount.note("is left out", "only GPUs, cpu and memory are known")
    part.leave({"claims": "only GPUs, cpu and memory are known"})
    return found
