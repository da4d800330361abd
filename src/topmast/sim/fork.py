"""A live system's state that runs on by itself: its machines from snapshots, the world around them reckoned.

What runs goes on for as long as is expected of it; what waits is placed by the policies of the profile.
Nobody submits anything more. The machines that the snapshots came from are never touched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from topmast.fast.cluster.attempt import Attempt, AttemptPhase, Task, TaskPhase
from topmast.fast.queue.machine import GlobalQueue
from topmast.fast.queue.record import JobRecord
from topmast.fast.region.inventory.allocation import Allocation, AllocationPhase
from topmast.fast.region.inventory.slices import outer, outside
from topmast.fast.region.machine import RegionalPlacer
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import TopmastError
from topmast.model.fleet import ClusterSpec, Fleet
from topmast.model.job import MILLI, JobSpec
from topmast.model.plan import Seat
from topmast.model.states import HOLDING, WAITING, Outcome
from topmast.policies.base import PairSpeeds
from topmast.policies.options import Profile
from topmast.runtime.machines import Machines
from topmast.sim.ahead import Checkpoints
from topmast.sim.clock import VirtualClock
from topmast.sim.engine import SimulatedEngine, Work
from topmast.sim.estimate import Estimate, Estimates
from topmast.sim.heap import EventHeap
from topmast.sim.loop import Hear, Loop
from topmast.sim.mover import SimulatedMover
from topmast.sim.progress import Progress
from topmast.sim.settings import Settings
from topmast.sim.sharing import Beside
from topmast.sim.simulation import rate, rate_of_size

LIVE = Settings().without_overheads()
"""What is known of real runs counts from launch to end: start-up and checkpoints are in it."""
NEVER_S = 1e15
SHORTEST_S = 1e-3
"""Nothing ends before it is looked at."""


class Moment(Struct, frozen=True):
    """A system as it is at one moment: snapshots of its queue and of its placers by region.

    ``seq``: of its journal. ``absent``: regions that cannot be asked, and why. ``pair_speeds``: what its queue knows of
    jobs on the same GPUs.
    """

    at_s: float
    seq: int
    queue: bytes
    placers: dict[str, bytes]
    absent: dict[str, str] = {}
    pair_speeds: PairSpeeds | None = None


def moment_of(
    queue: GlobalQueue, placers: Mapping[str, RegionalPlacer], at_s: float, seq: int
) -> Moment:
    """The moment of machines that rest meanwhile. O(jobs + hosts), as far as copying goes."""
    absent = {region: absence.why for region, absence in queue.reach.absent.items()}
    books = {region: placer.snapshot() for region, placer in sorted(placers.items())}
    return Moment(at_s, seq, queue.snapshot(), books, absent, queue.pair_speeds)


class Fork:
    """Machines of its own, from a moment on. ``settings``: overheads of the world.

    ``hears``: who keeps the books, by type of message; see `Loop`. ``look`` is called with the fork when
    everything is as it was, before anything happens.
    """

    def __init__(
        self,
        moment: Moment,
        profile: Profile,
        settings: Settings = LIVE,
        hears: Mapping[type[m.Message], Hear] | None = None,
        look: Callable[[Fork], None] | None = None,
    ) -> None:
        self.from_s = moment.at_s
        self.settings = settings
        self._efficiency = profile.elastic.efficiency
        self.clock = VirtualClock()
        self.clock.now_s = moment.at_s
        self.heap = EventHeap()
        self.machines = Machines(profile, reconcile_s=None, pair_speeds=moment.pair_speeds)
        table = moment.pair_speeds
        self._beside = None if table is None else Beside(table, self._work_of)
        self.work = Work()
        self.estimates = self._restore(moment)
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
            news = Checkpoints(self.clock, self.engines.values(), self.from_s)
            news.go_ahead_in(self.loop)
        if look is not None:
            look(self)
        self._begin(moment)

    # --- from snapshots to machines -----------------------------------------------------------------

    def _restore(self, moment: Moment) -> Estimates:
        """The queue and the placers as they were. O(jobs log jobs + hosts)."""
        queue = self.machines.queue
        queue.now = moment.at_s
        queue.restore(moment.queue)
        for region, blob in moment.placers.items():
            placer = self.machines.at(ids.placer(region))
            assert placer is not None
            placer.restore(blob)
        return Estimates(queue.durations, queue.jobs.values())

    def _hire(self, fleet: Fleet) -> None:
        """An engine for every cluster that has none."""
        for host in (h for r in fleet.regions for c in r.clusters for h in c.hosts):
            self._model_of[host.name] = host.model
        for placer in self.machines.placers.values():  # hosts that leave are in its books alone
            for host in placer.columns.hosts:
                self._model_of.setdefault(host.name, host.model)
        named = [c.name for r in fleet.regions for c in r.clusters]
        for placer in self.machines.placers.values():
            named += placer.columns.cluster_names()
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
        return by_size * rate(spec, [self._model_of[seat.host] for seat in seats])

    def _work_of(self, job: str) -> tuple[str, int]:
        """What the table of pairs calls a job, and the GPUs of its gang."""
        record = self.machines.queue.jobs.get(job)
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
        for record in self.machines.queue.jobs.values():
            if not record.finished:
                self.expect(record, work_kept_s(record))

    def expect(self, record: JobRecord, done_s: float) -> float:
        """What is left of a job of which ``done_s`` are done; what it kept need not be done again."""
        estimate = self.left[record.id] = self.estimates.of(record.spec, done_s)
        left_s = self.work.left_s[record.id] = max(SHORTEST_S, estimate.run_s - work_kept_s(record))
        if record.kept_s > 0:
            self.work.kept_s[record.id] = record.kept_s
        return left_s

    # --- what runs goes on --------------------------------------------------------------------------

    def _begin(self, moment: Moment) -> None:
        """Take up what was going on, then let the queue look at everything anew."""
        for region, why in sorted(moment.absent.items()):
            self.loop.post(ids.QUEUE, (m.LinkDown(region, why),))
        news: list[tuple[str, m.Message]] = []
        for region, placer in list(self.machines.placers.items()):
            news += self._take_up(region, placer)
        news += self._settle()
        for address, message in news:
            self.loop.post(address, (message,))
        for region in self.machines.placers:
            self.loop.post(ids.placer(region), (m.Recovered(),))
        for name in list(self.machines.clusters):
            self.loop.post(ids.cluster(name), (m.Wake(),))
        self.loop.post(ids.QUEUE, (m.Recovered(),))

    def _take_up(self, region: str, placer: RegionalPlacer) -> list[tuple[str, m.Message]]:
        """The attempts of a region, as its placer knows them, with their managers and engines."""
        attempts: dict[str, dict[str, Attempt]] = {}
        news: list[tuple[str, m.Message]] = []
        partners = _partners(placer)
        for allocation in placer.state.allocations.values():
            if allocation.hold is AllocationPhase.CLAIMED:
                continue
            cluster, job, epoch = outer(allocation.plan.cluster), allocation.job, allocation.epoch
            here = attempts.setdefault(cluster, {})
            here[job] = _attempt(region, allocation)
            beside = allocation.plan.beside
            if beside and beside in here:
                _put_together(here[job], here[beside])
            self._adopt(region, allocation, partners.get(job))
            if allocation.hold is AllocationPhase.STARTING:
                seats, address = allocation.plan.seats, ids.cluster(cluster)
                news += [(address, m.TaskStarted(job, epoch, s.rank, self.from_s)) for s in seats]
            elif allocation.hold is AllocationPhase.STOPPING:
                grace_s = allocation.spec.checkpoint.grace_s
                news.append((ids.engine(cluster), m.StopTasks(job, epoch, grace_s)))
        specs = {cluster.name: cluster for cluster in placer.state.region.clusters}
        for name in [*specs, *(name for name in attempts if name not in specs)]:
            manager = self.machines.at(ids.cluster(name))
            assert manager is not None
            spec = specs.get(name, ClusterSpec(name, ()))
            manager.restore(_books(region, spec, attempts.get(name, {})))
        return news

    def _adopt(self, region: str, allocation: Allocation, partner: Allocation | None) -> None:
        """An attempt goes on; beside a partner it is as fast as the two are together, since both run."""
        plan, spec, settings = outside(allocation.plan), allocation.spec, self.settings
        record = self.machines.queue.jobs.get(allocation.job)
        if record is None or record.finished:
            record = JobRecord(allocation.job, 0, spec, self.from_s)
        again_s = settings.restore_s if record.kept_s > 0 else 0.0
        begun_s = allocation.start_s + settings.startup_s + again_s
        speed = self._speed(spec, plan.seats)
        both_s, together = self.from_s, speed
        if partner is not None and self._beside is not None:
            both_s = min(self.from_s, max(begun_s, partner.start_s + settings.startup_s))
            model = self._model_of[plan.seats[0].host]
            together *= self._beside.factor(allocation.job, partner.job, model)
        by_now_s = max(0.0, both_s - begun_s) * speed + (self.from_s - both_s) * together
        left_s = self.expect(record, work_kept_s(record) + by_now_s)
        progress = Progress(
            begun_s, left_s, speed, spec.checkpoint.interval_s, settings.checkpoint_s
        )
        if together != speed:
            progress.go(both_s, together)
        gang = m.StartGang(allocation.job, allocation.epoch, spec, region, plan.cluster, plan.seats)
        self.engines[plan.cluster].adopt(gang, progress)

    def _settle(self) -> list[tuple[str, m.Message]]:
        """News that was on its way: what the queue believes of a region, and the region does not."""
        news: list[tuple[str, m.Message]] = []
        for record in self.machines.queue.jobs.values():
            if record.plan is None or record.plan.region not in self.machines.placers:
                continue
            held = self.machines.placers[record.plan.region].state.allocations.get(record.id)
            if held is not None and held.epoch == record.epoch:
                continue
            if record.state in WAITING:
                why = "the plan had not arrived"
                news.append((ids.QUEUE, m.PlanRefused(record.id, record.epoch, why)))
            elif record.state in HOLDING:
                start_s = self.from_s if record.start_s is None else record.start_s
                ended = m.AttemptEnded(
                    record.id, record.epoch, Outcome.SUCCEEDED, start_s, self.from_s,
                    self.from_s - start_s, "",
                )  # fmt: skip
                news.append((ids.QUEUE, ended))
        return news

    # --- changes ------------------------------------------------------------------------------------

    def configure(self, fleet: Fleet) -> None:
        """Another fleet from now on: hosts, tenants, quotas."""
        self._hire(fleet)
        self.loop.post(ids.QUEUE, (m.ConfigureFleet(fleet),))

    def submit(self, spec: JobSpec) -> str:
        """One more job; returns its id."""
        answer = self.loop.post(ids.QUEUE, (m.SubmitJobs((spec,)),))
        if isinstance(answer, TopmastError):
            raise answer
        job = str(answer[0])
        self.expect(self.machines.queue.jobs[job], 0.0)
        return job

    def lose(self, region: str) -> None:
        """All hosts of a region fail at once, and its replicas cannot be read any more."""
        queue = self.machines.queue
        for dataset in queue.catalogue.datasets.values():
            if region in dataset.replicas:
                queue.catalogue.drop(dataset.spec.name, region)
        placer = self.machines.placers[region]
        for name in placer.columns.cluster_names():
            for row in list(placer.columns.clusters[name]):
                self.engines[name].host_down(placer.columns.hosts[row].name)

    # --- time ---------------------------------------------------------------------------------------

    def run(
        self,
        until_s: float,
        done: Callable[[], bool] = lambda: False,
        max_steps: int = 1 << 62,
        give_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """Let things happen until ``until_s``, or ``done``, or nothing more can, or the budget is spent."""
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


def _attempt(region: str, allocation: Allocation) -> Attempt:
    """An attempt as its manager would know it."""
    starting = allocation.hold is AllocationPhase.STARTING
    task = TaskPhase.WAITING if starting else TaskPhase.RUNNING
    phases = {
        AllocationPhase.STARTING: AttemptPhase.STARTING,
        AllocationPhase.RUNNING: AttemptPhase.RUNNING,
    }
    return Attempt(
        job=allocation.job,
        epoch=allocation.epoch,
        spec=allocation.spec,
        region=region,
        tasks=[Task(seat, task) for seat in outside(allocation.plan).seats],
        opened_s=allocation.start_s,
        deadline_s=NEVER_S,
        time_left_s=allocation.time_left_s,
        phase=phases.get(allocation.hold, AttemptPhase.STOPPING),
        why=allocation.why,
        kept_until_s=allocation.kept_until_s,
    )


def _partners(placer: RegionalPlacer) -> dict[str, Allocation]:
    """By job, the attempt that has the same GPUs. O(attempts)."""
    held = {
        a.job: a for a in placer.state.allocations.values() if a.hold is not AllocationPhase.CLAIMED
    }
    found: dict[str, Allocation] = {}
    for guest in held.values():
        host = held.get(guest.plan.beside or "")
        if host is not None:
            found[guest.job], found[host.job] = host, guest
    return found


def _put_together(guest: Attempt, host: Attempt) -> None:
    """Both have the same GPUs; the host came first."""
    guest.beside, host.beside = host.job, guest.job


def _books(region: str, cluster: ClusterSpec, attempts: dict[str, Attempt]) -> bytes:
    """What a cluster manager restores."""
    state = {"region": region, "cluster": cluster, "attempts": attempts, "fences": {}}
    return msgspec.json.encode(state)


def _ignore(*_: object) -> None:
    """Nobody keeps books of replicas here."""
