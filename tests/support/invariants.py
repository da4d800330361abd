"""What must hold, as code: after every step what the step touched, and now and then everything.

Each function raises AssertionError with the story of what is broken. They look at the machines, at
the toy engines (which know what really runs), at the toy stores (which know what data is really
there), and at the journal; they change nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from tests.support.engine import Life
from tests.support.world import World
from topmast.fast.queue import Weights
from topmast.fast.queue.backlog.backlog import effective_band
from topmast.fast.queue.cycle.deciding import FETCH_AGAIN_S
from topmast.fast.queue.data.catalogue import DataCost
from topmast.fast.queue.facts import Requeued
from topmast.fast.queue.invariants import check_jobs, check_quotas
from topmast.fast.queue.jobs.dependencies import looked_up
from topmast.fast.queue.jobs.record import JobRecord
from topmast.fast.queue.jobs.sweeps import Sweeps
from topmast.fast.queue.machine import GlobalQueue
from topmast.fast.region.invariants import check_hosts, check_index
from topmast.fast.region.machine import RegionalPlacer
from topmast.model import ids
from topmast.model.dataset import ReplicaState
from topmast.model.dependency import After
from topmast.model.job import MILLI, Band
from topmast.model.plan import FREE, Plan, Preempt, capabilities_of
from topmast.model.states import TERMINAL, WAITING, JobState
from topmast.model.views import JobView
from topmast.policies.options import Preemption, WhenBlocked
from topmast.runtime.codec import decode_facts
from topmast.runtime.invariants import check_attempts
from topmast.service.gauges import gauges

# --- what really runs: checked by the world whenever a task begins -----------------------------------


class Witness:
    """Sees every task begin and end, and remembers what each job was last known to be."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.alive: dict[str, Counter[tuple[str, int]]] = {}
        self.slots: Counter[tuple[str, int]] = Counter()
        self.over: dict[str, JobState] = {}
        self.known: dict[str, bool] = {}
        self._read = 0

    def begun(self, cluster: str, task: tuple[str, int, int]) -> None:
        """A task has a process now: it is the only attempt, on slots of its own, with its data."""
        job, epoch, _ = task
        engine = self.world.engines[cluster]
        seat = engine.tasks[task].seat
        attempts = self.alive.setdefault(job, Counter())
        attempts[cluster, epoch] += 1
        assert len(attempts) == 1, f"two live attempts of {job}: {dict(attempts)}"
        for slot in seat.slots:
            self.slots[seat.host, slot] += seat.slot_milli
            held = self.slots[seat.host, slot]
            assert held <= MILLI * self.world.options.slices.layers, (
                f"{seat.host} slot {slot} runs {held} thousandths"
            )
        gang = engine.gangs[job, epoch]
        specs = [c for r in self.world.fleet.regions for c in r.clusters if c.name == cluster]
        for capability in capabilities_of(gang.spec):
            able = [spec.can(capability) for spec in specs]
            assert able == [True], f"{job} cannot run in {cluster}"
        for dataset in gang.spec.datasets:
            there = (dataset, gang.region) in self.world.mover.stored
            assert there, f"{job} started in {gang.region} without {dataset}"

    def ended(self, cluster: str, task: tuple[str, int, int]) -> None:
        """A task that had a process has none any more."""
        job, epoch, _ = task
        seat = self.world.engines[cluster].tasks[task].seat
        attempts = self.alive[job]
        attempts[cluster, epoch] -= 1
        if not attempts[cluster, epoch]:
            del attempts[cluster, epoch]
        for slot in seat.slots:
            self.slots[seat.host, slot] -= seat.slot_milli

    def check_step(self) -> None:
        """What the records since the last step touched: jobs known stay known, the ended ended."""
        written = self.world.journal.written
        for record in written[self._read :]:
            if record.machine != ids.QUEUE:
                continue
            for fact in decode_facts(record.machine, record.facts):
                job = getattr(fact, "job", None)
                if isinstance(fact, Requeued):
                    self.over.pop(fact.job, None)  # the one way back
                if isinstance(job, str):
                    self._check_job(job)
        self._read = len(written)

    def _check_job(self, job: str) -> None:
        record = self.world.jobs[job]
        if job in self.over:
            assert record.state is self.over[job], f"{job} was {self.over[job]}"
        if record.state in TERMINAL:
            self.over[job] = record.state
            assert record.plan is None, f"{job} is over and holds a plan"

    def acknowledged(self, jobs: Iterable[str]) -> None:
        """Ids that were given to somebody."""
        for job in jobs:
            assert job not in self.known, f"{job} was given out twice"
            self.known[job] = True

    def check_known(self) -> None:
        """No acknowledged job is lost; what is over is as it was."""
        for job in self.known:
            assert job in self.world.jobs, f"{job} is lost"
        for job, state in self.over.items():
            assert self.world.jobs[job].state is state


# --- everything ---------------------------------------------------------------------------------------


def check_all(world: World) -> None:
    """Every invariant that holds at any time between two events."""
    check_counters(world)
    check_figures(world)
    for placer in world.machines.placers.values():
        check_placer(placer)
    check_books_agree(world)
    check_audit(world)


def check_counters(world: World) -> None:
    """The ledger equals a recount of the attempts held; no quota is exceeded; who is over holds nothing."""
    check_quotas(world.queue)
    check_jobs(world.queue, world.jobs.values())


def check_figures(world: World) -> None:
    """What is counted as it comes and goes, or by class, equals a count of all jobs."""
    pending: Counter[tuple[str, ...]] = Counter()
    gpus: Counter[tuple[str, ...]] = Counter()
    running: Counter[tuple[str, ...]] = Counter()
    for record in world.jobs.values():
        spec, verdict = record.spec, world.queue.verdict_on(record)
        of = (spec.tenant, spec.band.name.lower())
        if record.plan is not None:
            running[of] += 1
        elif verdict is not None:
            pending[*of, verdict.reason.value] += 1
            for model, milli in spec.gpus_by_model().items():
                gpus[spec.tenant, model or "any"] += milli
    figures = gauges(world.queue, world.machines.placers)
    assert figures.pending_jobs == pending
    assert {k: round(v * MILLI) for k, v in figures.pending_gpus.items()} == gpus
    assert {k: v for k, v in world.meter.running.items() if v} == running
    kept, counted = world.queue.jobs.weights, Weights(world.jobs.values())
    sweeps = world.queue.jobs.sweeps
    anew = Sweeps(counted, dict(sweeps.records))  # counts what those that go on say, too
    assert sweeps.ended.total_bytes == anew.ended.total_bytes
    assert (kept.by_user, kept.ended_bytes) == (counted.by_user, counted.ended_bytes)


def check_placer(placer: RegionalPlacer) -> None:
    """Columns and index equal a recount; whoever may run has slots of its own; claims wait for somebody."""
    check_hosts(placer)
    check_index(placer.columns)


def check_books_agree(world: World) -> None:
    """The queue's plans, the placers' allocations and the clusters' attempts are the same attempts."""
    check_attempts(world.machines)


def check_audit(world: World) -> None:
    """The finished jobs of the audit tables are those of the machines, and look the same."""
    rows = world.journal.finished
    over = {job: r for job, r in world.jobs.items() if r.state in TERMINAL}
    assert set(rows) >= set(over)
    for job, record in over.items():
        view = msgspec.json.decode(rows[job].view, type=JobView)
        assert view == record.view(world.now, None), job


# --- at rest --------------------------------------------------------------------------------------------


def check_rest(world: World) -> None:
    """What holds when no message is under way and no wake-up is due."""
    assert not world.mail
    assert not world.due()
    check_all(world)
    check_no_inversion(world)
    check_dependencies(world)


def check_dependencies(world: World) -> None:
    """What a job still waits for has not come yet, and could; only waiting jobs wait for others."""
    for record in world.jobs.values():
        for job, after in (record.awaits or {}).items():
            if record.state not in TERMINAL:
                assert record.state is JobState.PENDING, f"{record.id} runs before {job}"
                if after is After.TURN:
                    room = world.queue.jobs.sweeps.records[job].room
                    assert room is not None
                    assert room <= 0, f"{record.id} waits, and {job} has room"
                    continue
                met = looked_up(job, after, world.queue.jobs, {})
                assert met is None, f"{record.id} waits for {job}"
    for sweep in world.queue.jobs.sweeps.records.values():
        mine = [r for r in world.jobs.values() if r.spec.in_sweep == sweep.id]
        over = [r for r in mine if r.state in TERMINAL]
        assert sum(sweep.ended.values()) == len(over), sweep.id
        going = [r for r in mine if r.state not in TERMINAL and sweep.id not in (r.awaits or {})]
        assert len(going) == sweep.let_go - sweep.over, sweep.id


def check_no_inversion(world: World) -> None:
    """A waiting job that could start now does not stay waiting, unless it chose to wait for a copy.

    Where the profile has all wait behind the first that finds no room, nobody else is looked at; and where time
    is shared, whoever has no turn waits until those have stopped who had to.
    """
    if world.options.when_blocked is WhenBlocked.STOP:
        return
    for record in world.jobs.values():
        if record.state not in WAITING or record.plan is not None:
            continue
        if not world.queue.backlog.grants.may_start(record.id) or record.is_aside:
            continue
        if record.not_before_s <= world.now and not _awaits_copy(world, record):
            plan = could_start(world, record)
            assert plan is None, f"{record.id} waits ({world.reason(record.id)}) but fits: {plan}"


def _awaits_copy(world: World, record: JobRecord) -> bool:
    """A place that gets its data soon may score better than one that has it now.

    It waits for that within its quota, and is looked at again after a while; what it is told beyond it hides the reason.
    """
    pending = world.queue.backlog
    job_class = pending.class_of(record.id)
    waits = world.reason(record.id) == "WaitingForData"
    waits = waits or (
        job_class is not None and pending.blocked.retries.at_s(job_class.number) is not None
    )
    moving = {copy.dataset for copy in world.queue.data.catalogue.copies.values()}
    return waits and not moving.isdisjoint(record.spec.datasets)


def _waits_near(world: World, record: JobRecord, costs: dict[str, DataCost]) -> bool:
    """Whether it may wait where its data is, for a copy costs more, or enough was copied."""
    fetches = world.queue.data.fetches
    near = any(not cost.missing for cost in costs.values())
    most_s = max(cost.seconds for cost in costs.values())
    waits = world.now < fetches.waits_until_s(record, most_s) + FETCH_AGAIN_S
    return near and fetches.weighs and (waits or fetches.next_s(world.now) is not None)


def could_start(world: World, record: JobRecord) -> Plan | None:
    """A plan that the regions have for a waiting job in some mode, its data being there."""
    queue, spec = world.queue, record.spec
    queue.now = world.now
    if queue.data.catalogue.unknown(spec.datasets):
        return None
    costs = {r: c for r, c in queue.data_costs(spec).items() if c.barred is None}
    for over_quota in (False, True):
        grant = queue.backlog.grants.grant(record.id)  # in a round, its model and no other
        choices = queue.tenancy.choices(spec, over_quota)
        choices = tuple(choice for choice in choices if grant is None or choice == grant.choice)
        if not choices or (over_quota and _lenders_are_short(queue)):
            continue
        band = effective_band(spec.band, over_quota)
        held = queue.held_from(spec, record, over_quota)
        may_preempt = band > Band.OPPORTUNISTIC and world.options.preemption is Preemption.BAND
        for preempt in (False, True)[: 1 + may_preempt]:
            mode = Preempt() if preempt else FREE
            request = queue.request(spec, over_quota, choices, record=record, mode=mode, held=held)
            for region, cost in costs.items():
                if cost.missing and (preempt or cost.copying or _waits_near(world, record, costs)):
                    continue
                ask = request.in_region(queue.terms(region, cost))
                plan = world.placer(region).search(world.now, ask).best(ask)
                if plan is not None:
                    return plan
    return None


def _lenders_are_short(queue: GlobalQueue) -> bool:
    """While more is held than the fleet file has, lenders that take what they kept let others borrow.

    That is looked at with the next change, and not at once.
    """
    top = (
        (model, total.claimed)
        for (name, model), total in queue.tenancy.ledger.totals.items()
        if not name
    )
    return any(
        claimed > queue.tenancy.ledger.capacity.get(model, claimed) for model, claimed in top
    )


def check_engines_agree(world: World) -> None:
    """Nothing runs that nobody owns, and gangs are whole: no task of them is missing."""
    for name, engine in world.engines.items():
        manager = world.machines.clusters.get(name)
        owned = manager.state.attempts if manager else {}
        for job, epoch, _ in engine.alive():
            assert job in owned, f"{job}.{epoch} runs in {name} and nobody owns it"
            assert owned[job].epoch == epoch, f"{job}.{epoch} runs in {name} beside the one owned"
        for attempt in owned.values():
            if attempt.held:
                assert not engine.of(attempt.job, attempt.epoch), f"{attempt.job} has no turn yet"
                continue
            tasks = [engine.tasks[key] for key in engine.of(attempt.job, attempt.epoch)]
            assert len(tasks) == len(attempt.tasks), f"{attempt.job} is not whole"
            well = all(t.life is Life.ALIVE or (t.life is Life.OVER and t.code == 0) for t in tasks)
            assert well, f"{attempt.job}.{attempt.epoch} lacks tasks: {tasks}"


def check_replicas(world: World) -> None:
    """What the catalogue calls complete is in its store."""
    for name, record in world.queue.data.catalogue.datasets.items():
        for region, state in record.replicas.items():
            if state is ReplicaState.COMPLETE:
                assert (name, region) in world.mover.stored, f"{name} is not in {region}"


def check_rebuilds(world: World) -> None:
    """Machines made from the journal alone are those that wrote it, to the last byte."""
    machines = world.rebuilt()
    blobs = world.blobs()
    again = {address: machine.snapshot() for address, machine in machines.addressed()}
    assert sorted(again) == sorted(blobs)
    for address, blob in blobs.items():
        assert again[address] == blob, f"{address} is rebuilt differently"


def expected_to_wait(world: World, record: JobRecord) -> bool:
    """Whether a job may still wait when all else is done: no fleet, quota or data could serve it."""
    if world.reason(record.id) == "WaitingForJobs":
        awaits = record.awaits or {}
        before = [
            r
            for r in world.jobs.values()
            if r.id in awaits
            # Those that wait for their own turn in the sweep are not what it waits for.
            or (r.spec.in_sweep in awaits and r.spec.in_sweep not in (r.awaits or ()))
        ]
        return any(r.state in WAITING and expected_to_wait(world, r) for r in before)
    return world.reason(record.id) in {
        "UnknownDataset", "ExceedsMaxQuota", "NoMatchingHardware", "TopologyDoesNotFit",
        "WaitingForData",
    }  # fmt: skip
