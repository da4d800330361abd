"""Waiting jobs by shape: jobs that ask for the same on the same terms stand in one line.

If the head of a line finds no place, nobody behind it does; the line is closed until something that could
help has changed (fast-path: negative cache). Within a line the order never changes, for age and
fair share move alike for all of it; only heads are ranked against one another.
"""

from __future__ import annotations

import heapq

from msgspec import Struct

from topmast.fast.queue.record import JobRecord
from topmast.model.job import Band, JobSpec
from topmast.model.reason import PendingReason


class Line(Struct):
    """One line. ``closed``: modes (guaranteed, over quota) that found no place, by generation."""

    spec: JobSpec
    avoid_hosts: tuple[str, ...]
    heap: list[tuple[float, int, str]]
    reason: PendingReason = PendingReason.PENDING_EVALUATION
    detail: str = ""
    closed: dict[bool, int] = {}
    retry_at_s: float | None = None
    size: int = 0


def shape_of(spec: JobSpec, avoid_hosts: tuple[str, ...]) -> tuple[object, ...]:
    """Everything that decides where a job may run and how it ranks, but its age."""
    return (
        spec.tenant,
        spec.band,
        tuple((g.count, g.resources) for g in spec.groups),
        spec.topology,
        spec.datasets,
        spec.preemptible,
        avoid_hosts,
    )


class Pending:
    """All jobs that may be placed now, and those that must wait out a back-off."""

    def __init__(self) -> None:
        self.lines: dict[tuple[object, ...], Line] = {}
        self.where: dict[str, tuple[object, ...]] = {}
        self.generation = 1
        self._retrying: dict[tuple[object, ...], Line] = {}
        self._delayed: list[tuple[float, int, str]] = []
        self._delayed_jobs: dict[str, JobRecord] = {}

    def add(self, record: JobRecord, now: float) -> None:
        """Let a job stand in its line, or wait until its back-off is over. O(log jobs)."""
        if record.not_before_s > now:
            heapq.heappush(self._delayed, (record.not_before_s, record.number, record.id))
            self._delayed_jobs[record.id] = record
            return
        shape = shape_of(record.spec, record.avoid_hosts)
        line = self.lines.get(shape)
        if line is None:
            line = self.lines[shape] = Line(record.spec, record.avoid_hosts, [], closed={})
        heapq.heappush(line.heap, (record.submit_s, record.number, record.id))
        line.size += 1
        self.where[record.id] = shape

    def remove(self, job: str) -> None:
        """Take a job out, wherever it stands. O(1); its heap entry goes when it surfaces."""
        self._delayed_jobs.pop(job, None)
        shape = self.where.pop(job, None)
        if shape is None:
            return
        line = self.lines[shape]
        line.size -= 1
        if not line.size:
            del self.lines[shape]
            self._retrying.pop(shape, None)

    def head(self, shape: tuple[object, ...]) -> tuple[float, int, str] | None:
        """The first job of a line: submit time, number, id."""
        line = self.lines.get(shape)
        while line is not None and line.heap:
            if self.where.get(line.heap[0][2]) == shape:
                return line.heap[0]
            heapq.heappop(line.heap)
        return None

    def release(self, now: float) -> list[JobRecord]:
        """Jobs whose back-off is over by ``now``; they must be added again."""
        due = []
        while self._delayed and self._delayed[0][0] <= now:
            _, _, job = heapq.heappop(self._delayed)
            record = self._delayed_jobs.pop(job, None)
            if record is not None:
                due.append(record)
        return due

    def next_release_s(self) -> float | None:
        """When the next back-off ends."""
        while self._delayed and self._delayed[0][2] not in self._delayed_jobs:
            heapq.heappop(self._delayed)
        return self._delayed[0][0] if self._delayed else None

    def close(self, shape: tuple[object, ...], over_quota: bool, retry_at_s: float | None) -> None:
        """A line found no place in one mode: ask no more until `reopen`, or ``retry_at_s``. O(1)."""
        line = self.lines[shape]
        line.closed[over_quota] = self.generation
        if retry_at_s is not None:
            line.retry_at_s = min(retry_at_s, line.retry_at_s or retry_at_s)
            self._retrying[shape] = line

    def is_open(self, line: Line, over_quota: bool) -> bool:
        """Whether a line may be asked about in a mode."""
        return line.closed.get(over_quota) != self.generation

    def reopen(self) -> None:
        """Something changed that might help anyone: every line may be asked about again. O(1)."""
        self.generation += 1

    def reopen_due(self, now: float) -> bool:
        """Reopen the lines for which time alone changes the answer; tells whether any was."""
        due = [s for s, x in self._retrying.items() if x.retry_at_s and x.retry_at_s <= now]
        for shape in due:
            line = self._retrying.pop(shape)
            line.closed.clear()
            line.retry_at_s = None
        return bool(due)

    def next_retry_s(self) -> float | None:
        """When time alone reopens a line."""
        times = (x.retry_at_s for x in self._retrying.values() if x.retry_at_s is not None)
        return min(times, default=None)

    def line_of(self, job: str) -> Line | None:
        """The line in which a job stands."""
        shape = self.where.get(job)
        return None if shape is None else self.lines[shape]


def effective_band(band: Band, over_quota: bool) -> Band:
    """Over quota everything runs opportunistically."""
    return Band.OPPORTUNISTIC if over_quota else band
