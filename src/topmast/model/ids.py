"""Names of things: what an id looks like, and how the address of a machine is spelled."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

JobId = str
"""``j`` and the job's number in the order of admission, for example ``j17``. Never reused."""

CopyId = str
"""``c`` and a number, for example ``c3``."""

Address = str
"""The receiver of a message.

``queue``, ``accounts``, ``fleet_placer``, ``placer/REGION``, ``cluster/NAME``, ``engine/NAME``,
``mover`` or ``grower``. Between processes also ``relay/NAME``, which stands for a machine of
another process, and ``link/NAME``, which carries its messages there.
"""

QUEUE: Address = "queue"
FLEET_PLACER: Address = "desk"
"""Asks all placers of this process at once."""
MOVER: Address = "mover"
ACCOUNTS: Address = "accounts"
GROWER: Address = "grower"
"""Grows the tree that predicts durations."""

AHEAD_MAX = 10_000_000
"""How far a number found outside the journal may be ahead of it: tasks can write there too.

So tasks cannot push the numbers of jobs and attempts to where they no longer fit into a column.
"""

_IN_SWEEP = re.compile(r"(s(?:0|[1-9][0-9]{0,14}))\[(0|[1-9][0-9]{0,14})\]")
_NTH_JOB = re.compile(r"jobs\[(0|[1-9][0-9]{0,14})\]")
_JOB = re.compile(r"j(0|[1-9][0-9]{0,14})")


def job_id(number: int) -> JobId:
    """The id of the job admitted as the ``number``-th."""
    return f"j{number}"


def job_number(job: JobId) -> int:
    """The number inside a job id, which breaks ties; -1 if ``job`` is no id of `job_id`."""
    found = _JOB.fullmatch(job)
    return int(found[1]) if found else -1


def sweep_id(first_number: int) -> str:
    """The id of the sweep with jobs numbered from ``first_number``."""
    return f"s{first_number}"


def sweep_number(sweep: str) -> int:
    """The number of a sweep's first job; -1 if ``sweep`` is no id of `sweep_id`."""
    return job_number(f"j{sweep[1:]}") if sweep.startswith("s") else -1


def job_in_sweep(text: str) -> tuple[str, int] | None:
    """The sweep and the place that ``s7[3]`` names; None for anything else."""
    found = _IN_SWEEP.fullmatch(text)
    return (found[1], int(found[2])) if found else None


def nth_job(index: int) -> str:
    """What stands in a submission for the id of its own job at a place, from 0."""
    return f"jobs[{index}]"


def place_in_submission(text: str) -> int:
    """The place that `nth_job` names; -1 for anything else."""
    found = _NTH_JOB.fullmatch(text)
    return int(found[1]) if found else -1


def copy_id(number: int) -> CopyId:
    """The id of the ``number``-th copy of a dataset."""
    return f"c{number}"


def placer(region: str) -> Address:
    """The address of the regional placer of ``region``."""
    return f"placer/{region}"


def cluster(name: str) -> Address:
    """The address of the manager of cluster ``name``."""
    return f"cluster/{name}"


def engine(cluster_name: str) -> Address:
    """The address of the engine that runs cluster ``cluster_name``."""
    return f"engine/{cluster_name}"


def host(name: str) -> str:
    """Under what the history keeps the story of host ``name``, beside those of jobs."""
    return f"host/{name}"


def is_host(subject: str) -> bool:
    """Whether a story of the history is that of a host."""
    return subject.startswith("host/")


def relay(name: str) -> Address:
    """The address that stands for a machine of another process: a region's placer, or the queue."""
    return f"relay/{name}"


def link(name: str) -> Address:
    """The address of the link that carries what the relay ``name`` sends."""
    return f"link/{name}"


def attempt_name(job: JobId, epoch: int) -> str:
    """The name of an attempt's object in an engine; launching it twice finds the first."""
    return f"{job}.{epoch}"


def compact(jobs: Sequence[str]) -> str:
    """Jobs in a few characters: ``j1..j7,j9``."""
    return runs_of(sorted(job_number(job) for job in jobs))


def runs_of(numbers: Iterable[int]) -> str:
    """As `compact`, by the numbers of the jobs, which ascend. O(numbers)."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(job_id(a) if a == b else f"{job_id(a)}..{job_id(b)}" for a, b in runs)
