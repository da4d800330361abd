"""A journal in memory: what `append` was given is there; nothing is ever lost, and nothing retired."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from topmast.ports import (
    ActFilter,
    ActRow,
    AttemptRow,
    Audit,
    HistoryRow,
    JobRow,
    Record,
    Snapshot,
    UsageDay,
)


class MemoryJournal:
    """`ports.Journal` in lists."""

    epoch = 1

    def __init__(self) -> None:
        self.written: list[Record] = []
        self.snapshots: list[Snapshot] = []
        self.rows: list[HistoryRow] = []
        self.ended: dict[tuple[str, int], AttemptRow] = {}
        self.finished: dict[str, JobRow] = {}
        self.noted: list[ActRow] = []
        self.options: dict[str, str] = {}
        self.appends = 0
        self.closed = False

    def append(self, records: Sequence[Record], audit: Audit) -> None:
        """Keep records and rows."""
        last_seq = self.written[-1].seq if self.written else 0
        for record in records:
            assert record.seq > last_seq, f"record {record.seq} after {last_seq}"
            last_seq = record.seq
        self.written.extend(records)
        self.rows.extend(audit.history)
        self.ended.update(((row.job, row.epoch), row) for row in audit.attempts)
        self.finished.update((row.job, row) for row in audit.jobs)
        self.noted.extend(audit.acts)
        self.options.update(audit.options)
        self.appends += 1

    def save_snapshot(self, snapshot: Snapshot) -> None:
        """Keep a snapshot, and all before it."""
        self.snapshots.append(snapshot)

    def latest_snapshot(self, until_s: float | None = None) -> Snapshot | None:
        """The newest snapshot (taken at or before ``until_s``)."""
        found = [s for s in self.snapshots if until_s is None or s.at_s <= until_s]
        return found[-1] if found else None

    def records(self, after: int = 0, until_s: float | None = None) -> Iterator[Record]:
        """Records with ``seq`` > ``after``, in order, up to the first later than ``until_s``."""
        first = after - self.written[0].seq + 1 if self.written else 0
        for record in self.written[max(0, first) :]:
            if until_s is not None and record.at_s > until_s:
                return
            yield record

    def history(self, job: str, limit: int = 1000) -> list[HistoryRow]:
        """The newest lines of one job, oldest first."""
        return [row for row in self.rows if row.job == job][-limit:]

    def history_count(self) -> int:
        """How many lines there are."""
        return len(self.rows)

    def attempts(self, since_s: float, until_s: float) -> list[AttemptRow]:
        """Finished attempts that overlap a period."""
        found = [r for r in self.ended.values() if r.end_s > since_s and r.start_s < until_s]
        return sorted(found, key=lambda row: (row.start_s, row.job, row.epoch))

    def usage_days(self, since_s: float, until_s: float) -> list[UsageDay]:
        """Nothing is forgotten."""
        return []

    def attempts_of(self, job: str) -> list[AttemptRow]:
        """Finished attempts of one job by epoch."""
        return sorted((r for r in self.ended.values() if r.job == job), key=lambda r: r.epoch)

    def acts(self, wanted: ActFilter) -> list[ActRow]:
        """The newest lines of the audit log; of the filters, it knows the verb alone."""
        found = [row for row in self.noted if wanted.verb in ("", row.verb)]
        return found[::-1][: wanted.limit]

    def option(self, name: str) -> str | None:
        """Nothing is kept beside the records."""
        return None

    def finished_job(self, job: str) -> JobRow | None:
        """One finished job."""
        return self.finished.get(job)

    def finished_jobs_of(self, jobs: Sequence[str]) -> list[JobRow]:
        """Those of the jobs that have finished."""
        return [self.finished[job] for job in jobs if job in self.finished]

    def finished_jobs(
        self,
        before_number: int | None = None,
        limit: int = 100,
        tenants: Sequence[str] | None = None,
    ) -> list[JobRow]:
        """Finished jobs, newest number first."""
        rows = sorted(self.finished.values(), key=lambda row: -row.number)
        if tenants is not None:
            rows = [row for row in rows if json.loads(row.view)["tenant"] in tenants]
        return [r for r in rows if before_number is None or r.number < before_number][:limit]

    def close(self) -> None:
        """Nothing to release."""
        self.closed = True
