"""What ``squeue`` and ``sinfo`` print, read: states of jobs, states of hosts.

The name of a job may have anything in it, line breaks too, and Slurm prints it as it is. So each
field ends with a *mark*, a word that is new for each question: what is printed between two marks is
one field, whatever a job is called. An answer that is not as asked for is unusable as a whole: a
listing is complete or none.
"""

from __future__ import annotations

import math
import re
import secrets
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from topmast.adapters.engines.far.launcher import Host, Listed, State, Unreachable
from topmast.adapters.engines.far.slurm.options import SlurmOptions
from topmast.model.fleet import HostSpec

_JOB_FIELDS = (
    "JobID", "Name", "State", "SubmitTime", "StartTime", "exit_code", "NumNodes", "Reason",
)  # fmt: skip
_HOST_FIELDS = ("%N", "%T", "%P", "%a", "%G", "%E")

_HELD_BY_US = frozenset({"JobHeldUser"})
_WAITING = frozenset(
    {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
)
_NO_MEMORY = "OUT_OF_MEMORY"
_KILLED = 128 + signal.SIGKILL
_EVICTED = frozenset({"CANCELLED", "DEADLINE", "PREEMPTED", "REVOKED", "TIMEOUT"})
_ENDED = _EVICTED | {"BOOT_FAIL", "COMPLETED", "FAILED", "NODE_FAIL", _NO_MEMORY}
"""Any other state is one in which processes may live."""
_REMEDIES = {
    "AssocGrpGRES": "the account's GPUs are in use",
    "JobHeldAdmin": "an administrator holds it",
    "PartitionConfig": "the partition cannot give this: compare CPUs and memory with "
    "`sinfo -N -o '%N %G %c %m'`",
    "PartitionDown": "the partition is closed",
    "PartitionInactive": "the partition is closed",
}
"""What else is known of a reason to wait."""
_ACCOUNT = "set option `account` of the cluster, or `account.TENANT`"
_QOS = "set option `qos` of the cluster, or `qos.TENANT`"
_NEVER_ALL = {
    "AccountNotAllowed": _ACCOUNT,
    "InvalidAccount": _ACCOUNT,
    "InvalidQOS": _QOS,
    "Job's QOS ": _QOS,
    "Job's account ": _ACCOUNT,
    "QOSNotAllowed": _QOS,
}
"""Reasons that go only when the site or an option is changed, by how they begin; what to change."""
_NEVER = _NEVER_ALL | {
    "BadConstraints": "the hosts can never give this: compare GPU types (option `gpu.MODEL`), "
    "CPUs and memory with `sinfo -N -o '%N %G %c %m'`",
    "PartitionNodeLimit": "it asks for more hosts than the partition allows",
    "PartitionTimeLimit": "it asks for more time than the partition allows: set `time_limit`",
}
"""And those that are of this job alone."""

_STATE = re.compile(r"([a-z_]+)([*~#!%$@^-]*)", re.IGNORECASE)
_OPEN = frozenset({"allocated", "completing", "idle", "mixed", "planned"})
_NO_DAEMON = frozenset(
    {"down", "future", "powered_down", "powering_down", "powering_up", "reboot", "unknown"}
)
_FLAGS = {
    "*": "does not answer",
    "~": "is powered down",
    "#": "is being powered up",
    "!": "is to be powered down",
    "%": "is being powered down",
    "$": "is in a maintenance reservation",
    "@": "is to reboot",
    "^": "reboots",
}
_SILENT_FLAGS = frozenset("*~#%^")


def new_mark() -> str:
    """A word that occurs in no name, as nothing could know it before the question is asked."""
    return f"|{secrets.token_hex(8)}|"


def job_format(mark: str) -> str:
    """What ``squeue -O`` is asked for."""
    return ",".join(f"{field}:{mark}" for field in _JOB_FIELDS)


def host_format(mark: str) -> str:
    """What ``sinfo -o`` is asked for."""
    return "".join(f"{field}{mark}" for field in _HOST_FIELDS)


def _rows(said: str, mark: str, fields: Sequence[str], program: str) -> Iterator[list[str]]:
    """The fields of each row of an answer."""
    *found, rest = said.split(mark)
    count = len(fields)
    if rest.strip() or len(found) % count:
        shown = said.replace(mark, "|").strip().splitlines()[-1]
        raise Unreachable(
            f"{program} said {shown[:200]!r}, and rows of {'|'.join(fields)} were asked for"
        )
    for at in range(0, len(found), count):
        first, *others = found[at : at + count]
        yield [first.removeprefix("\n"), *others]


def read_jobs(
    said: str,
    mark: str,
    prefix: str,
    own: Sequence[str] = (),
    is_recorded: Callable[[str, float], bool] = lambda id, submitted_s: False,
) -> tuple[Listed, ...]:
    """The parts in an answer of ``squeue -O`` with `job_format`: jobs with names that begin so.

    And those that were recorded, as a task may give its job another name. ``own`` are the tenants
    that have options of their own.
    """
    found = []
    for job, name, *rest in _rows(said, mark, _JOB_FIELDS, "squeue"):
        fields = [field.strip() for field in rest]
        if name.startswith(prefix) or is_recorded(job, _seconds(fields[1])):
            found.append(_job(job, name, *fields, own=tuple(own)))
    return tuple(found)


def _seconds(text: str) -> float:
    """A time; not a number where there is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _job(
    job: str, name: str, word: str, submitted: str, started: str, status: str, nodes: str,
    reason: str, *, own: tuple[str, ...],
) -> Listed:  # fmt: skip
    word = word.upper()
    vain = ""
    if not job.isdecimal():
        raise Unreachable(f"squeue gave {job[:200]!r} as the number of a job")
    submitted_s = _seconds(submitted)
    if math.isnan(submitted_s):
        raise Unreachable(f"squeue gave {submitted!r} as the time when job {job} came")
    if word in _WAITING:
        state = State.HELD if reason in _HELD_BY_US else State.WAITING
        vain = next((_NEVER[words] for words in _NEVER if reason.startswith(words)), "")
        remedy = vain or _REMEDIES.get(reason)
        why = f"{reason}: {remedy}" if remedy else _words(reason)
    elif word in _ENDED:
        state, why = State.ENDED, _ended(word, status, reason)
    else:
        state, why = State.RUNNING, _words(reason)
    # Slurm may run a job again under its id, and with the time of its submission; and two jobs of
    # one name may begin in the same second.
    run = f"{job}@{started}" if started.isdecimal() else ""
    never = state is State.WAITING and bool(vain)
    # Of a job that goes on without a host that was set down, Slurm says how many are left; of one
    # that is being ended, on how many it still is.
    hosts = int(nodes) if word == "RUNNING" and nodes.isdecimal() else 0
    of_all = never and reason.startswith(tuple(_NEVER_ALL))
    return Listed(
        name, job, submitted_s, state, why, word in _EVICTED, run, hosts, never,
        code=_KILLED if word == _NO_MEMORY else None, everyone_but=own if of_all else None,
    )  # fmt: skip


def _words(reason: str) -> str:
    return "" if reason == "None" else reason


def _ended(word: str, status: str, reason: str) -> str:
    said = word if reason in ("None", "") else f"{word}: {reason}"
    if word == "COMPLETED" or not status.isdecimal() or status == "0":
        return said
    code, number = divmod(int(status), 256)  # as wait(2) gives it
    if number:
        return f"{said} (signal {number & 127})"
    hint = ": is there a `python3` on the hosts (option `python`)?" if code == 127 else ""
    return f"{said} (status {code}){hint}"


def gpus_of(gres: str) -> dict[str, int]:
    """GPUs by type: ``gpu:h100:8(S:0-1),nic:2`` has 8 of type h100; no type is the empty one."""
    found: Counter[str] = Counter()
    for entry in re.sub(r"\([^)]*\)", "", gres).split(","):
        kind, *rest = entry.split(":")
        if kind == "gpu":
            count = int(rest.pop()) if rest and rest[-1].isdecimal() else 1
            found[":".join(rest)] += count
    return {of_type: count for of_type, count in found.items() if count}


class _Row(NamedTuple):
    """One line of ``sinfo -N``: a host as it is in one partition."""

    state: str
    partition: str
    """With a star behind it: where jobs go that name none."""
    available: str
    gres: str
    reason: str


def read_hosts(
    said: str,
    mark: str,
    hosts: Mapping[str, HostSpec],
    options: SlurmOptions,
    is_routed: Callable[[], bool] = lambda: False,
) -> tuple[Host, ...]:
    """The hosts in an answer of ``sinfo -N -a -o`` with `host_format`.

    ``hosts`` says what the fleet file has by the names that Slurm is asked about; there is an
    answer for each of them. ``is_routed`` tells whether the site itself sends jobs that name no
    partition to others than the default one; it is asked only where that makes a difference.
    """
    rows: dict[str, list[_Row]] = {}
    default: set[str] = set()
    for fields in _rows(said, mark, _HOST_FIELDS, "sinfo"):
        name, *rest = (field.strip() for field in fields)
        row = _Row(*rest)
        if not _STATE.fullmatch(row.state):
            raise Unreachable(f"sinfo gave {row.state[:200]!r} as the state of host {name}")
        if row.partition.endswith("*"):
            default.add(row.partition[:-1])
        if name in hosts:
            rows.setdefault(name, []).append(row)
    wanted = _partitions(options, default)
    strays = any(wanted.isdisjoint(_names(of_host)) for of_host in rows.values())
    if wanted and strays and not options.partition.get("") and is_routed():
        wanted = frozenset()
    return tuple(
        _host(host, rows[name], wanted, options)
        if name in rows
        else Host(host.name, False, f"Slurm knows no host {name} in any partition", misfit=True)
        for name, host in hosts.items()
    )


def _partitions(options: SlurmOptions, default: set[str]) -> frozenset[str]:
    """Those that parts are submitted to; empty: any."""
    named = {name for text in options.partition.values() for name in text.split(",") if name}
    return frozenset(named if options.partition.get("") else named | default)


def _names(rows: list[_Row]) -> list[str]:
    """The partitions that a host is in."""
    return [row.partition.rstrip("*") for row in rows]


def _host(
    host: HostSpec, rows: list[_Row], partitions: frozenset[str], options: SlurmOptions
) -> Host:
    found = _STATE.fullmatch(rows[0].state)
    assert found is not None, rows
    word, flags = found[1].lower(), found[2]
    answers = word not in _NO_DAEMON and not _SILENT_FLAGS.intersection(flags)
    trouble = [_FLAGS[flag] for flag in flags if flag in _FLAGS]
    reason = " ".join(rows[0].reason.split())
    # With a reservation of its own, a reserved host is as good as idle.
    if word not in _OPEN and not (word == "reserved" and options.reservation):
        trouble.insert(0, f"is {word}: {reason}" if reason not in ("", "none") else f"is {word}")
    usable = [row for row in rows if not partitions or row.partition.rstrip("*") in partitions]
    if usable and all(row.available.lower() != "up" for row in usable):
        down = usable[0]
        trouble.append(f"is in partition {down.partition.rstrip('*')}, which is {down.available}")
    misfits = [] if usable else [_outside(rows, partitions)]
    misfits += _gpus_amiss(host, rows[0].gres, options)
    trouble += misfits
    closed = f"in Slurm it {', and '.join(trouble)}" if trouble else ""
    return Host(host.name, answers, closed, bool(misfits))


def _outside(rows: list[_Row], partitions: frozenset[str]) -> str:
    there, wanted = ", ".join(sorted(_names(rows))), ", ".join(sorted(partitions))
    return f"is not in partition {wanted}, to which jobs go, but in {there} (option `partition`)"


def _gpus_amiss(host: HostSpec, gres: str, options: SlurmOptions) -> Iterator[str]:
    """What of its GPUs makes Slurm refuse jobs there, as far as that can be seen."""
    there, wanted = gpus_of(gres), options.gpu_type(host.model)
    if not host.gpus:
        return
    if wanted and there and not {wanted, ""} & there.keys():
        called = "TYPE" if len(there) > 1 else next(iter(there))
        yield (
            f"has GPUs of type {', '.join(sorted(there))}, and jobs ask for {wanted} "
            f"(set option `gpu.{host.model}: {called}`)"
        )
        return
    # Where Slurm says no type, its hosts may still know one.
    gpus = there.get(wanted, there.get("", 0)) if wanted else sum(there.values())
    if gpus < host.gpus:
        yield f"has {gpus or 'no'} GPUs, and the fleet file says {host.gpus}"
