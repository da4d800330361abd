"""Waiting jobs: in what order they are tried, and which need not be tried now.

Jobs that ask for the same on the same terms are of one line. If one of them finds no place, nobody
behind it in the order does; the line is closed until something that could help has changed (fast-path:
negative cache). The order of all jobs, lines or not, is that of the ranking.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from topmast.fast.queue.backlog.durations import LONGEST_S, Durations, left_of
from topmast.fast.queue.backlog.ordered_index import Key
from topmast.fast.queue.backlog.placement_class import Kin, Kindred, likeness_of, wanted_of
from topmast.fast.queue.backlog.ranking import Ranking, Waiting
from topmast.fast.queue.backlog.topology_policy import Shapes
from topmast.fast.queue.record import JobRecord
from topmast.fast.queue.rounds.rounds import Rounds
from topmast.fast.queue.tenancy.entitlements import Wanted
from topmast.model.fleet import Fleet
from topmast.model.job import MILLI, Band, JobSpec, Topology
from topmast.model.plan import Binding
from topmast.model.reason import PendingReason
from topmast.policies.base import Order, QueueView
from topmast.policies.options import ShareOptions

Shape = tuple[object, ...]
TERMS_KEPT = 1_024
"""With more terms than that, those of which the last line goes are forgotten: they often come again."""


class Terms(Struct):
    """Lines of one tenant that want the same of its quota; ``lines``: those, by number.

    ``choices``: by mode, what they may use, as of a change of the ledger; ``wanted``: what they want of each
    model of a ``fleet``.
    """

    key: Shape
    spec: JobSpec
    lines: dict[int, Line] = {}
    as_of: int = -1
    choices: dict[bool, tuple[int, ...]] = {}
    fleet: Fleet | None = None
    wanted: Wanted = ()


class Line(Struct):
    """Jobs that fit alike, and why the last one tried found no place. ``size`` counts them.

    ``kin``: by mode, all who find a place, or none, as these do.
    ``refused``: by mode (within quota, or over it) the accelerators of ``spec`` that it might have used
    when it was refused; kept where quota might let it use others. ``granted``: the only one of its accelerators
    that a round leaves its jobs; ``beside``: the job on whose GPUs it leaves them a place.
    """

    number: int
    shape: Shape
    spec: JobSpec
    terms: Terms
    kin: dict[bool, Kin] = {}
    refused: dict[bool, frozenset[int]] = {}
    size: int = 0
    reason: PendingReason = PendingReason.PENDING_EVALUATION
    detail: str = ""
    retry_at_s: float | None = None
    granted: int | None = None
    beside: str = ""


class Candidate(Struct, frozen=True, gc=False):
    """The next job to be tried: within its tenant's quota, or over it."""

    job: str
    key: Key
    over_quota: bool


def shape_of(
    spec: JobSpec,
    topology: Topology,
    avoid_hosts: tuple[str, ...],
    bound: Binding | None = None,
    granted: int | None = None,
    beside: str = "",
) -> Shape:
    """Everything that decides where a job may run, and for whom it may make others go."""
    return (
        spec.tenant,
        spec.band,
        wanted_of(spec),
        topology,
        spec.datasets,
        spec.preemptible,
        avoid_hosts,
        bound,
        granted,
        beside,
    )


class Pending:
    """All jobs that may be placed now, and those that must wait out a back-off."""

    def __init__(
        self,
        order: Order,
        fairness: Callable[[str], float],
        durations: Durations,
        shapes: Shapes | None = None,
        rounds: Rounds | None = None,
    ) -> None:
        self.ranking = Ranking(order, fairness)
        self.durations = durations
        self.shapes = shapes or Shapes(None)
        self.rounds = Rounds(ShareOptions(), None) if rounds is None else rounds
        self.lines: dict[Shape, Line] = {}
        self.kindred = Kindred()
        self._terms: dict[Shape, Terms] = {}
        self._movers: dict[str, None] = {}
        """Jobs for which a place may be kept."""
        self.stirred = True
        """Whether a candidate may have come up since `next` found none."""
        self.changes = 0
        """How often everything was reopened."""
        self._line_of: dict[str, Line] = {}
        self._by_number: dict[int, Line] = {}
        self._readers: dict[str, dict[int, None]] = {}
        """By dataset, the lines whose jobs read it, by number."""
        self._limited: dict[str, dict[int, Line]] = {}
        """By tenant and number, lines that were refused, and that quota might let use more."""
        self._free_numbers: list[int] = []
        self._retrying: dict[int, Line] = {}
        self._retries: list[tuple[float, int]] = []
        """When time reopens them, the first in front; entries that no longer hold are skipped."""
        self._stopped: Candidate | None = None
        self._delayed: list[tuple[float, int, str]] = []
        self._delayed_jobs: dict[str, JobRecord] = {}

    def add(self, record: JobRecord, now: float) -> None:
        """Let a job be tried in its turn, or wait until its back-off is over. O(1), or O(log jobs)."""
        if record.not_before_s > now:
            heapq.heappush(self._delayed, (record.not_before_s, record.number, record.id))
            self._delayed_jobs[record.id] = record
            return
        granted = self.rounds.choice(record.id)
        topology = self.shapes.topology_of(record.spec)
        beside = self.rounds.beside(record.id)
        shape = shape_of(record.spec, topology, record.avoid_hosts, record.bound, granted, beside)
        line = self.lines.get(shape)
        if line is None:
            number = self._free_numbers.pop() if self._free_numbers else len(self.lines)
            spec, avoided, bound = record.spec, record.avoid_hosts, record.bound
            kin = {
                over: self.kindred.join(
                    likeness_of(spec, topology, avoided, bound, over, granted, beside), number
                )
                for over in (False, True)
            }
            terms = self._terms_of(spec)
            line = self.lines[shape] = Line(
                number, shape, spec, terms, kin, granted=granted, beside=beside
            )
            self._by_number[number] = line.terms.lines[number] = line
            for dataset in record.spec.datasets:
                self._readers.setdefault(dataset, {})[number] = None
            for one in kin.values():
                if len(one.lines) == 1:
                    self.ranking.new_kin(one.number)
            self.ranking.new_line(number, kin[False].number, kin[True].number)
        line.size += 1
        self._line_of[record.id] = line
        if record.moves:
            self._movers[record.id] = None
        self.ranking.add(self._ranked(record, line.number))
        self.stirred = True

    def _terms_of(self, spec: JobSpec) -> Terms:
        """The terms of one more line. O(groups)."""
        key = (spec.tenant, wanted_of(spec), spec.band is Band.OPPORTUNISTIC, spec.preemptible)
        terms = self._terms.get(key)
        if terms is None:
            terms = self._terms[key] = Terms(key, spec)
        return terms

    def _ranked(self, record: JobRecord, line: int) -> Waiting:
        spec = record.spec
        gpus, expected_s = spec.gpus_milli() / MILLI, self.durations.expected_s(spec)
        executed_s = record.held_s - record.uncounted_s
        return Waiting(
            job=record.id,
            number=record.number,
            line=line,
            tenant=spec.tenant,
            band=spec.band,
            submit_s=record.submit_s,
            gpus=gpus,
            tasks=spec.tasks,
            duration_s=min(LONGEST_S, expected_s),
            remaining_s=min(LONGEST_S, left_of(expected_s, record)),
            attained_gpu_s=executed_s * gpus + record.extra_gpu_s,
            executed_s=executed_s,
            first_start_s=math.inf if record.first_start_s is None else record.first_start_s,
            since_s=record.submit_s if record.stopped_s is None else record.stopped_s,
            turn=self.rounds.turn(record.id),
        )

    def remove(self, job: str) -> None:
        """Take a job out, wherever it stands. O(1)."""
        self._delayed_jobs.pop(job, None)
        line = self._line_of.pop(job, None)
        if line is None:
            return
        self._movers.pop(job, None)
        self.ranking.remove(job)
        if self._stopped is not None and self._stopped.job == job:
            self.reopen()  # those of its line come first now
        line.size -= 1
        if not line.size:
            self._drop(line)

    def _drop(self, line: Line) -> None:
        """Nobody is of a line any more. O(datasets)."""
        del self.lines[line.shape]
        del self._by_number[line.number]
        for kin in line.kin.values():
            self.kindred.leave(kin, line.number)
        for dataset in line.spec.datasets:
            readers = self._readers[dataset]
            del readers[line.number]
            if not readers:
                del self._readers[dataset]
        del line.terms.lines[line.number]
        if not line.terms.lines and len(self._terms) > TERMS_KEPT:
            del self._terms[line.terms.key]
        self._forget_limits(line)
        self._free_numbers.append(line.number)
        self._retrying.pop(line.number, None)

    # --- order ------------------------------------------------------------------------------------

    def rerank(self, now: float) -> None:
        """Bring the order up to ``now``. O(jobs log jobs), or O(1) if time does not change it."""
        if not self.ranking.order.by_time:
            self.ranking.ranked_at_s = now
            return
        self.ranking.rerank(now)
        if self._stopped is not None:
            self.reopen()  # somebody else may stand in front now

    def take_turns(self, waiting: Sequence[JobRecord], now: float) -> None:
        """A round has begun: rank anew, and ask about everybody as he is granted GPUs. O(jobs log jobs)."""
        for record in waiting:
            line, rounds = self._line_of[record.id], self.rounds
            granted = rounds.choice(record.id), rounds.beside(record.id)
            if (line.granted, line.beside) != granted:
                self.remove(record.id)
                self.add(record, now)
        self.ranking.take_turns(self.rounds.turns())
        self.order_changed(now)

    def order_changed(self, now: float) -> None:
        """The order itself is another: rank all anew, and ask about everybody. O(jobs log jobs)."""
        self.ranking.rerank(now)
        self.reopen()

    @property
    def ranked_at_s(self) -> float:
        """As of when jobs are ranked."""
        return self.ranking.ranked_at_s

    def next(self) -> Candidate | None:
        """The first job in order that may be asked about; of one job, first within its quota."""
        best: Candidate | None = None
        for over_quota in (False, True):
            found = self.ranking.first_open(over_quota)
            if found is not None and (best is None or found[0] < best.key):
                best = Candidate(found[1], found[0], over_quota)
            if self.ranking.all_within():
                break
        if best is None or (self._stopped is not None and best.key > self._stopped.key):
            self.stirred = False
            return None
        return best

    def stop_at(self, candidate: Candidate) -> None:
        """Nobody behind this job may be tried until `reopen`, or until it is gone."""
        self._stopped = candidate

    def key(self, record: JobRecord, over_quota: bool) -> Key:
        """Where a waiting job ranks, lower first. One that waits out a back-off comes last."""
        key = self.ranking.key(record.id, over_quota)
        return (float("inf"), float(record.number)) if key is None else key

    def key_of_newcomer(self, record: JobRecord, over_quota: bool) -> Key:
        """Where a job would rank that nobody has submitted. O(1)."""
        band = Band.OPPORTUNISTIC if over_quota else record.spec.band
        (key,) = self.ranking.keys_of([replace(self._ranked(record, line=0), band=band)], False)
        return (*key, math.inf)

    def waits_behind(self, candidate: Candidate) -> str:
        """The job that is to start first, where nobody may overtake it; empty if there is none."""
        first = self._stopped
        if first is None or first.job == candidate.job or candidate.key <= first.key:
            return ""
        return first.job

    def keys_of_running(self, records: Sequence[JobRecord], now: float) -> list[Key]:
        """Where running jobs would rank among the waiting ones, without a row. O(running)."""
        return self.ranking.keys_of([self._ranked_as_running(record, now) for record in records])

    def _ranked_as_running(self, record: JobRecord, now: float) -> Waiting:
        ranked = self._ranked(record, line=0)
        since_s = now if record.start_s is None else record.start_s
        ran_s = max(0.0, now - since_s)
        gpus, worked_s = ranked.gpus, ran_s
        if record.spec.elastic is not None and record.gpus_milli is not None and gpus:
            gpus = record.gpus_milli / MILLI
            worked_s *= gpus / ranked.gpus  # as if it worked in proportion to its GPUs
        return replace(
            ranked,
            band=record.band,
            remaining_s=max(0.0, ranked.remaining_s - worked_s),
            attained_gpu_s=ranked.attained_gpu_s + ran_s * gpus,
            executed_s=ranked.executed_s + ran_s,
            since_s=since_s,
        )

    def view_of(self, record: JobRecord, now: float) -> QueueView:
        """One job, running or waiting, as the order sees it. O(1)."""
        if record.plan is None:
            return self.ranking.view_of([self._ranked(record, line=0)], now, running=False)
        return self.ranking.view_of([self._ranked_as_running(record, now)], now, running=True)

    def remaining_s(self, record: JobRecord) -> float:
        """How long a job is expected to need; settled when it began to wait."""
        known = self.ranking.remaining_s(record.id)
        return self.durations.remaining_s(record) if known is None else known

    def in_order(self) -> Iterator[str]:
        """Every job that may be placed, from the head on. O(jobs)."""
        return self.ranking.in_order()

    # --- back-off ---------------------------------------------------------------------------------

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

    # --- lines ------------------------------------------------------------------------------------

    def close(
        self,
        line: Line,
        over_quota: bool,
        retry_at_s: float | None,
        from_s: float = -math.inf,
        choices: tuple[int, ...] = (),
        limited: bool = True,
        refused: bool = False,
    ) -> None:
        """A line found no place in one mode: ask no more until `reopen`, or ``retry_at_s``. O(1).

        With ``from_s``, those are still asked about that are expected to need less. ``choices``: the
        accelerators that its tenant might have used; ``limited``: others may change that. ``refused``: for
        what its kin was told.
        """
        self.ranking.close(line.number, over_quota, from_s)
        if refused:
            line.kin[over_quota].refused[line.number] = None
        if limited:
            line.refused[over_quota] = frozenset(choices)
            self._limited.setdefault(line.spec.tenant, {})[line.number] = line
        if retry_at_s is not None:
            line.retry_at_s = min(retry_at_s, line.retry_at_s or retry_at_s)
            self._retrying[line.number] = line
            heapq.heappush(self._retries, (line.retry_at_s, line.number))

    def close_terms(self, line: Line, over_quota: bool, *, limited: bool) -> None:
        """A line may use nothing in one mode, nor may those on the same terms: ask about none. O(those).

        Those that were refused before stay as they are: they come up when something may help them.
        """
        for other in line.terms.lines.values():
            if over_quota not in other.refused:
                self.close(other, over_quota, None, limited=limited)

    def pass_over(self, kin: Kin, from_s: float) -> None:
        """Pass over all of a kin for what it was told; not while some of them may do what others may not. O(1)."""
        if not self._movers:
            self.ranking.close_kin(kin.number, kin.over_quota, from_s)

    def reopen_line(self, job: str) -> None:
        """A job may do what others of its line may not: ask about its line again. O(1)."""
        line = self._line_of.get(job)
        if line is not None:
            self._open(line)
            for kin in line.kin.values():
                self.ranking.open_kin(kin.number, kin.over_quota)

    def reopen_refused(self) -> None:
        """Whoever comes first may do what he could not, but is told the same else: ask in turn. O(lines)."""
        for kin in self.kindred:
            self._open_kin(kin)

    def _open_kin(self, kin: Kin) -> None:
        self.ranking.open_kin(kin.number, kin.over_quota)
        for line in list(kin.refused):
            self._open(self._by_number[line], (kin.over_quota,))
        self.stirred = True

    def reopen_kin(self, numbers: Iterable[int]) -> None:
        """There may be room for these: ask again about who was refused. O(lines of theirs)."""
        for number in numbers:
            kin = self.kindred.get(number)
            if kin is not None:
                self._open_kin(kin)
                kin.forget()
                self.changes += 1

    def refused_kin(self) -> Iterator[tuple[Kin, JobSpec]]:
        """Every kin of which somebody was refused for want of a place, and one of its jobs. O(kin)."""
        for kin in self.kindred:
            if kin.refused or kin.told:
                yield kin, self._by_number[next(iter(kin.lines))].spec

    def reopen_readers(self, dataset: str) -> None:
        """A dataset can be read in one more region: ask again about the lines that read it. O(those)."""
        lines = [self._by_number[number] for number in self._readers.get(dataset, ())]
        for line in lines:
            self._open(line)
        self.reopen_kin({kin.number: None for line in lines for kin in line.kin.values()})

    def _open(self, line: Line, modes: tuple[bool, ...] = (False, True)) -> None:
        for over_quota in modes:
            self.ranking.open_line(line.number, over_quota)
            line.refused.pop(over_quota, None)
            line.kin[over_quota].refused.pop(line.number, None)
        if not line.refused:
            self._forget_limits(line)
        self.stirred = True
        if self._stopped is not None and self._line_of.get(self._stopped.job) is line:
            self._stopped = None

    def _forget_limits(self, line: Line) -> None:
        of_tenant = self._limited.get(line.spec.tenant)
        if of_tenant is not None:
            of_tenant.pop(line.number, None)
            if not of_tenant:
                del self._limited[line.spec.tenant]

    @property
    def wants_quota(self) -> bool:
        """Whether some line was refused that more quota might help."""
        return bool(self._limited)

    def reopen_for_quota(
        self,
        choices: Callable[[Line], Mapping[bool, tuple[int, ...]]],
        is_touched: Callable[[str], bool],
    ) -> None:
        """Ask again about the lines that may use more now than when they were refused, in the modes in which they do.

        Only tenants that are touched are looked at. O(tenants + lines of those).
        """
        for tenant in [tenant for tenant in self._limited if is_touched(tenant)]:
            for line in list(self._limited[tenant].values()):
                now = choices(line)
                for over_quota, had in list(line.refused.items()):
                    if now[over_quota] and not had.issuperset(now[over_quota]):
                        self._open(line, (over_quota,))

    def reopen(self) -> None:
        """Something changed that might help anyone: every line may be asked about again."""
        self.ranking.open_all()
        for of_tenant in self._limited.values():
            for line in of_tenant.values():
                line.refused.clear()
        self._limited.clear()
        self.kindred.forget()
        self.changes += 1
        self._stopped = None
        self.stirred = len(self.ranking) > 0

    def reopen_due(self, now: float) -> bool:
        """Reopen the lines for which time alone changes the answer; tells whether any was."""
        found = False
        while self._retries and self._retries[0][0] <= now:
            at_s, number = heapq.heappop(self._retries)
            line = self._retrying.get(number)
            if line is not None and line.retry_at_s == at_s:
                del self._retrying[number]
                line.retry_at_s = None
                self._open(line)
                found = True
        self.stirred = self.stirred or found
        return found

    def next_retry_s(self) -> float | None:
        """When time alone reopens a line. Amortised O(log lines)."""
        retries = self._retries
        while retries and not self._retries_at(*retries[0]):
            heapq.heappop(retries)
        return retries[0][0] if retries else None

    def _retries_at(self, at_s: float, number: int) -> bool:
        line = self._retrying.get(number)
        return line is not None and line.retry_at_s == at_s

    def line_of(self, job: str) -> Line | None:
        """The line of a job; None for one that may not be placed now."""
        return self._line_of.get(job)

    def line(self, job: str) -> Line:
        """The line of a job that may be placed now."""
        return self._line_of[job]


def effective_band(band: Band, over_quota: bool) -> Band:
    """Over quota everything runs opportunistically."""
    return Band.OPPORTUNISTIC if over_quota else band
