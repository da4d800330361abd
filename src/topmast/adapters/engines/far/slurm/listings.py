"""What ``squeue`` and ``sinfo`` print, read: states of jobs, states of hosts.

A line that is not as asked for makes the whole answer unusable: a listing is complete or none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from topmast.adapters.engines.far.launcher import Host, Listed, State, Unreachable

JOB_FORMAT = "JobID:|,Name:|,State:|,SubmitTime:|,StartTime:|,exit_code:|,NumNodes:|,Reason:"
FIELDS = JOB_FORMAT.count(",") + 1
HOST_FORMAT = "%N|%T|%R|%a|%E"

_HELD_BY_US = frozenset({"JobHeldUser"})
_WAITING = frozenset(
    {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
)
_EVICTED = frozenset({"CANCELLED", "DEADLINE", "PREEMPTED", "REVOKED", "TIMEOUT"})
_ENDED = _EVICTED | {"BOOT_FAIL", "COMPLETED", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"}
"""Any other state is one in which processes may live."""
_REMEDIES = {
    "AssocGrpGRES": "the account's GPUs are in use",
    "JobHeldAdmin": "an administrator holds it",
    "PartitionDown": "the partition is closed",
    "PartitionInactive": "the partition is closed",
}
"""What else is known of a reason to wait."""
_NEVER = {
    "AccountNotAllowed": "set option `account` of the cluster, or `account.TENANT`",
    "BadConstraints": "the hosts can never give this: compare GPU types (option `gpu.MODEL`), "
    "CPUs and memory with `sinfo -N -o '%N %G %c %m'`",
    "InvalidAccount": "set option `account` of the cluster, or `account.TENANT`",
    "Job's account ": "set option `account` of the cluster, or `account.TENANT`",
    "Job's QOS ": "set option `qos` of the cluster, or `qos.TENANT`",
    "InvalidQOS": "set option `qos` of the cluster, or `qos.TENANT`",
    "PartitionNodeLimit": "it asks for more hosts than the partition allows",
    "PartitionTimeLimit": "it asks for more time than the partition allows: set `time_limit`",
    "QOSNotAllowed": "set option `qos` of the cluster, or `qos.TENANT`",
}
"""Reasons that go only when the job or the site is changed, by how they begin; what to change."""

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


def read_jobs(said: str, prefix: str) -> tuple[Listed, ...]:
    """The parts in an answer of ``squeue -O JOB_FORMAT``: jobs with names that begin so."""
    found = []
    for line in said.splitlines():
        if not line.strip():
            continue
        fields = line.split("|", FIELDS - 1)
        if len(fields) != FIELDS:
            raise Unreachable(f"squeue said {line[:200]!r}, and {JOB_FORMAT} was asked for")
        job, name, *rest = (field.strip() for field in fields)
        if name.startswith(prefix):
            found.append(_job(job, name, *rest))
    return tuple(found)


def _job(
    job: str, name: str, word: str, submitted: str, started: str, status: str, nodes: str,
    reason: str,
) -> Listed:  # fmt: skip
    word = word.upper()
    vain = ""
    try:
        submitted_s = float(submitted)
    except ValueError:
        raise Unreachable(f"squeue gave {submitted!r} as the time when job {job} came") from None
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
    return Listed(name, job, submitted_s, state, why, word in _EVICTED, run, hosts, never)


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


class _Row(NamedTuple):
    """One line of ``sinfo -N``: a host as it is in one partition."""

    state: str
    partition: str
    available: str
    reason: str


def read_hosts(
    said: str, names: Mapping[str, str], partitions: Iterable[str], *, reserved: bool = False
) -> tuple[Host, ...]:
    """The hosts in an answer of ``sinfo -N -a -o HOST_FORMAT``.

    ``names`` says what the fleet file calls each of the hosts that Slurm is asked about; there is
    an answer for each of them. ``partitions`` are those that parts are submitted to; empty: any.
    ``reserved``: they are submitted to a reservation, so that a reserved host is as good as idle.
    """
    rows: dict[str, list[_Row]] = {}
    for line in said.splitlines():
        if not line.strip():
            continue
        fields = line.split("|", 4)
        if len(fields) != 5 or not _STATE.fullmatch(fields[1].strip()):
            raise Unreachable(f"sinfo said {line[:200]!r}, and {HOST_FORMAT} was asked for")
        name, *rest = (field.strip() for field in fields)
        if name in names:
            rows.setdefault(name, []).append(_Row(*rest))
    wanted = frozenset(partitions)
    good = _OPEN | {"reserved"} if reserved else _OPEN
    return tuple(
        _host(names[name], rows[name], wanted, good)
        if name in rows
        else Host(names[name], answers=False, closed=f"Slurm knows no host {name}")
        for name in names
    )


def _host(name: str, rows: list[_Row], partitions: frozenset[str], good: frozenset[str]) -> Host:
    found = _STATE.fullmatch(rows[0].state)
    assert found is not None, rows
    word, flags = found[1].lower(), found[2]
    answers = word not in _NO_DAEMON and not _SILENT_FLAGS.intersection(flags)
    trouble = [_FLAGS[flag] for flag in flags if flag in _FLAGS]
    reason = rows[0].reason
    if word not in good:
        trouble.insert(0, f"is {word}: {reason}" if reason not in ("", "none") else f"is {word}")
    usable = [row for row in rows if not partitions or row.partition in partitions]
    if not usable:
        trouble.append(f"is not in partition {', '.join(sorted(partitions))}")
    elif all(row.available.lower() != "up" for row in usable):
        trouble.append(f"is in partition {usable[0].partition}, which is {usable[0].available}")
    return Host(name, answers, f"in Slurm it {', and '.join(trouble)}" if trouble else "")
