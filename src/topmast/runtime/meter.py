"""What the runtime counts: facts, by one table, and how long machines and commits took.

Only the thread of the loop writes here, so nothing is locked. A figure costs a look-up and an
addition: no fact is told to a metrics library, which formats the figures when it is asked to.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as tally
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TypeAlias

from msgspec import Struct

from topmast.fast.queue import GlobalQueue, JobRecord
from topmast.fast.queue import facts as f
from topmast.fast.region import facts as p
from topmast.model.expansion import size_of
from topmast.model.job import MILLI, Band
from topmast.model.messages import (
    AttemptEnded,
    AttemptsStarting,
    Message,
    SubmitJobs,
)
from topmast.model.states import TERMINAL, JobState, Outcome

Labels: TypeAlias = tuple[str, ...]

QUICK_S = (1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5)
"""Upper bounds for what takes from microseconds to seconds."""
WORDS = {band: band.name.lower() for band in Band}
"""Names are looked up by a property of enumerations, which takes longer than all else here."""
WAITS_S = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 10_800.0, 43_200.0, 86_400.0, 604_800.0)
"""Upper bounds for how long a job waits."""


class Histogram(Struct):
    """How many observations fell below each bound, and their sum."""

    bounds: tuple[float, ...]
    """Upper bounds, ascending; a last one, infinity, is understood."""
    counts: list[int]
    """Observations of each bound alone, one more than there are bounds."""
    sum: float = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count one value, perhaps several times. O(log bounds)."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += times * value

    def cumulative(self) -> list[int]:
        """Observations up to each bound, and all of them last."""
        return list(accumulate(self.counts))


def histogram(bounds: tuple[float, ...]) -> Histogram:
    """An empty one."""
    return Histogram(bounds, [0] * (len(bounds) + 1))


class Counter(Struct):
    """Sums by the values of labels."""

    sums: dict[Labels, float] = {}

    def add(self, *labels: str, by: float = 1.0) -> None:
        """Count ``by`` more. O(1)."""
        self.sums[labels] = self.sums.get(labels, 0.0) + by


class Family(Struct):
    """Histograms of one bound list, by the values of labels."""

    bounds: tuple[float, ...]
    members: dict[Labels, Histogram] = {}

    def observe(self, value: float, *labels: str) -> None:
        """Count one value. O(log bounds)."""
        self.member(*labels).observe(value)

    def member(self, *labels: str) -> Histogram:
        """The histogram of some values of the labels."""
        found = self.members.get(labels)
        if found is None:
            found = self.members[labels] = histogram(self.bounds)
        return found


class Meter:
    """The figures of one process since its start.

    ``stopwatch`` tells seconds from any fixed moment on; it never goes back.
    """

    def __init__(self, queue: GlobalQueue, stopwatch: Callable[[], float]) -> None:
        self.queue = queue
        self.stopwatch = stopwatch
        self.submitted = Counter()
        """Jobs, by tenant and band."""
        self.admitted = Counter()
        """Plans that won, by tenant, band and region."""
        self.refused = Counter()
        """Plans that their region refused."""
        self.running: dict[Labels, float] = {}
        """Jobs that hold a place now, by tenant and band."""
        self._counted: dict[str, Labels] = {}
        """How a job that holds a place was counted: its band may be changed meanwhile."""
        self.finished = Counter()
        """Jobs that are over, by tenant and state."""
        self.evicted = Counter()
        """Attempts that were stopped or lost, by tenant and cause."""
        self.attempts = Counter()
        """Attempts that are over, by cluster and outcome."""
        self.gpu_s = Counter()
        """GPU-seconds of attempts that are over, by tenant, model, and whether work was kept."""
        self.copies = Counter()
        """Copies of datasets, by source, target and result."""
        self.copy_bytes = Counter()
        """Bytes of complete copies, by source and target."""
        self.hosts = Counter()
        """What happened to hosts."""
        self.waits_s = Family(WAITS_S)
        """From submission to the first start, by tenant and band."""
        self.handle_s = Family(QUICK_S)
        """How long a machine took for one message, by the kind of machine."""
        self._handling: dict[str, Histogram] = {}
        """The same histograms by the address of a machine."""
        self.commit_s = histogram(QUICK_S)
        """How long a transaction of the journal took."""
        self.records = 0
        """Records that were committed."""
        self.dropped = 0
        """Events that no journal can hold."""

    def recovered(self) -> None:
        """Count what runs already. O(jobs with a place)."""
        self.running, self._counted = {}, {}
        self._began(list(self.queue.jobs.placed.values()))

    def note(self, event: Message, facts: Sequence[Struct]) -> None:
        """Count what a machine made of an event. O(facts, and what a submission says)."""
        for fact in facts:
            count = _COUNTED.get(type(fact))
            if count is not None:
                count(self, fact, event)

    def handled(self, address: str, begun_s: float) -> None:
        """A machine has handled a message that it began with at ``begun_s``. O(1)."""
        found = self._handling.get(address)
        if found is None:
            found = self.handle_s.member(address.partition("/")[0])
            self._handling[address] = found
        found.observe(self.stopwatch() - begun_s)

    def committed(self, took_s: float, records: int) -> None:
        """A transaction is durable, after ``took_s``. O(1)."""
        self.commit_s.observe(took_s)
        self.records += records

    def _began(self, records: Sequence[JobRecord]) -> list[Labels]:
        """Count jobs that have a place from now on; how each is counted."""
        keys: list[Labels] = [(r.spec.tenant, WORDS[r.spec.band]) for r in records]
        self._counted.update(zip([record.id for record in records], keys, strict=True))
        for key, count in tally(keys).items():
            self.running[key] = self.running.get(key, 0.0) + count
        return keys

    def _left(self, job: str) -> None:
        key = self._counted.pop(job, None)
        if key is not None:
            self.running[key] -= 1

    # --- one method for each fact ---------------------------------------------------------------

    def _admitted(self, fact: f.Admitted, event: SubmitJobs) -> None:
        for spec in event.jobs:
            self.submitted.add(spec.tenant, WORDS[spec.band], by=size_of((spec,)))

    def _planned(self, fact: f.Planned, event: Message) -> None:
        self._placed([self.queue.jobs.records[fact.job]])

    def _all_planned(self, fact: f.AllPlanned, event: Message) -> None:
        jobs, records = fact.columns(event).jobs[fact.first :], self.queue.jobs.records
        self._placed([records[job] for job in jobs[: len(fact.epochs)]])

    def _placed(self, records: Sequence[JobRecord]) -> None:
        regions = [record.region or "" for record in records]
        placed = zip(self._began(records), regions, strict=True)
        for (labels, region), count in tally(placed).items():
            self.admitted.add(*labels, region, by=count)

    def _unplanned(self, fact: f.Unplanned, event: Message) -> None:
        spec = self.queue.jobs.records[fact.job].spec
        self.refused.add(spec.tenant)
        self._left(fact.job)

    def _moved(self, fact: f.Moved, event: Message) -> None:
        record = self.queue.jobs.records.get(fact.job)
        if record is None:
            return
        if fact.to is JobState.STARTING:
            self._started([record])
        elif fact.to in TERMINAL:
            self.finished.add(record.spec.tenant, fact.to.value)

    def _all_starting(self, fact: f.AllStarting, event: AttemptsStarting) -> None:
        records = self.queue.jobs.records
        self._started([records[job] for job in event.jobs])

    def _started(self, records: Sequence[JobRecord]) -> None:
        waited = [
            (r.start_s - r.submit_s, r.spec.tenant, WORDS[r.spec.band])
            for r in records
            if r.first_start_s == r.start_s is not None
        ]
        for (wait_s, *labels), count in tally(waited).items():
            self.waits_s.member(*labels).observe(wait_s, count)

    def _ended(self, fact: f.Ended, event: AttemptEnded) -> None:
        record = self.queue.jobs.records.get(fact.job)
        if record is None:
            return
        tenant = record.spec.tenant
        self._left(fact.job)
        self.attempts.add(record.cluster or "", event.outcome.value)
        if event.outcome in _EVICTED:
            self.evicted.add(tenant, event.outcome.value)
        if fact.to in TERMINAL:
            self.finished.add(tenant, fact.to.value)
        gpus, model = (record.gpus_milli or 0) / MILLI, record.model or ""
        held_s = max(0.0, event.held_s)
        kept_s = min(held_s, max(0.0, event.kept_s))
        self.gpu_s.add(tenant, model, "kept", by=gpus * kept_s)
        self.gpu_s.add(tenant, model, "lost", by=gpus * (held_s - kept_s))

    def _copied(self, fact: f.CopyReady, event: Message) -> None:
        copy = fact.copy
        self.copies.add(copy.source, copy.target, "complete")
        self.copy_bytes.add(copy.source, copy.target, by=copy.bytes)

    def _not_copied(self, fact: f.CopyGone, event: Message) -> None:
        self.copies.add(fact.copy.source, fact.copy.target, "failed")

    def _reached(self, fact: p.HostReachable, event: Message) -> None:
        self.hosts.add("up" if fact.up else "down")

    def _closed(self, fact: p.HostClosure, event: Message) -> None:
        self.hosts.add("closed" if fact.why else "opened")

    def _suspected(self, fact: p.HostSuspected, event: Message) -> None:
        self.hosts.add("suspected")


_EVICTED = (Outcome.PREEMPTED, Outcome.HOST_LOST, Outcome.LAUNCH_FAILED)

_COUNTED: dict[type[Struct], Callable[..., None]] = {
    f.Admitted: Meter._admitted,
    f.Planned: Meter._planned,
    f.AllPlanned: Meter._all_planned,
    f.AllStarting: Meter._all_starting,
    f.Unplanned: Meter._unplanned,
    f.Moved: Meter._moved,
    f.Ended: Meter._ended,
    f.CopyReady: Meter._copied,
    f.CopyGone: Meter._not_copied,
    p.HostReachable: Meter._reached,
    p.HostClosure: Meter._closed,
    p.HostSuspected: Meter._suspected,
}
