"""One run: the production machines, the simulated world around them, and what feeds and watches
them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from topmast import __version__
from topmast.fast.queue import Verdict
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.dataset import Copy, ReplicaState
from topmast.model.fleet import Fleet
from topmast.model.job import Band, JobSpec
from topmast.model.plan import Seat
from topmast.model.reason import PendingReason
from topmast.model.states import JobState
from topmast.policies.options import Predict, Profile
from topmast.runtime.machines import Machines
from topmast.runtime.planning.capacity_snapshot import growth_of
from topmast.sim.admission import Admission
from topmast.sim.ahead import Checkpoints
from topmast.sim.books import Job, Tables
from topmast.sim.clock import VirtualClock
from topmast.sim.engine import SimulatedEngine, Work
from topmast.sim.faults import HostFaults, mortality
from topmast.sim.grower import SimulatedGrower
from topmast.sim.heap import EventHeap, Priority
from topmast.sim.links import Links
from topmast.sim.loop import Hear, Loop, Ticks
from topmast.sim.mover import SimulatedMover
from topmast.sim.neighbours import Neighbours
from topmast.sim.on_way import OnWay
from topmast.sim.planning import (
    SimulatedCapacityPlanning,
    SimulatedDataPlanning,
    SimulatedSystem,
)
from topmast.sim.recorder import Recorder
from topmast.sim.settings import Settings
from topmast.sim.sharing import Sharing
from topmast.sim.speeds import rate, rate_of_size
from topmast.sim.streams import Streams
from topmast.sim.summary import distribution, summary_of
from topmast.sim.timeline import Timeline
from topmast.sim.workload import Arrival, Workload, first_and_last_s
from topmast.traces.throughputs import Throughputs
from topmast.traces.throughputs import Work as TimedWork
from topmast.traces.trace import COLUMNS, Texts, Trace

LOOK_EVERY = 1_024
"""After so many steps it is seen whether anything still happens, and progress is told."""
HOPELESS_REPAIRS = 100
"""Where nothing begins for so many mean repairs, every host has long been there, most of the time
all of them.
"""
ROWS_OF_TIMELINE = 500


class Waits(Struct, frozen=True):
    """A job that did not start, and why."""

    job_id: str
    reason: PendingReason
    detail: str = ""


class Result(Struct, frozen=True):
    """What became of a run. ``set_aside``: could never start; ``waiting``: nothing could help
    them.
    """

    summary: dict[str, Any]
    set_aside: list[Waits]
    waiting: list[Waits]
    events: int
    spent_s: dict[str, float]


class Simulation:
    """Everything of one run; `run` may be called once."""

    def __init__(
        self,
        trace: Trace,
        fleet: Fleet,
        profile: Profile,
        settings: Settings,
        tables: Tables,
        seed: int = 0,
        ticks: Ticks = lambda: 0.0,
        throughputs: Throughputs | None = None,
    ) -> None:
        self.trace = trace
        self.throughputs = throughputs
        self.fleet = fleet
        self.profile = profile
        self.settings = settings
        self.seed = seed
        self.window = first_and_last_s(trace)
        self.clock = VirtualClock()
        self.heap = EventHeap()
        self.machines = Machines(
            profile, reconcile=False, pair_speeds=throughputs
        )  # its engines lose no news
        self.workload = self._workload()
        self.admission = Admission(Machines(profile), fleet, growth_of(profile.slow))
        self.set_aside: list[Waits] = []
        self.submitted = 0
        self.arrivals_left = len(trace)
        self.handed_in_gpu_s = self.stock_gpu_s = 0.0
        self.work = Work()
        self.planning = self._planning()
        self.capacity = self._capacity()
        self.recorder = self._recorder(
            tables if self.planning is None else self.planning.watched(tables)
        )
        self.loop = Loop(self.machines, self.clock, self.heap, self._hears(), ticks)
        streams = Streams(seed)
        self.links = Links(settings, streams, self.clock, self.heap, self.loop)
        if Links.wanted(settings):
            self.loop.carrier = self.links
            self.machines.fleet_placer.placers = {}  # every region is another process
        self.mover = SimulatedMover(
            self.clock, self.heap, self.loop.post, self._copied, self.recorder.replica_went
        )
        self.loop.outside[ids.MOVER] = self.mover.order
        grower = SimulatedGrower(self.clock, self.heap, self.loop.post)
        self.loop.outside[ids.GROWER] = grower.order
        self.sharing = self._sharing()
        self.on_way = OnWay(self.work.marks, self.sharing, self.loop.post)
        self.engine_of: dict[str, SimulatedEngine] = {}
        """By host: hosts may change clusters."""
        self.engines = self._engines(streams)
        if profile.weighs_lost_work:
            Checkpoints(self.clock, self.work.engine_of, self.window[0]).go_ahead_in(self.loop)
        self.faults = HostFaults(settings, streams, self.heap, self.clock.now)
        self._arrivals: Iterator[Arrival] = iter(())
        self._next: Arrival | None = None
        self._seen = (0, 0)
        self._still_since_s = self.window[0]
        self._submit_s: dict[str, float] = {}
        self._depends = any(trace.depends_on.names)
        self._awaited: dict[str, JobState | None] = {}
        self._held_back: dict[str, Arrival] = {}
        if self._depends:
            self._awaited = dict.fromkeys(trace.job_id)
            self.recorder.tell_over = self._tell_over

    # --- composition ------------------------------------------------------------------------------

    def _workload(self) -> Workload:
        told = self.settings.durations_told
        told = self.profile.predict is not Predict.TREE if told is None else told
        return Workload(self.trace, self.fleet, self.throughputs, durations_told=told)

    def _recorder(self, tables: Tables) -> Recorder:
        first_s, last_s = self.window
        step_s = self.settings.timeline_s or max(60.0, (last_s - first_s) / ROWS_OF_TIMELINE)
        regions = [region.name for region in self.fleet.regions]
        gpus = [sum(h.gpus for c in r.clusters for h in c.hosts) for r in self.fleet.regions]
        bands = sorted({Band(b) for b in self.trace.band.tolist()}, reverse=True)
        timeline = Timeline(
            regions,
            gpus,
            bands,
            self.window,
            step_s,
            self._regions_of,
            tables.timeline,
            stretches=self.settings.timeline_s is None,
        )
        return Recorder(self.fleet, tables, timeline, self.window, self._holds_data, self._kind_of)

    def _hears(self) -> Mapping[type[m.Message], Hear]:
        hears = self.recorder.hears()
        if self.capacity is not None:
            hears = {**hears, m.HostsMoved: self.capacity.count_moved}
        return hears

    def _planning(self) -> SimulatedDataPlanning | None:
        if self.profile.slow.plan_data_every_s is None:
            return None
        return SimulatedDataPlanning(
            self.profile.slow, self.settings.plan_s, self.seed, self.trace, self._system(),
            self.clock, self.heap,
        )  # fmt: skip

    def _capacity(self) -> SimulatedCapacityPlanning | None:
        if self.profile.slow.plan_capacity_every_s is None:
            return None
        return SimulatedCapacityPlanning(
            self.profile.slow, self.settings.plan_s, self.window[1], self._system(),
            self.clock, self.heap,
        )  # fmt: skip

    def _system(self) -> SimulatedSystem:
        return SimulatedSystem(self.machines, lambda to, messages: self.loop.post(to, messages))

    def _engines(self, streams: Streams) -> dict[str, SimulatedEngine]:
        engines = {}
        model_of = {
            h.name: h.model for r in self.fleet.regions for c in r.clusters for h in c.hosts
        }

        real = self.settings.gpu_speed

        def speed(spec: JobSpec, seats: tuple[Seat, ...]) -> float:
            group = spec.groups[0]
            if not real and len(group.resources.accelerators) < 2 and group.min_count is None:
                return 1.0  # as nearly always
            by_model = rate(spec, [model_of[seat.host] for seat in seats], real)
            return by_model * rate_of_size(spec, seats, self.settings.elastic_efficiency)

        for cluster in (c for r in self.fleet.regions for c in r.clusters):
            engine = engines[cluster.name] = SimulatedEngine(
                ids.cluster(cluster.name), self.settings, self.clock, self.heap, self.loop.post,
                speed, mortality(self.settings, streams), self.work,
                Neighbours(cluster, self.settings) if Neighbours.matter(self.settings) else None,
                self.sharing, model_of.__getitem__,
                self.engine_of,
            )  # fmt: skip
            self.engine_of.update(dict.fromkeys((h.name for h in cluster.hosts), engine))
            self.loop.outside[ids.engine(cluster.name)] = engine.order
        return engines

    def _sharing(self) -> Sharing | None:
        """Where gangs share GPUs, or mini-batches are counted."""
        counts = self.throughputs is not None or self.settings.minibatch_s is not None
        if not counts and self.profile.slices.layers == 1:
            return None
        return Sharing(self.settings, self.throughputs, self._timed_as)

    def _timed_as(self, job: str) -> TimedWork | None:
        known = self.recorder.jobs.get(job)
        if known is None:
            return None
        model = self.trace.model[known.arrival.row]
        return TimedWork(model, round(known.arrival.gpus)) if model else None

    def _kind_of(self, arrival: Arrival) -> object:
        """Jobs with the same data are of one class for the split of demand over regions."""
        return arrival.spec.datasets

    def _regions_of(self, kind: Any) -> tuple[int, ...]:
        """The region where a class waits; else those that hold all its data now, those that hold
        some, or all.
        """
        if isinstance(kind, str):
            return (self.recorder.timeline.regions.index(kind),)
        datasets: tuple[str, ...] = kind
        catalogue = self.machines.queue.data.catalogue
        held = [
            sum(
                catalogue.datasets[name].replicas.get(region) is ReplicaState.COMPLETE
                for name in datasets
            )
            for region in self.recorder.timeline.regions
        ]
        most = max(held)
        return tuple(number for number, count in enumerate(held) if count == most)

    def _holds_data(self, spec: JobSpec, region: str) -> bool:
        known = self.machines.queue.data.catalogue.datasets
        complete = ReplicaState.COMPLETE
        return all(known[name].replicas.get(region) is complete for name in spec.datasets)

    def _copied(self, copy: Copy) -> None:
        now = self.clock.now_s
        self.recorder.replica_came(
            copy.dataset, copy.source, copy.target, copy.bytes, copy.begun_s, now, copy.cause
        )

    # --- the run ----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Configure the machines, write down the replicas there are, and wait for the first job."""
        self.clock.now_s = self.window[0]
        self.loop.post(ids.QUEUE, (m.ConfigureFleet(self.fleet),))
        if Links.wanted(self.settings):  # as a server in front of regions apart does
            self.loop.post(ids.QUEUE, [m.LinkUp(region.name) for region in self.fleet.regions])
        for dataset in self.fleet.datasets:
            for region in dataset.replicas:
                now = self.clock.now_s
                self.recorder.replica_came(
                    dataset.name, "", region, dataset.size_bytes, now, now, "initial"
                )
        if self.sharing is not None:
            self.heap.put(self.window[1], Priority.ARRIVAL, self._take_stock, None)
        self.faults.begin(self.engine_of)
        if self.planning is not None:
            self.planning.begin()
        if self.capacity is not None:
            self.capacity.begin()
        self._arrivals = self.workload.arrivals()
        self._await_next()

    def run(
        self, tell: Callable[[int, float], None] | None = None, until_s: float = math.inf
    ) -> None:
        """Let things happen until every job is over or nothing can happen any more.

        ``tell``, now and then, gets the number of jobs that are over and the virtual time.
        ``until_s``: the run ends then, after all that happens at that instant.
        """
        self.begin()
        entries, clock, count = self.heap.entries, self.clock, 0
        jobs = self.recorder.jobs
        # The loop's `step` and its tests, one by one: they are as long as a small event.
        while entries and (self.arrivals_left or jobs or self._held_back):
            if entries[0][0] > until_s:
                clock.now_s = until_s
                break
            clock.now_s, _, _, do, what = heappop(entries)
            do(what)
            count += 1
            if count % LOOK_EVERY == 0:
                if tell is not None:
                    tell(self.recorder.over + len(self.set_aside), self.clock.now_s)
                if self._is_stuck():
                    break

    def _take_stock(self, _: object) -> None:
        """When the last job comes: the work done by then, in GPU-seconds of the model listed
        first.
        """
        left_s = dict(self.work.left_s)
        for engine in self.engines.values():
            left_s.update(engine.left_s())
        jobs = self.recorder.jobs
        left_gpu_s = sum(left_s[j] * known.arrival.gpus for j, known in jobs.items() if j in left_s)
        self.stock_gpu_s = self.handed_in_gpu_s - left_gpu_s

    def _is_stuck(self) -> bool:
        """Whether nothing has begun or ended for a long time, and nothing is on its way.

        Hosts fail and come back for ever: a repair that is pending is hope for a while only.
        """
        before, self._seen = self._seen, (self.recorder.launches, self.recorder.over)
        now = self.clock.now_s
        if before != self._seen:
            self._still_since_s = now
            return False
        if self.arrivals_left or self.mover.in_flight or self.links.in_flight:
            return False
        if self.work_goes_on():
            return False
        hope_s = HOPELESS_REPAIRS * self.settings.host_repair_s
        return not self.faults.pending_repairs or now - self._still_since_s >= hope_s

    def work_goes_on(self) -> bool:
        """Whether any attempt runs or stops."""
        return any(engine.attempts for engine in self.engines.values())

    # --- arrivals ---------------------------------------------------------------------------------

    def _await_next(self) -> None:
        self._next = next(self._arrivals, None)
        if self._next is not None:
            self.heap.put(self._next.submit_s, Priority.ARRIVAL, self._arrive, None)

    def _arrive(self, _: object) -> None:
        """Submit all jobs of this instant together."""
        now = self.clock.now_s
        together: list[Arrival] = []
        while self._next is not None and self._next.submit_s <= now:
            together.append(self._next)
            self._next = next(self._arrivals, None)
        self.arrivals_left -= len(together)
        self._submit([a for a in together if self._may_submit(a)])
        if self._next is not None:
            self.heap.put(self._next.submit_s, Priority.ARRIVAL, self._arrive, None)

    def _may_submit(self, arrival: Arrival) -> bool:
        verdict = self.admission.refuses(arrival.spec)
        if verdict is not None:
            self._set_aside(arrival, verdict)
            return False
        if arrival.depends_on and self._waits_for(arrival):
            self._held_back[arrival.spec.name] = arrival
            return False
        return True

    def _waits_for(self, arrival: Arrival) -> list[str]:
        """The jobs that have to succeed first; one that is not in the trace counts as done."""
        succeeded = JobState.SUCCEEDED
        return [j for j in arrival.depends_on if self._awaited.get(j, succeeded) is not succeeded]

    def _tell_over(self, job: str, state: JobState) -> None:
        """A job is over: those that waited for it alone are submitted."""
        self._awaited[job] = state
        if state is not JobState.SUCCEEDED:
            return
        waiting = self._held_back.values()
        ready = [a for a in waiting if job in a.depends_on and not self._waits_for(a)]
        for arrival in ready:
            del self._held_back[arrival.spec.name]
        self._submit(ready)

    def _set_aside(self, arrival: Arrival, verdict: Verdict) -> None:
        self.set_aside.append(Waits(arrival.spec.name, verdict.reason, verdict.detail))
        self.recorder.close(Job(arrival, 0.0, None), JobState.PENDING)

    def _submit(self, arrivals: Sequence[Arrival]) -> None:
        if not arrivals:
            return
        now = self.clock.now_s
        for arrival in arrivals:
            self.submitted += 1
            job = ids.job_id(self.submitted)
            self.work.left_s[job] = arrival.duration_s
            self.handed_in_gpu_s += arrival.duration_s * arrival.gpus
            self._submit_s[job] = now
            self.recorder.submitted(job, arrival, now)
            self.on_way.submitted(job, arrival)
        self.loop.post(ids.QUEUE, (m.SubmitJobs(tuple(a.spec for a in arrivals)),))

    # --- the end ----------------------------------------------------------------------------------

    def finish(self) -> Result:
        """Close the books: jobs that still wait, the last intervals, the summary."""
        self.recorder.cut(self.clock.now_s)
        queue, waiting, running = self.machines.queue, [], 0
        for number, job in self.recorder.jobs.items():
            record = queue.jobs.records[number]
            verdict = queue.verdict_on(record)
            if verdict is None:
                running += 1
            else:
                waiting.append(Waits(job.arrival.spec.name, verdict.reason, verdict.detail))
            self.recorder.close(job, record.state)
        for arrival in self._held_back.values():
            detail = "waits for job " + ", ".join(self._waits_for(arrival))
            waiting.append(Waits(arrival.spec.name, PendingReason.WAITING_FOR_JOBS, detail))
            self.recorder.close(Job(arrival, 0.0, None), JobState.PENDING)
        self.recorder.timeline.advance(self.clock.now_s)
        self.recorder.timeline.cut(self.clock.now_s)
        summary = summary_of(self.recorder, self.window)
        summary["never_startable"] = len(self.set_aside)
        summary["waiting"], summary["running"] = len(waiting), running
        rounds = queue.rounds
        if rounds is not None:
            summary["rounds"] = {
                "count": rounds.count, "solves": rounds.solves, "failures": rounds.failures,
                "failure": rounds.last_failure, "named": rounds.named_in_all,
            }  # fmt: skip
        if self.planning is not None:
            summary["data_plans"] = {
                "applied": self.planning.plans,
                "discarded": self.planning.discarded,
            }
        if self.sharing is not None:
            present_gpu_s = self.recorder.totals.present_in_window_gpu_s
            summary["work_rate"] = self.stock_gpu_s / present_gpu_s if present_gpu_s else None
            summary["suspensions"] = self.recorder.totals.suspensions
            early_s = [at_s - self._submit_s[job] for job, at_s in self.on_way.early_s.items()]
            summary["first_minibatches_s"] = distribution(np.array(early_s))
        if self.capacity is not None:
            summary["capacity_plans"] = {
                "applied": self.capacity.plans,
                "discarded": self.capacity.discarded,
                "hosts_moved": self.capacity.hosts_moved,
            }
        summary["seed"] = self.seed
        summary["version"] = __version__
        summary["config_hash"] = self.config_hash()
        return Result(summary, self.set_aside, waiting, self.loop.events, self.loop.spent_s)

    def config_hash(self) -> str:
        """SHA-256 of all that decides the run but the seed: trace, fleet, profile, settings."""
        digest = hashlib.sha256()
        for part in (self.fleet, self.profile, self.settings):
            digest.update(msgspec.json.encode(part))
        if self.throughputs is not None:
            digest.update(repr(self.throughputs.alone).encode())
        for column in COLUMNS:
            values = getattr(self.trace, column)
            if isinstance(values, Texts):
                digest.update("\0".join(values.names).encode())
                digest.update(values.codes.tobytes())
            elif isinstance(values, list):
                digest.update("\0".join(values).encode())
            else:
                digest.update(values.tobytes())
        return digest.hexdigest()
