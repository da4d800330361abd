"""Batch scripts of Slurm: `#SBATCH` lines become fields, the rest is what each task runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from topmast.importers.interpreter import as_the_first_line_says, body_of, handed_to
from topmast.importers.notes import Imported, Notes
from topmast.importers.sbatch_options import KNOWN, LEFT, LONG, TAKES_NO_VALUE
from topmast.importers.srun import without_srun
from topmast.model.errors import InvalidInput
from topmast.model.files.fields import nearest
from topmast.model.files.jobfile import SCRIPT_LIMIT_BYTES
from topmast.model.files.source import is_binary
from topmast.model.files.sweeps import MAX_JOBS

_NUMBER = re.compile("[0-9]{1,9}")
_MEMORY = re.compile(r"([0-9]{1,15})([KMGT]?)B?", re.IGNORECASE)
_GRES = re.compile(r"(?:gres/)?gpu(?::([A-Za-z][\w.-]*))?(?:[:=]([0-9]{1,9}))?(?:\(.*\))?")
_GPUS = re.compile(r"(?:([A-Za-z][\w.-]*):)?([0-9]{1,9})")
_SIGNAL = re.compile(r"(?:[BR]*:)?(?:SIG)?(\w+)(?:@([0-9]{1,9}))?")
_COMMENT = re.compile(r"\s#.*")
_ALIASES = """\
# As sbatch runs it: what a line returns does not end the script, and Slurm's variables are there.
set +eu +o pipefail
export SLURM_PROCID="$RANK" SLURM_NTASKS="$WORLD_SIZE" SLURM_LOCALID="$LOCAL_RANK"
export SLURM_JOB_ID="${TOPMAST_JOB_ID#j}" SLURM_JOB_NAME=%s
export SLURM_JOB_NODELIST="$TOPMAST_HOSTS" SLURM_NODELIST="$TOPMAST_HOSTS" SLURM_NNODES=%d
export SLURM_NODEID=$((RANK / %d)) SLURM_GPUS_ON_NODE=%d SLURM_CPUS_PER_TASK=%d
export SLURM_SUBMIT_DIR="$PWD" SLURM_RESTART_COUNT=$((TOPMAST_EPOCH - 1))
"""


_ARRAY = re.compile(r"([^%]+)(?:%([1-9][0-9]{0,8}))?")
_INDICES = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")
_INDEX = "SLURM_ARRAY_TASK_ID"
_OF_ARRAY = """\
export SLURM_ARRAY_JOB_ID="${TOPMAST_SWEEP#s}" SLURM_ARRAY_TASK_COUNT="$TOPMAST_SWEEP_SIZE"
export SLURM_ARRAY_TASK_MIN=%d SLURM_ARRAY_TASK_MAX=%d
"""
_AFTER = {"after": "started", "afterany": "any", "afterok": "ok"}
"""Slurm's words for what a job waits for, and those of a job file."""


class _Option(Struct, frozen=True):
    """An option of a ``#SBATCH`` line."""

    line: int
    name: str
    value: str


class _Size(Struct, frozen=True):
    """How many tasks a job has, and how they lie on nodes."""

    nodes: int
    most_nodes: int
    tasks: int
    per_node: int


class _Array(Struct, frozen=True):
    """A job array: its tasks are the jobs of a sweep."""

    sweep: dict[str, Any]
    bounds: tuple[int, int]
    """The least and the largest index."""


def import_sbatch(data: bytes, where: str) -> Imported:
    """The job of a batch script. Raises InvalidInput for what is none."""
    if is_binary(data):
        raise InvalidInput("this is a binary file, and no script", where=where)
    if len(data) > SCRIPT_LIMIT_BYTES:
        raise InvalidInput(f"is larger than {SCRIPT_LIMIT_BYTES:,} bytes", where=where)
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InvalidInput("this is not UTF-8 text", where=where) from None
    _check_script(lines, where)
    notes = Notes()
    options = {option.name: option for option in _options(lines, notes)}
    size = _size(options, notes)
    name = options.get("job-name")
    job: dict[str, Any] = {"name": notes.name(name.line, "name", name.value) if name else None}
    job |= _sizes(size)
    gpus = _gpus(options, size, notes)
    job["resources"] = {"accelerators": gpus[1], **_cpus_and_memory(options, size, gpus[0], notes)}
    job |= _rest(options, notes)
    for option in options.values():
        if option.name in LEFT:
            notes.add(option.line, f"--{option.name}", "is left out", LEFT[option.name])
    array = _array(options, notes)
    if array is not None:
        job["sweep"] = array.sweep
    _dependency(options, notes)
    job["run"] = _script(lines, options, size, gpus[0], array, where, notes)
    job["resources"] = {field: value for field, value in job["resources"].items() if value}
    return notes.imported(job)


def _check_script(lines: list[str], where: str) -> None:
    """Raises InvalidInput where nothing is to be run, or nothing says that it is a script."""
    if not any(line.strip() for line in lines):
        raise InvalidInput("the script is empty", where=where)
    if any("\0" in line for line in lines):
        raise InvalidInput("this is no text: it has a NUL character", where=where)
    if not lines[0].startswith("#!") and not any(line.startswith("#SBATCH") for line in lines):
        raise InvalidInput(
            "this does not look like a batch script", where=where,
            remedy="its first line is #! and a shell: #!/bin/bash",
        )  # fmt: skip
    if all(line.startswith("#") or not line.strip() for line in lines):
        wrapped = any(line.startswith("#SBATCH") and "--wrap" in line for line in lines)
        if not wrapped:
            raise InvalidInput(
                "the script has no command", where=where, remedy="write what it runs"
            )


def _options(lines: list[str], notes: Notes) -> Iterator[_Option]:
    """The options, as sbatch finds them: up to the first line that is a command."""
    for number, line in enumerate(lines, 1):
        if not line.startswith("#"):
            if line.strip():
                return
            continue
        if not line.startswith("#SBATCH"):
            continue
        try:
            words = shlex.split(_COMMENT.sub("", line.removeprefix("#SBATCH")))
        except ValueError:
            notes.add(number, "#SBATCH", "its quotes do not match", "the line is left out")
            continue
        yield from _options_in(words, number, notes)


def _options_in(words: list[str], number: int, notes: Notes) -> Iterator[_Option]:
    """The options of one line: ``--name=value``, ``--name value``, ``-n value`` or ``-nvalue``."""
    left = list(words)
    while left:
        word = left.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if word.startswith("-") and not word.startswith("--"):
            name, value = LONG.get(word[1:2], word[:2]), word[2:].removeprefix("=")
            equals = value
        if not word.startswith("-") or name not in KNOWN:
            near = nearest(name, KNOWN) if word.startswith("-") else ""
            notes.add(number, word.split("=")[0], "is not known here and is left out", near)
            continue
        if not equals and name not in TAKES_NO_VALUE and left:
            value = left.pop(0)
        yield _Option(number, name, value)


def _whole(options: dict[str, _Option], name: str, notes: Notes) -> int | None:
    """A number, if it is given as one."""
    option = options.get(name)
    if option is None:
        return None
    if not _NUMBER.fullmatch(option.value):
        notes.add(option.line, f"--{name}", f"{option.value!r} is not a number", "it is left out")
        return None
    return int(option.value) or None


def _size(options: dict[str, _Option], notes: Notes) -> _Size:
    """The tasks of a script: with srun one for each of Slurm's tasks."""
    least, most = 1, 1
    nodes = options.get("nodes")
    if nodes is not None:
        ends = nodes.value.split("-")
        if len(ends) <= 2 and all(_NUMBER.fullmatch(end) and int(end) for end in ends):
            least, most = int(ends[0]), int(ends[-1])
        else:
            notes.add(nodes.line, "--nodes", f"{nodes.value!r} is not understood", "1 is taken")
    tasks, per_node = (_whole(options, name, notes) for name in ("ntasks", "ntasks-per-node"))
    if tasks and nodes is None and per_node:
        least = most = -(-tasks // per_node)
    per_node = per_node or (-(-tasks // least) if tasks else 1)
    return _Size(least, max(least, most), tasks or least * per_node, per_node)


def _sizes(size: _Size) -> dict[str, Any]:
    """The number of tasks, which may be a range of nodes."""
    if size.most_nodes > size.nodes:
        return {"min_nodes": size.tasks, "max_nodes": size.most_nodes * size.per_node}
    return {"num_nodes": size.tasks if size.tasks > 1 else None}


def _gpus(options: dict[str, _Option], size: _Size, notes: Notes) -> tuple[float, Any]:
    """The GPUs of a task: how many, and as a job file says it."""
    of_node = 1.0 / size.per_node
    ways = (
        ("gpus-per-task", 1.0), ("gres", of_node), ("gpus-per-node", of_node),
        ("gpus", 1.0 / size.tasks), ("ntasks-per-gpu", 0.0),
    )  # fmt: skip
    for name, part in ways:
        option = options.get(name)
        if option is None:
            continue
        model, count = "", 0
        for text in option.value.split(","):
            found = (_GRES if name == "gres" else _GPUS).fullmatch(text.strip())
            if found and not part and int(found[2]):
                count, part = 1, 1.0 / int(found[2])
            elif found and part:
                model, count = model or found[1] or "", count + int(found[2] or 1)
            else:
                notes.add(option.line, f"--{name}", f"{text!r} is left out", "only GPUs are known")
        if not count:
            continue
        gpus = count * part
        if name in ("gres", "gpus-per-node") and gpus < 1:
            remedy = "in Slurm each of them sees all GPUs of its node"
            text = f"the {size.per_node} tasks of a node share its GPUs"
            notes.add(option.line, f"--{name}", f"{text}: {gpus:g} each", remedy)
        if gpus > 1 and gpus % 1:
            notes.add(
                option.line, f"--{name}", f"{gpus:g} GPUs a task", f"{int(gpus) + 1} are taken"
            )
            gpus = int(gpus) + 1
        if model:
            remedy = "the fleet may call it otherwise: see topmast gpus"
            notes.add(option.line, f"--{name}", f"the GPU model is {model}", remedy)
        shown = f"{gpus:.3f}".rstrip("0").rstrip(".")
        plain = int(gpus) if gpus % 1 == 0 else float(shown)
        return gpus, f"{model}:{shown}" if model else plain
    return 0.0, None


def _cpus_and_memory(
    options: dict[str, _Option], size: _Size, gpus: float, notes: Notes
) -> dict[str, Any]:
    """The CPUs and the memory of a task."""
    cpus = _whole(options, "cpus-per-task", notes)
    per_gpu = _whole(options, "cpus-per-gpu", notes)
    if cpus is None and per_gpu and gpus:
        cpus = max(1, round(per_gpu * gpus))
    for name, factor in (
        ("mem", 1.0 / size.per_node), ("mem-per-cpu", float(cpus or 1)), ("mem-per-gpu", gpus),
    ):  # fmt: skip
        option = options.get(name)
        if option is None:
            continue
        found = _MEMORY.fullmatch(option.value)
        if found is None:
            notes.add(option.line, f"--{name}", f"{option.value!r} is not an amount of memory")
        elif int(found[1]):  # 0 is all that a node has
            unit_mib = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2}[found[2].upper()]
            return {
                "cpus": cpus,
                "memory": f"{max(1, round(int(found[1]) * unit_mib * factor))}MiB",
            }
        else:
            notes.add(option.line, f"--{name}", "all memory of a node", "say how much a task needs")
    return {"cpus": cpus, "memory": None}


def _array(options: dict[str, _Option], notes: Notes) -> _Array | None:
    """The indices ``0-9``, ``1,3,5-7`` or ``0-15:4``, of which ``%2`` lets two run at a time."""
    option = options.get("array")
    if option is None:
        return None
    found = _ARRAY.fullmatch(option.value)
    ranges = [_indices(piece) for piece in found[1].split(",")] if found else [range(0)]
    if found is None or not all(ranges) or sum(map(len, ranges)) > MAX_JOBS:
        remedy = f"write sweep: {{range: {{variable: {_INDEX}, from: 0, to: 9}}}}"
        notes.add(option.line, "--array", f"{option.value!r} is not understood", remedy)
        return None
    sweep: dict[str, Any] = {"max_parallel": int(found[2])} if found[2] else {}
    first, *others = ranges
    if others:
        indices = sorted({index for one in ranges for index in one})
        sweep["list"] = [{_INDEX: index} for index in indices]
    else:
        bounds = {"from": first.start, "to": first[-1], "step": first.step}
        sweep["range"] = {"variable": _INDEX, **bounds}
    return _Array(sweep, (min(one.start for one in ranges), max(one[-1] for one in ranges)))


def _indices(text: str) -> range:
    """The indices of ``3``, ``0-9`` or ``0-15:4``; none of what is neither."""
    found = _INDICES.fullmatch(text.strip())
    if found is None or found[3] == "0":
        return range(0)
    return range(int(found[1]), int(found[2] or found[1]) + 1, int(found[3] or 1))


def _dependency(options: dict[str, _Option], notes: Notes) -> None:
    """The jobs of Slurm that it waits for have other ids here, or none: say what to write."""
    option = options.get("dependency")
    if option is None:
        return
    for piece in re.split("[,?]", option.value):
        kind, _, _ = piece.partition(":")
        known = _AFTER.get(kind)
        remedy = f"write depends_on: [{{job: ID, after: {known}}}] with the id that it has here"
        if known is None:
            remedy = "a job can wait until others have started, ended or succeeded: depends_on"
        notes.add(option.line, "--dependency", f"{piece} is left out", remedy)


def _rest(options: dict[str, _Option], notes: Notes) -> dict[str, Any]:
    """Tenant, time limit, folder, image, restarts and grace."""
    job: dict[str, Any] = {}
    account, limit = options.get("account"), options.get("time")
    if account:
        name = notes.name(account.line, "--account", account.value)
        notes.add(
            account.line, "--account", f"{name} is taken for the tenant", "--tenant changes it"
        )
        job["tenant"] = name
    if limit:
        limit_s = _seconds(limit.value)
        job["time_limit"] = limit_s
        if limit_s is None:
            notes.add(limit.line, "--time", f"{limit.value!r} is not understood", "no limit is set")
    for name, field in (("chdir", "workdir"), ("container-image", "image")):
        option = options.get(name)
        if option:
            job[field] = option.value.replace("docker://", "").replace("#", "/")
    if "chdir" in options:
        remedy = "its files are copied, and what the job writes there stays with the task"
        notes.add(options["chdir"].line, "--chdir", "a folder is not shared here", remedy)
    if "no-requeue" in options:
        job["max_restarts"] = 0
    signal = options.get("signal")
    found = _SIGNAL.fullmatch(signal.value) if signal else None
    if signal:
        grace_s = int(found[2]) if found and found[2] else 60
        job["checkpoint"] = {"grace": grace_s}
        notes.add(
            signal.line, "--signal", f"SIGTERM comes {grace_s} s before the end of an attempt",
            "trap TERM",
        )  # fmt: skip
    return job


def _seconds(text: str) -> int | None:
    """Seconds of Slurm's times: minutes, m:s, h:m:s, d-h, d-h:m, d-h:m:s."""
    days, dash, rest = text.partition("-")
    parts = (rest if dash else text).split(":")
    if not all(map(_NUMBER.fullmatch, parts)) or len(parts) > 3:
        return None
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
        if not _NUMBER.fullmatch(days):
            return None
        return int(days) * 86_400 + hours * 3600 + minutes * 60 + seconds
    if len(numbers) == 1:
        return numbers[0] * 60 or None
    hours, minutes, seconds = [0, *numbers][-3:]
    return hours * 3600 + minutes * 60 + seconds


def _script(
    lines: list[str],
    options: dict[str, _Option],
    size: _Size,
    gpus: float,
    array: _Array | None,
    where: str,
    notes: Notes,
) -> str:
    """What each task runs: the script, with the variables that Slurm would give it."""
    wrap = options.get("wrap")
    name = options["job-name"].value if "job-name" in options else "job"
    given = options["cpus-per-task"].value if "cpus-per-task" in options else ""
    cpus = int(given) if _NUMBER.fullmatch(given) else 1  # what is no number was noted as left out
    body = body_of(lines)
    settings, program = as_the_first_line_says(lines, where, notes)
    if program and wrap is None:
        text, has_srun = handed_to(program, body), False
    else:
        text, has_srun = without_srun(
            body if wrap is None else [wrap.value], len(lines) - len(body), notes
        )
    if size.tasks > 1 and not has_srun:
        notes.add(
            0, "script", f"Slurm runs it once; here each of {size.tasks} tasks does",
            'begin what only one may do with: [ "$RANK" = 0 ] &&',
        )  # fmt: skip
    elif size.tasks > 1:
        notes.add(
            0, "script", f"each of {size.tasks} tasks runs all of it, not only what srun starts",
            'begin what only one may do with: [ "$RANK" = 0 ] &&',
        )  # fmt: skip
    values = (shlex.quote(name), size.nodes, size.per_node, round(gpus * size.per_node), cpus)
    of_array = "" if array is None else _OF_ARRAY % array.bounds
    return _ALIASES % values + of_array + settings + text.strip("\n") + "\n"
