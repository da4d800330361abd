"""A copy of a live system that runs on by itself: its machines from snapshots, the world around
them simulated.

What runs goes on for as long as is expected of it; what waits is placed by the policies of the
profile; no further job is submitted. The machines that the snapshots came from are never touched.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from topmast.fast.cluster import Attempt, AttemptPhase, TaskPhase
from topmast.fast.queue import GlobalQueue, JobRecord
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import TopmastError
from topmast.model.fleet import Fleet
from topmast.model.job import MILLI, JobChanges, JobSpec
from topmast.model.plan import Seat
from topmast.model.states import HOLDING, WAITING, Outcome
from topmast.policies.base import PairSpeeds
from topmast.policies.options import Profile
from topmast.runtime.machines import Machines, RegionState
from topmast.sim.ahead import Checkpoints
from topmast.sim.clock import VirtualClock
from topmast.sim.engine import SimulatedEngine, Work
from topmast.sim.estimate import MEASURED, Estimate, Estimates
from topmast.sim.heap import EventHeap
from topmast.sim.loop import Hear, Loop
from topmast.sim.mover import SimulatedMover
from topmast.sim.progress import Progress
from topmast.sim.settings import Settings
from topmast.sim.sharing import Beside
from topmast.sim.speeds import rate, rate_of_size

LIVE = Settings().without_overheads()
"""What is known of real runs counts from launch to end: start-up and checkpoints are in it."""
NEVER_S = 1e15
SHORTEST_S = 1e-3
"""Nothing ends before it is looked at."""


class StateSnapshot(Struct, frozen=True):
    """A system as it is at one time."""

    at_s: float
    seq: int
    """Of its journal."""
    queue: bytes
    regions: dict[str, RegionState]
    """The machines of each region: its placer and its cluster managers."""
    absent: dict[str, str] = {}
    """Regions that cannot be asked, and why."""
    pair_speeds: PairSpeeds | None = None
    """What the queue knows of jobs on the same GPUs."""


def state_snapshot_of(
    queue: GlobalQueue, regions: Mapping[str, RegionState], at_s: float, seq: int
) -> StateSnapshot:
    """The snapshot of machines that rest meanwhile. O(jobs + hosts), as far as copying goes.

    A region of another process that was not looked at yet has no state here, and gets no job.
    """
    absent = {one.name: "its state is not known" for one in queue.fleet.regions}
    absent = {name: why for name, why in absent.items() if name not in regions}
    absent |= {region: absence.why for region, absence in queue.cycle.reach.absent.items()}
    return StateSnapshot(at_s, seq, queue.snapshot(), dict(regions), absent, queue.pair_speeds)


class WhatIf:
    """Machines restored from a snapshot, and a simulated world around them.

    ``settings``: overheads of the world. ``hears``: listeners by type of message, see `Loop`.
    ``look`` is called once, when everything is as it was in the snapshot, before anything
    happens.
    """

    def __init__(
        self,
        state: StateSnapshot,
        profile: Profile,
        settings: Settings = LIVE,
        hears: Mapping[type[m.Message], Hear] | None = None,
        look: Callable[[WhatIf], None] | None = None,
    ) -> None:
        self.from_s = state.at_s
        self.settings = settings
        self._efficiency = profile.elastic.efficiency
        self.clock = VirtualClock()
        self.clock.now_s = state.at_s
        self.heap = EventHeap()
        self.machines = Machines(profile, reconcile=False, pair_speeds=state.pair_speeds)
        table = state.pair_speeds
        self._beside = None if table is None else Beside(table, self._work_of)
        # What is launched although the queue has forgotten it is over: that was on its way there.
        self.work = Work(left_s=defaultdict(lambda: SHORTEST_S))
        self.estimates = self._restore(state)
        self.loop = Loop(self.machines, self.clock, self.heap, hears or {})
        self.mover = SimulatedMover(self.clock, self.heap, self.loop.post, _ignore, _ignore)
        self.loop.outside[ids.MOVER] = self._move
        self.loop.outside[ids.GROWER] = _ignore
        self.engines: dict[str, SimulatedEngine] = {}
        self._model_of: dict[str, str] = {}
        self._hire(self.machines.queue.fleet)
        self.steps = 0
        self.left: dict[str, Estimate] = {}
        """What was expected of the whole run of every job, when it was looked at."""
        self._expect()
        if profile.weighs_lost_work:
            Checkpoints(self.clock, self.work.engine_of, self.from_s).go_ahead_in(self.loop)
        if look is not None:
            look(self)
        self._begin(state)

    # --- from snapshots to machines --------------------------------------------------------------

    def _restore(self, state: StateSnapshot) -> Estimates:
        """The machines as they were. O(jobs log jobs + hosts)."""
        queue = self.machines.queue
        queue.now = state.at_s
        queue.restore(state.queue)
        for region, snapshots in state.regions.items():
            named = {ids.placer(region): snapshots.placer}
            named |= {ids.cluster(name): blob for name, blob in snapshots.clusters.items()}
            for address, blob in named.items():
                machine = self.machines.at(address)
                assert machine is not None
                machine.restore(bytes(blob))
        return Estimates(queue.backlog.durations, queue.jobs.records.values())

    def _hire(self, fleet: Fleet) -> None:
        """An engine for every cluster that has none."""
        for host in (h for r in fleet.regions for c in r.clusters for h in c.hosts):
            self._model_of[host.name] = host.model
        for placer in self.machines.placers.values():  # hosts that leave are in its books alone
            for host in placer.columns.hosts:
                self._model_of.setdefault(host.name, host.model)
        named = [c.name for r in fleet.regions for c in r.clusters]
        for placer in self.machines.placers.values():
            named += sorted(placer.columns.clusters)
        named += self.machines.clusters  # one that left the fleet may still run attempts
        for name in named:
            if name not in self.engines:
                engine = self.engines[name] = SimulatedEngine(
                    ids.cluster(name), self.settings, self.clock, self.heap, self.loop.post,
                    self._speed, None, self.work,
                    sharing=self._beside, model_of=self._model_of.__getitem__,
                )  # fmt: skip
                self.loop.outside[ids.engine(name)] = engine.order

    def _speed(self, spec: JobSpec, seats: tuple[Seat, ...]) -> float:
        """Given durations are those of the first GPU model listed; others are of whatever came."""
        by_size = rate_of_size(spec, seats, self._efficiency)
        if spec.duration_s is None:
            return by_size
        return by_size * rate(
            spec, [self._model_of[seat.host] for seat in seats], self.settings.gpu_speed
        )

    def _work_of(self, job: str) -> tuple[str, int]:
        """What the table of pairs calls a job, and the GPUs of its gang."""
        record = self.machines.queue.jobs.records.get(job)
        if record is None:
            return "", 0
        return str(record.spec.work or ""), record.spec.gpus_milli() // MILLI

    def _move(self, message: m.Message) -> None:
        """Copies that were under way have come some way already, if nothing held them up."""
        if isinstance(message, m.StartCopy) and message.copy.begun_s < self.from_s:
            copy, passed_s = message.copy, self.from_s - message.copy.begun_s
            left = max(1, round(copy.bytes - passed_s * message.bytes_per_s))
            copy = msgspec.structs.replace(copy, bytes=left)
            message = msgspec.structs.replace(message, copy=copy)
        self.mover.order(message)

    def _expect(self) -> None:
        """How much is left of every job that is not over. O(jobs)."""
        for record in self.machines.queue.jobs.records.values():
            if not record.finished:
                self.expect(record, work_kept_s(record))

    def expect(self, record: JobRecord, done_s: float) -> float:
        """What is left of a job of which ``done_s`` are done; what it kept need not be done
        again.
        """
        estimate = self.left[record.id] = self.estimates.of(record.spec, done_s)
        run_s, settings = estimate.run_s, self.settings
        if estimate.basis in MEASURED:
            run_s -= settings.startup_s
            run_s /= 1 + settings.checkpoint_s / record.spec.checkpoint.interval_s
        left_s = self.work.left_s[record.id] = max(SHORTEST_S, run_s - work_kept_s(record))
        if record.kept_s > 0:
            self.work.kept_s[record.id] = record.kept_s
        return left_s

    # --- what runs goes on -----------------------------------------------------------------------

    def _begin(self, state: StateSnapshot) -> None:
        """Go on with what runs, then let all machines recover as after a restart."""
        for region, why in sorted(state.absent.items()):
            self.loop.post(ids.QUEUE, (m.LinkDown(region, why),))
        for manager in self.machines.clusters.values():
            for attempt in manager.state.attempts.values():
                if attempt.phase is not AttemptPhase.STARTING:  # those are started by recovery
                    self._adopt(manager.name, attempt, manager.state.attempts)
        for message in self._settle():
            self.loop.post(ids.QUEUE, (message,))
        for region in self.machines.placers:
            self.loop.post(ids.placer(region), (m.Recovered(),))
        for name in list(self.machines.clusters):
            self.loop.post(ids.cluster(name), (m.Recovered(),))
        self.loop.post(ids.QUEUE, (m.Recovered(),))

    def _adopt(self, cluster: str, attempt: Attempt, attempts: Mapping[str, Attempt]) -> None:
        """An attempt goes on; beside a partner it is as fast as the two are together, since both
        run.
        """
        spec, settings = attempt.spec, self.settings
        record = self.machines.queue.jobs.records.get(attempt.job)
        if record is None or record.finished:
            record = JobRecord(attempt.job, 0, spec, self.from_s)
        again_s = settings.restore_s if record.kept_s > 0 else 0.0
        begun_s = self.from_s - attempt.ran_s(self.from_s) + settings.startup_s + again_s
        seats = tuple(task.seat for task in attempt.tasks)
        speed = self._speed(spec, seats)
        both_s, together = self.from_s, speed
        partner = attempts.get(attempt.colocated_with or "")
        if partner is not None and self._beside is not None:
            both_s = min(self.from_s, max(begun_s, partner.opened_s + settings.startup_s))
            together *= self._beside.factor(attempt.job, partner.job, self._model_of[seats[0].host])
        by_now_s = max(0.0, both_s - begun_s) * speed + (self.from_s - both_s) * together
        left_s = self.expect(record, work_kept_s(record) + by_now_s)
        progress = Progress(
            begun_s, left_s, speed, spec.checkpoint.interval_s, settings.checkpoint_s
        )
        if together != speed:
            progress.go(both_s, together)
        gang = m.StartGang(attempt.job, attempt.epoch, spec, attempt.region, cluster, seats)
        ended = frozenset(t.seat.rank for t in attempt.tasks if t.phase is TaskPhase.ENDED)
        self.engines[cluster].adopt(gang, ended, progress)

    def _settle(self) -> list[m.Message]:
        """News on its way: what the queue believes of a region, and the region does not."""
        news: list[m.Message] = []
        for record in self.machines.queue.jobs.records.values():
            if record.plan is None or record.plan.region not in self.machines.placers:
                continue
            held = self.machines.placers[record.plan.region].state.allocations.get(record.id)
            if held is not None and held.epoch == record.epoch:
                continue
            if record.state in WAITING:
                why = "the plan had not arrived"
                news.append(m.PlanRefused(record.id, record.epoch, why))
            elif record.state in HOLDING:
                start_s = self.from_s if record.start_s is None else record.start_s
                ended = m.AttemptEnded(
                    record.id, record.epoch, Outcome.SUCCEEDED, start_s, self.from_s,
                    self.from_s - start_s, "",
                )  # fmt: skip
                news.append(ended)
        return news

    # --- changes ---------------------------------------------------------------------------------

    def configure(self, fleet: Fleet) -> None:
        """Another fleet from now on: hosts, tenants, quotas."""
        self._hire(fleet)
        self.loop.post(ids.QUEUE, (m.ConfigureFleet(fleet),))

    def submit(self, spec: JobSpec) -> str:
        """One more job, or a sweep; returns the id of the first job."""
        answer = self.loop.post(ids.QUEUE, (m.SubmitJobs((spec,)),))
        if isinstance(answer, TopmastError):
            raise answer
        for job in answer:
            self.expect(self.machines.queue.jobs.records[job], 0.0)
        return str(answer[0])

    def edit(self, job: str, changes: JobChanges) -> None:
        """Another request of a job; of one that runs, from its next attempt on."""
        record = self.machines.queue.jobs.records[job]
        self.loop.post(ids.QUEUE, (m.EditJobs((job,), changes),))
        if record.state in WAITING:
            self.expect(record, work_kept_s(record))

    def lose(self, region: str) -> None:
        """All hosts of a region fail at once, and its replicas cannot be read any more."""
        queue = self.machines.queue
        for dataset in queue.data.catalogue.datasets.values():
            if region in dataset.replicas:
                queue.data.catalogue.drop(dataset.spec.name, region)
        placer = self.machines.placers[region]
        for name in sorted(placer.columns.clusters):
            for row in list(placer.columns.clusters[name]):
                self.engines[name].host_down(placer.columns.hosts[row].name)

    # --- time ------------------------------------------------------------------------------------

    def run(
        self,
        until_s: float,
        done: Callable[[], bool] = lambda: False,
        max_steps: int = 1 << 62,
        give_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """Let things happen until ``until_s``, or ``done``, or nothing more can, or the budget is
        spent.
        """
        heap, step, begun = self.heap, self.loop.step, self.steps
        while len(heap) and heap.next_s() <= until_s and not done():
            step()
            self.steps += 1
            if self.steps - begun >= max_steps:
                return
            if give_up():
                return


def work_kept_s(record: JobRecord) -> float:
    """What earlier attempts have done of a job: of an elastic one, at its own size."""
    return record.kept_s if record.spec.elastic is None else record.worked_s


def _ignore(*_: object) -> None:
    """Replicas are not recorded here."""
