"""Durable storage: the records of the machines, and the tables that people read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from msgspec import Struct


class Record(Struct, frozen=True, gc=False):
    """One journal entry: an event of one machine and the facts decided. Both JSON."""

    seq: int
    at_s: float
    machine: str
    event: bytes
    facts: bytes


class HistoryRow(Struct, frozen=True, gc=False):
    """A line of the audit log, shown to people."""

    at_s: float
    job: str
    kind: str
    text: str
    detail: str = "{}"
    """A JSON object."""


class AttemptRow(Struct, frozen=True):
    """One finished attempt, for accounting. GPUs in thousandths, times in seconds."""

    job: str
    epoch: int
    tenant: str
    user: str
    region: str
    cluster: str
    model: str
    gpus_milli: int
    start_s: float
    end_s: float
    kept_s: float
    outcome: str
    labels: str = ""
    """Of the job, as JSON; empty: it has none."""
    idle_s: float = 0.0
    """The part of the time in which it held its GPUs and did not compute."""


class UsageDay(Struct, frozen=True):
    """What the attempts of forgotten jobs used on one day."""

    day_s: float
    """When it began, in UTC."""
    tenant: str
    user: str
    region: str
    cluster: str
    model: str
    attempts: int
    """Those that ended on it."""
    held_gpu_s: float
    kept_gpu_s: float
    idle_gpu_s: float = 0.0


class JobRow(Struct, frozen=True):
    """A finished job, as long as it is not forgotten."""

    job: str
    number: int
    finish_s: float
    view: str
    """The JSON shown to people."""


class ActRow(Struct, frozen=True):
    """A line of the audit log: what a principal did, or was refused."""

    actor: str
    """The subject of the principal; empty for a request without proof of one."""
    via: str
    """The kind of proof."""
    address: str
    request: str
    verb: str
    object: str = ""
    tenant: str = ""
    """That of the object; empty for what no tenant owns."""
    before: str = ""
    """The state of the object, as JSON; empty where it has none to tell."""
    after: str = ""
    outcome: str = "done"
    """``done``, ``unchanged``, or ``refused`` with the reason behind it."""
    at_s: float = 0.0
    id: int = 0
    """Given by the database."""


class Act(Struct, frozen=True):
    """An act before it is done: the row as far as it is known, and how to learn the rest of it."""

    row: ActRow
    look: Callable[[], str] | None = None
    """Tells the state of the object; asked before and after, between two commits."""
    named: Callable[[Any], Sequence[str]] | None = None
    """The objects that an answer is about, one for each row."""
    also: tuple[ActRow, ...] = ()
    """Further rows, of an act at several tenants."""
    options: Mapping[str, str] = {}
    """What the act keeps for the leaders after this one, as `Journal.set_option` does."""
    told: tuple[HistoryRow, ...] = ()
    """What people are told of an act that no machine is told: events, without their time."""
    within: Callable[[], AbstractContextManager[None]] | None = None
    """What is held while machines take it in, on their thread."""


class ActFilter(Struct, frozen=True):
    """Which lines of the audit log are wanted; an empty field means all."""

    actor: str = ""
    verb: str = ""
    object: str = ""
    outcome: str = ""
    """How it begins."""
    tenants: Sequence[str] | None = None
    """Only acts about these tenants."""
    since_s: float | None = None
    until_s: float | None = None
    before_id: int | None = None
    limit: int = 100


class Audit(Struct, frozen=True):
    """Rows for the audit tables, committed with the records that caused them."""

    history: Sequence[HistoryRow] = ()
    attempts: Sequence[AttemptRow] = ()
    jobs: Sequence[JobRow] = ()
    acts: Sequence[ActRow] = ()
    options: Mapping[str, str] = {}
    """What `Journal.set_option` would keep, by name."""


class Snapshot(Struct, frozen=True):
    """The state of every machine at one point of the journal."""

    seq: int
    """The last record that is included."""
    at_s: float
    machines: Mapping[str, bytes]


class Journal(Protocol):
    """Durable, ordered storage. A method that returns has reached the disk; or else it raises."""

    @property
    def epoch(self) -> int:
        """Higher than in every process that wrote before; 0 where nothing is written."""
        ...

    def append(self, records: Sequence[Record], audit: Audit) -> None:
        """Commit records (``seq`` increasing) and audit rows in one transaction, then fsync."""
        ...

    def save_snapshot(self, snapshot: Snapshot) -> None:
        """Store a snapshot; drop old and surplus snapshots, and records that none of the rest
        needs.
        """
        ...

    def latest_snapshot(self, until_s: float | None = None) -> Snapshot | None:
        """The newest snapshot (taken at or before ``until_s``)."""
        ...

    def records(self, after: int = 0, until_s: float | None = None) -> Iterator[Record]:
        """Records with ``seq`` > ``after``, in order (up to time ``until_s``)."""
        ...

    def history(self, job: str, limit: int = 1000) -> list[HistoryRow]:
        """The audit log of one job, oldest first."""
        ...

    def history_count(self) -> int:
        """A number that grows with every line of the audit log, by one at least."""
        ...

    def attempts(self, since_s: float, until_s: float) -> list[AttemptRow]:
        """Finished attempts that overlap a period, ordered by start, job, epoch."""
        ...

    def usage_days(self, since_s: float, until_s: float) -> list[UsageDay]:
        """What forgotten jobs used, by the days that overlap a period."""
        ...

    def attempts_of(self, job: str) -> list[AttemptRow]:
        """Finished attempts of one job by epoch."""
        ...

    def acts(self, wanted: ActFilter) -> list[ActRow]:
        """Lines of the audit log, the newest first."""
        ...

    def option(self, name: str) -> str | None:
        """What was kept beside the records, as JSON; None if nothing was."""
        ...

    def finished_job(self, job: str) -> JobRow | None:
        """One finished job."""
        ...

    def finished_jobs_of(self, jobs: Sequence[str]) -> list[JobRow]:
        """Those of the jobs that have finished, in any order."""
        ...

    def finished_jobs(
        self,
        before_number: int | None = None,
        limit: int = 100,
        tenants: Sequence[str] | None = None,
    ) -> list[JobRow]:
        """Finished jobs, newest number first, for listing with a cursor.

        Only of the ``tenants``, if they are named: O(limit) for each of them, whatever others have.
        """
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...
