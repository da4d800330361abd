"""The books: every job, attempt and copy as it happens, streamed to tables, summed up as it goes.

A watcher of the loop. It hears what machines were told and decided, and keeps only the jobs that
are not over; what is over goes into a row and into sums (`summary.py`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from topmast.fast.cluster.facts import Joined
from topmast.fast.queue import facts as f
from topmast.fast.region.facts import HostReachable
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.fleet import Fleet
from topmast.model.ids import Address
from topmast.model.job import Band, JobSpec
from topmast.model.plan import Binding
from topmast.model.states import TERMINAL, JobState, Outcome
from topmast.sim.books import (
    FAILURES,
    PACKED,
    RUNNING,
    SUSPENDED,
    UNPACKED,
    Finished,
    Job,
    Tables,
    TimeShare,
    Totals,
    gpus_by_host,
)
from topmast.sim.timeline import Timeline
from topmast.sim.workload import Arrival

BAND_NAMES = {band: band.name.lower() for band in Band}
IN_USE = 1e-6
"""A host with less than that of its GPUs taken has none in use: sums of shares are not exact."""


class Recorder:
    """Keeps the books of one run.

    ``queue_jobs`` gives the state of a job in the queue; ``holds_data`` whether a region has all
    of a job's datasets; ``kind_of`` the class of a job for the split of demand.
    """

    def __init__(
        self,
        fleet: Fleet,
        tables: Tables,
        timeline: Timeline,
        window: tuple[float, float],
        holds_data: Callable[[JobSpec, str], bool],
        kind_of: Callable[[Arrival], object],
    ) -> None:
        self.tables = tables
        self.timeline = timeline
        self.totals = Totals()
        self.finished = Finished(
            array("d"), array("d"), array("d"), array("d"), array("d"), array("q"), array("q"),
            array("q"), array("d"),
        )  # fmt: skip
        self.tenants: dict[str, int] = {}
        self.models: dict[str, int] = {}
        self.jobs: dict[str, Job] = {}
        self.names: dict[str, str] = {}
        self.over = 0
        self._window = window
        self._holds_data = holds_data
        self._kind_of = kind_of
        self._region_number = {region: i for i, region in enumerate(timeline.regions)}
        hosts = [(r.name, h) for r in fleet.regions for c in r.clusters for h in c.hosts]
        self._gpus_of = {host.name: float(host.gpus) for _, host in hosts}
        self._model_of = {host.name: host.model for _, host in hosts}
        self._region_of = {host.name: region for region, host in hosts}
        self._used: dict[str, float] = {}
        self.total_gpus = sum(self._gpus_of.values())
        self.launches = 0
        self.tell_over: Callable[[str, JobState], None] | None = None
        self._sizes: dict[str, int] = {}
        self.one_copy_bytes = 0
        self.replica_bytes = 0
        # What holds since `_now`.
        self._now = window[0]
        self._queued = 0
        self._held = 0.0
        self._present = self.total_gpus
        self._stranded = 0.0
        self._load = 0.0
        self._alive = 0

    # --- time -------------------------------------------------------------------------------------

    def advance(self, now: float) -> None:
        """Bring all integrals up to ``now``, before anything changes. O(1), and a row per
        interval.
        """
        before = self._now
        passed_s = now - before
        if passed_s <= 0:
            return
        timeline, totals = self.timeline, self.totals
        if now >= timeline.next_cut_s or timeline.dirty:
            timeline.advance(now)
        if self._queued:
            totals.held_waiting_gpu_s += self._held * passed_s
            totals.present_waiting_gpu_s += self._present * passed_s
            totals.stranded_waiting_gpu_s += self._stranded * passed_s
        first_s, last_s = self._window
        overlap_s = (now if now < last_s else last_s) - (before if before > first_s else first_s)
        if overlap_s > 0:
            totals.present_in_window_gpu_s += self._present * overlap_s
            totals.replica_byte_s += self.replica_bytes * overlap_s
            if self._queued:
                totals.held_waiting_in_window_gpu_s += self._held * overlap_s
                totals.present_waiting_in_window_gpu_s += self._present * overlap_s
        self._load += passed_s * self._alive
        self._now = now

    # --- what happens -----------------------------------------------------------------------------

    def submitted(self, job: str, arrival: Arrival, now: float) -> None:
        """A job was handed to the queue."""
        self.advance(now)
        kind = self._kind_of(arrival)
        known = self.jobs[job] = Job(arrival, self._load, kind)
        self._alive += 1
        self._wait(known, True, now)

    def _wait(self, job: Job, waits: bool, now: float) -> None:
        if job.waits is waits:
            return
        job.waits = waits
        sign = 1 if waits else -1
        self._queued += sign
        band = job.arrival.spec.band
        self.timeline.waits(job.kind, band, sign * job.arrival.gpus, now)

    def hears(self) -> Mapping[type[m.Message], Callable[..., None]]:
        """What to call when a machine has taken a message: address, message, facts, time."""
        return {
            m.LaunchGang: self._launched,
            m.AttemptEnded: self._attempt_ended,
            m.AttemptSuspended: self._suspended,
            m.AttemptContinued: self._continued,
            m.AttemptPacked: self._packed,
            m.CancelJobs: self._moved,
            m.SubmitJobs: self._bound,
            m.Wake: self._bound,
            m.ConfigureFleet: self._bound,
            m.HostChanged: self._host_changed,
        }

    def _bound(self, to: Address, event: m.Message, facts: Sequence[Struct], now: float) -> None:
        """Jobs were sent to wait somewhere: there is their demand, wherever their data may be."""
        for fact in facts:
            if isinstance(fact, f.Admitted):
                for number, place in enumerate(fact.places, fact.first_number):
                    self._belongs(ids.job_id(number), place, now)
            elif isinstance(fact, f.Bound):
                self._belongs(fact.job, fact.place, now)

    def _belongs(self, number: str, place: Binding | None, now: float) -> None:
        job = self.jobs.get(number)
        if job is None:
            return
        kind = self._kind_of(job.arrival) if place is None else place.region
        if kind == job.kind:
            return
        self.advance(now)
        waited = job.waits
        self._wait(job, False, now)
        job.kind = kind
        self._wait(job, waited, now)

    def _launched(
        self, to: Address, event: m.LaunchGang, facts: Sequence[Struct], now: float
    ) -> None:
        """A cluster takes an attempt: its GPUs are held from now on."""
        if not facts:
            return  # a repetition
        self.advance(now)
        job = self.jobs[event.job]
        spec, region = event.spec, event.region
        self._wait(job, False, now)
        if job.ended is not None:
            self._comes_back(job, event)
        job.epoch, job.start_s, job.region, job.cluster = event.epoch, now, region, event.cluster
        if spec.datasets and not self._holds_data(spec, region):
            job.collocated = False
        seats = event.seats
        job.gpus_on = gpus_on = gpus_by_host(seats)
        job.hosts, job.gpus = tuple(gpus_on), job.arrival.gpus
        if spec.elastic is not None:
            job.tasks, job.gpus = len(seats), sum(gpus_on.values())
        job.model = self._model_of[job.hosts[0]]
        self.launches += 1
        if len(facts) > 1 and any(isinstance(fact, Joined) for fact in facts):
            job.start_s = None  # it takes turns: they say when it has its GPUs
            self._wait(job, True, now)
        else:
            if job.first_start_s is None:
                job.first_start_s = now
            self._hold(job, +1, now)

    def _suspended(
        self, to: Address, event: m.AttemptSuspended, facts: Sequence[Struct], now: float
    ) -> None:
        """Others have the GPUs of an attempt: its turn is over."""
        job = self.jobs.get(event.job)
        if to == ids.QUEUE or job is None or job.start_s is None or job.epoch != event.epoch:
            return
        self.advance(now)
        self._hold(job, -1, now)
        self._wait(job, True, now)
        job.turns.append(TimeShare(job.start_s, now, job.share, SUSPENDED))
        job.start_s = None
        self.totals.suspensions += 1

    def _packed(
        self, to: Address, event: m.AttemptPacked, facts: Sequence[Struct], now: float
    ) -> None:
        """Another has the same GPUs at the same time, or no more: each counts for half of them."""
        job = self.jobs.get(event.job)
        share = 0.5 if event.colocated_with else 1.0
        if to == ids.QUEUE or job is None or job.epoch != event.epoch or job.share == share:
            return
        self.advance(now)
        if job.start_s is not None:
            self._hold(job, -1, now)
        if job.start_s is not None and job.start_s < now:
            reason = PACKED if event.colocated_with else UNPACKED
            job.turns.append(TimeShare(job.start_s, now, job.share, reason))
            job.start_s = now
        job.share = share
        if job.start_s is not None:
            self._hold(job, +1, now)

    def _continued(
        self, to: Address, event: m.AttemptContinued, facts: Sequence[Struct], now: float
    ) -> None:
        """It has its GPUs again, or for the first time."""
        job = self.jobs.get(event.job)
        if to == ids.QUEUE or job is None or job.start_s is not None or job.epoch != event.epoch:
            return
        self.advance(now)
        self._wait(job, False, now)
        if job.first_start_s is None:
            job.first_start_s = now
        self._hold(job, +1, now)
        job.start_s = now

    def _comes_back(self, job: Job, event: m.LaunchGang) -> None:
        if job.tasks and job.tasks != len(event.seats):
            self.totals.resizes += 1
        if job.ended in FAILURES:
            job.restarts += 1
        elif tuple(dict.fromkeys(seat.host for seat in event.seats)) != job.hosts:
            self.totals.migrations += 1

    def _hold(self, job: Job, sign: int, now: float) -> None:
        share, used, gpus_of = job.share, self._used, self._gpus_of
        gpus = job.gpus * share * sign
        self._held += gpus
        for host, whole in job.gpus_on.items():
            before = used.get(host, 0.0)
            used[host] = after = before + sign * (whole * share)
            # GPUs of the host that are free while others of it are in use.
            idle = gpus_of[host] - after if after > IN_USE else 0.0
            self._stranded += idle - (gpus_of[host] - before if before > IN_USE else 0.0)
        number = self._region_number[job.region]
        self.timeline.runs(number, job.arrival.spec.band, gpus, now)

    def _attempt_ended(
        self, to: Address, event: m.AttemptEnded, facts: Sequence[Struct], now: float
    ) -> None:
        if to == ids.QUEUE:
            for fact in facts:
                if isinstance(fact, f.Ended) and fact.to in TERMINAL:
                    self._over(event.job, fact.to, now)
            return
        job = self.jobs.get(event.job)
        if job is None or job.epoch != event.epoch or not (job.turns or job.start_s is not None):
            return
        self.advance(now)
        if job.start_s is not None:
            self._hold(job, -1, now)
        if event.outcome is Outcome.SUCCEEDED:
            self._gone(job)
        else:
            self._wait(job, True, now)
        self._book(job, event, now)

    def _book(self, job: Job, event: m.AttemptEnded, now: float) -> None:
        """The rows of an attempt, one for each turn, and what they add to the sums.

        What is kept is what it did first: turns come one after the other.
        """
        turns, reason, kept_s, start_s = job.turns, event.outcome, event.kept_s, job.start_s
        self.totals.attempts += 1
        if start_s is not None and not turns:  # it had its GPUs from first to last
            length_s, end_s = now - start_s, now
            epoch = job.epoch + job.rows_before
            self._row(job, epoch, start_s, now, job.share, kept_s, reason)
            job.held_s += length_s
            job.lost_gpu_s += job.gpus * job.share * (length_s - kept_s)
        else:
            if start_s is not None:
                turns = [*turns, TimeShare(start_s, now, job.share, reason)]
            held_s, lost_gpu_s = self._rows(job, turns, kept_s, reason)
            job.rows_before += len(turns) - 1
            job.held_s += held_s
            job.lost_gpu_s += lost_gpu_s
            end_s, job.turns = turns[-1].end_s, []
        job.end_s = end_s
        job.preemptions += reason is Outcome.PREEMPTED
        job.ended = reason
        job.start_s, job.share = None, 1.0

    def _rows(
        self, job: Job, turns: Sequence[TimeShare], kept_s: float, reason: str
    ) -> tuple[float, float]:
        """Write a row for each turn; returns seconds held, and GPU-seconds of them not kept."""
        left_s, held_s, lost_gpu_s = kept_s, 0.0, 0.0
        for number, turn in enumerate(turns):
            last, length_s = number == len(turns) - 1, turn.end_s - turn.start_s
            kept_of_turn_s = left_s if last else min(left_s, length_s)
            left_s -= kept_of_turn_s
            held_s += length_s
            lost_gpu_s += job.gpus * turn.share * (length_s - kept_of_turn_s)
            why = reason if last else turn.end_reason
            epoch = job.epoch + job.rows_before + number
            self._row(job, epoch, turn.start_s, turn.end_s, turn.share, kept_of_turn_s, why)
        return held_s, lost_gpu_s

    def cut(self, now: float) -> None:
        """The run ends before its attempts do: so do their rows, and all of it counts as kept."""
        self.advance(now)
        for job in self.jobs.values():
            turns = job.turns
            if job.start_s is not None:
                turns = [*turns, TimeShare(job.start_s, now, job.share, RUNNING)]
            self.totals.attempts += bool(turns)
            self._rows(job, turns, sum(turn.end_s - turn.start_s for turn in turns), RUNNING)

    def _row(
        self,
        job: Job,
        epoch: int,
        start_s: float,
        end_s: float,
        share: float,
        kept_s: float,
        reason: str,
    ) -> None:
        """Write when an attempt had its GPUs, a row for each host, and add it to the sums."""
        gpus, totals = job.gpus * share, self.totals
        first_s, last_s = self._window
        from_s = start_s if start_s > first_s else first_s
        held_s = (end_s if end_s < last_s else last_s) - from_s
        if held_s > 0.0:
            totals.held_in_window_gpu_s += gpus * held_s
        kept_to_s = start_s + kept_s
        in_window_s = (kept_to_s if kept_to_s < last_s else last_s) - from_s
        if in_window_s > 0.0:
            totals.kept_in_window_gpu_s += gpus * in_window_s
        name, write, model_of = job.arrival.spec.name, self.tables.allocations, self._model_of
        for host, taken in job.gpus_on.items():
            write(
                (
                    name, epoch, job.region, job.cluster, host, model_of[host], taken * share,
                    start_s, end_s, kept_s, reason,
                )
            )  # fmt: skip

    def _moved(self, to: Address, event: m.Message, facts: Sequence[Struct], now: float) -> None:
        for fact in facts:
            if isinstance(fact, f.Moved) and fact.to in TERMINAL:
                self._over(fact.job, fact.to, now)

    def _host_changed(
        self, to: Address, event: m.HostChanged, facts: Sequence[Struct], now: float
    ) -> None:
        for fact in facts:
            if isinstance(fact, HostReachable):
                self.advance(now)
                gpus = self._gpus_of[fact.host] * (1.0 if fact.up else -1.0)
                number = self._region_number[self._region_of[fact.host]]
                self.timeline.changes_supply(number, gpus, now)
                self._present += gpus

    def _over(self, number: str, state: JobState, now: float) -> None:
        """A job is over: its row, its sums, and it is forgotten."""
        self.advance(now)
        job = self.jobs.pop(number)
        self._wait(job, False, now)
        self._gone(job)
        self.over += 1
        self.close(job, state)
        if self.tell_over is not None:
            self.tell_over(job.arrival.spec.name, state)

    def _gone(self, job: Job) -> None:
        """A job is there no more, though the queue may still have to hear of it."""
        if job.load_at_end is None:
            job.load_at_end = self._load
            self._alive -= 1

    # --- the end of a job -------------------------------------------------------------------------

    def close(self, job: Job, state: JobState) -> None:
        """Write the row of a job; one that is not over has no time of finish."""
        arrival, totals = job.arrival, self.totals
        spec, submit_s = arrival.spec, arrival.submit_s
        terminal = state in TERMINAL
        finish_s = job.end_s if terminal and job.ended is not None else None
        wait_s = None if finish_s is None else finish_s - submit_s - job.held_s
        self.tables.jobs(
            (
                spec.name, spec.tenant, spec.user, spec.group, BAND_NAMES[spec.band], state,
                submit_s, job.first_start_s, finish_s, wait_s, job.region, job.cluster,
                arrival.gpus, job.preemptions, job.restarts, job.lost_gpu_s, int(job.collocated),
            )
        )  # fmt: skip
        totals.states[state] = totals.states.get(state, 0) + 1
        totals.preemptions += job.preemptions
        totals.restarts += job.restarts
        totals.lost_gpu_s += job.lost_gpu_s
        totals.started_elsewhere += not job.collocated
        if finish_s is None or wait_s is None:
            return
        totals.last_finish_s = max(totals.last_finish_s, finish_s)
        if arrival.deadline_s == arrival.deadline_s:  # not NaN
            totals.deadlines += 1
            met = state is JobState.SUCCEEDED and finish_s <= submit_s + arrival.deadline_s
            totals.deadlines_met += met
        if state is JobState.SUCCEEDED:
            self._count(job, finish_s, wait_s)

    def _count(self, job: Job, finish_s: float, wait_s: float) -> None:
        arrival, done = job.arrival, self.finished
        jct_s = finish_s - arrival.submit_s
        done.submit_s.append(arrival.submit_s)
        done.jct_s.append(jct_s)
        done.wait_s.append(wait_s)
        done.first_wait_s.append((job.first_start_s or 0.0) - arrival.submit_s)
        done.band.append(int(arrival.spec.band))
        tenants, models = self.tenants, self.models
        done.tenant.append(tenants.setdefault(arrival.spec.tenant, len(tenants)))
        done.model.append(models.setdefault(job.model, len(models)))
        done.gpus.append(arrival.gpus)
        present = ((job.load_at_end or 0.0) - job.load_at_submit) / jct_s if jct_s > 0 else 1.0
        share = arrival.gpus * present / self.total_gpus if self.total_gpus else 1.0
        alone_s = job.held_s * max(1.0, share)
        done.fairness.append(jct_s / alone_s if alone_s > 0 else 1.0)

    # --- data -------------------------------------------------------------------------------------

    def replica_came(
        self, dataset: str, source: str, target: str, size: int, from_s: float, to_s: float, by: str
    ) -> None:
        """A replica is complete; it was copied because of a job, which people know by its own
        name.
        """
        self.advance(to_s)
        job = self.jobs.get(by)
        cause = by if job is None else job.arrival.spec.name
        self.tables.copies((dataset, source, target, size, from_s, to_s, cause))
        if dataset not in self._sizes:
            self._sizes[dataset] = size
            self.one_copy_bytes += size
        self.replica_bytes += size
        self.timeline.moved(to_s)

    def replica_went(self, dataset: str, region: str, now: float) -> None:
        """A replica was dropped."""
        self.advance(now)
        size = self._sizes.get(dataset, 0)
        self.tables.copies((dataset, region, "", size, now, now, "dropped"))
        self.replica_bytes -= size
        self.timeline.moved(now)
