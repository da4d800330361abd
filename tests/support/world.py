"""The three machines under a virtual clock, with toy engines and a toy mover around them.

What a test tells the world to do (finish a task, lose a host, kill the process) comes in as the
messages that a real engine posts. Everything the machines make of it is journalled before anything
leaves them, so that `restart` can kill them at any moment and `rebuilt` can compare.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from tests.support.build import profile
from tests.support.engine import Life, ToyEngine, ToyMover
from tests.support.journal import MemoryJournal
from topmast.fast.queue.facts import Planned, plans_won
from topmast.fast.queue.jobs.record import JobRecord
from topmast.fast.queue.machine import GlobalQueue
from topmast.fast.region.machine import RegionalPlacer
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.fleet import Fleet
from topmast.model.job import JobSpec
from topmast.model.states import HostState, JobState
from topmast.policies.base import PairSpeeds
from topmast.policies.options import Profile
from topmast.ports import Audit, Record, Snapshot
from topmast.runtime.audit import AuditLog
from topmast.runtime.codec import decode_event, decode_facts, encode_event, encode_facts
from topmast.runtime.machines import Machines
from topmast.runtime.meter import Meter
from topmast.runtime.recovery import rebuild

REST_ROUNDS = 10_000
_LATER = re.compile(r"image=UNSET, |, (secrets|labels|depends_on|sweep|part)=UNSET")
"""Fields that specs got after the golden journal was recorded."""


class Cascade(Struct):
    """One event and all that followed inside the process: what to write down, then what to send."""

    reply: Any
    records: list[Record]
    audit: Audit
    sends: list[m.Send]


class Input(Struct, frozen=True):
    """One message that came from outside, or a wake-up: all that decisions follow from."""

    at_s: float
    to: str
    message: m.Message


class World:
    """A whole system in one object. ``obedient`` engines start and stop tasks at once.

    Without a fleet it is a system that nobody has told anything yet.
    """

    def __init__(
        self,
        fleet: Fleet | None,
        options: Profile | None = None,
        *,
        obedient: bool = True,
        elsewhere: Mapping[str, str] | None = None,
        pair_speeds: PairSpeeds | None = None,
    ) -> None:
        self.elsewhere = dict(elsewhere or {})
        self.options = options or profile()
        self.fleet = fleet or Fleet(())
        self.pair_speeds = pair_speeds
        self.machines = Machines(self.options, self.elsewhere, pair_speeds=pair_speeds)
        self.meter = Meter(self.queue, lambda: 0.0)
        self.journal = MemoryJournal()
        self.now = 0.0
        self.obedient = obedient
        self.engines: dict[str, ToyEngine] = {}
        self.mover = ToyMover()
        self.mover.stock(self.fleet)
        self.sent: list[m.Send] = []
        self.inputs: list[Input] = []
        self.mail: deque[m.Send] = deque()
        self.equip(self.fleet)
        if fleet is not None:
            self.tell(ids.QUEUE, m.ConfigureFleet(fleet))

    def equip(self, fleet: Fleet) -> None:
        """Give every cluster of a fleet an engine that knows its hosts."""
        for region in fleet.regions:
            for cluster in region.clusters:
                if cluster.name not in self.engines:
                    self.engines[cluster.name] = ToyEngine(cluster, obedient=self.obedient)
                self.engines[cluster.name].hosts = [host.name for host in cluster.hosts]

    # --- parts --------------------------------------------------------------------------------------

    @property
    def queue(self) -> GlobalQueue:
        """The global queue."""
        return self.machines.queue

    @property
    def jobs(self) -> dict[str, JobRecord]:
        """The queue's records by id."""
        return self.machines.queue.jobs.records

    def placer(self, region: str) -> RegionalPlacer:
        """The placer of a region."""
        return self.machines.placers[region]

    def region_of(self, host: str) -> str:
        """Where a host stands."""
        for name, placer in self.machines.placers.items():
            if host in placer.columns.index:
                return name
        raise AssertionError(f"no host {host}")

    def cluster_of(self, host: str) -> str:
        """Which engine runs a host."""
        return next(name for name, engine in self.engines.items() if host in engine.hosts)

    # --- driving ------------------------------------------------------------------------------------

    def tell(self, to: str, message: m.Message) -> Any:
        """Hand a message to a machine and let all follow, the wake-ups due now included."""
        reply = self.deliver(to, message)
        self.settle()
        return reply

    def deliver(self, to: str, message: m.Message) -> Any:
        """Hand a message to a machine: handle, commit, release."""
        cascade = self.handle(to, message)
        self.commit(cascade)
        self.release(cascade.sends)
        return cascade.reply

    def handle(self, to: str, message: m.Message) -> Cascade:
        """Let a machine take a message, and the machines all that follows from it; in memory."""
        self.inputs.append(Input(self.now, to, message))
        waiting = deque([m.Send(to, message)])
        log = AuditLog(self.queue)
        records: list[Record] = []
        sends: list[m.Send] = []
        replies: list[Any] = []
        seq = self.journal.written[-1].seq if self.journal.written else 0
        while waiting:
            send = waiting.popleft()
            to = self.machines.route(send.to)
            machine = self.machines.at(to)
            if machine is None:
                sends.append(send)
                continue
            if isinstance(send.message, m.AttemptEnded):
                log.foresee(send.message)
            outcome = machine.handle(send.message, self.now)
            if outcome.facts:
                event, facts = encode_event(send.message), encode_facts(outcome.facts)
                records.append(Record(seq + len(records) + 1, self.now, to, event, facts))
                log.add(send.message, outcome.facts, self.now)
                self.meter.note(send.message, outcome.facts)
            replies.append(outcome.reply)
            waiting.extend(outcome.sends)
        reply = replies[0] if replies else None
        return Cascade(reply, records, Audit(log.history, log.attempts, log.jobs), sends)

    def commit(self, cascade: Cascade) -> None:
        """Write down what was decided."""
        if cascade.records:
            self.journal.append(cascade.records, cascade.audit)

    def release(self, sends: Sequence[m.Send]) -> None:
        """Let messages out to the engines and the mover; their answers go into the mail."""
        for send in sends:
            self.sent.append(send)
            kind, _, name = send.to.partition("/")
            if kind == ids.MOVER:
                self.post(ids.QUEUE, self.mover.order(send.message))
            elif name in self.engines:
                news = self.engines[name].order(send.message, self.now)
                self.post(ids.cluster(name), news)

    def post(self, to: str, news: Sequence[m.Message]) -> None:
        """Put news into the mail."""
        self.mail.extend(m.Send(to, message) for message in news)

    def due(self) -> list[str]:
        """The machines that want to be woken by now."""
        found = []
        for address, machine in self.machines.addressed():
            at_s = machine.next_wakeup_s()
            if at_s is not None and at_s <= self.now:
                found.append(address)
        return found

    def settle(self) -> None:
        """Deliver the mail and the wake-ups due now, until there are none."""
        for _ in range(REST_ROUNDS):
            while self.mail:
                send = self.mail.popleft()
                self.deliver(send.to, send.message)
            due = self.due()
            if not due:
                return
            for address in due:
                self.deliver(address, m.Wake())
        raise AssertionError("the machines never come to rest")

    def next_wakeup_s(self) -> float | None:
        """When a machine wants to be woken."""
        times = [machine.next_wakeup_s() for _, machine in self.machines.addressed()]
        return min((at_s for at_s in times if at_s is not None), default=None)

    def advance(self, seconds: float) -> None:
        """Let time pass, stopping at every wake-up on the way."""
        end = self.now + seconds
        while (at_s := self.next_wakeup_s()) is not None and at_s <= end:
            self.now = max(self.now, at_s)
            self.settle()
        self.now = end

    # --- death and recovery ---------------------------------------------------------------------------

    def snapshot(self) -> None:
        """Save a snapshot of every machine."""
        seq = self.journal.written[-1].seq if self.journal.written else 0
        self.journal.save_snapshot(Snapshot(seq, self.now, self.blobs()))

    def blobs(self) -> dict[str, bytes]:
        """The state of every machine by address."""
        return {address: machine.snapshot() for address, machine in self.machines.addressed()}

    def rebuilt(self) -> Machines:
        """Other machines, made from the journal alone."""
        machines = Machines(self.options, self.elsewhere, pair_speeds=self.pair_speeds)
        rebuild(machines, self.journal)
        return machines

    def crash(self) -> None:
        """The process is killed, its mail lost; another one recovers what was committed."""
        self.mail.clear()
        self.machines = self.rebuilt()
        self.meter = Meter(self.queue, lambda: 0.0)
        self.meter.recovered()
        for (
            placer
        ) in self.machines.placers.values():  # engines get their hosts when a process begins
            for cluster in placer.state.region.clusters:
                if cluster.name in self.engines:
                    self.engines[cluster.name].equip([host.name for host in cluster.hosts])

    def recover(self) -> None:
        """The new process says again what may not have been heard, and listens to the engines."""
        for address, _ in self.machines.addressed():
            self.deliver(address, m.Recovered())
        for name, engine in self.engines.items():
            self.post(ids.cluster(name), engine.open())
        self.deliver(ids.QUEUE, m.ConfigureFleet(self.fleet))

    def restart(self) -> None:
        """Kill the process and let another one take over."""
        self.crash()
        self.recover()
        self.settle()

    # --- what people do ---------------------------------------------------------------------------------

    def submit(self, *specs: JobSpec, key: str = "") -> Any:
        """Submit jobs; returns their ids, or the error."""
        # The golden journal was recorded before jobs could name an image or secrets.
        digest = key and _LATER.sub("", repr(specs))
        return self.tell(ids.QUEUE, m.SubmitJobs(specs, key, digest))

    def cancel(self, *jobs: str) -> Any:
        """Cancel jobs."""
        return self.tell(ids.QUEUE, m.CancelJobs(jobs, "ann"))

    def configure(self, fleet: Fleet) -> None:
        """Start with another fleet file."""
        self.fleet = fleet
        self.equip(fleet)
        self.tell(ids.QUEUE, m.ConfigureFleet(fleet))

    def set_host(self, host: str, state: HostState) -> Any:
        """Cordon, drain or return a host."""
        return self.tell(ids.placer(self.region_of(host)), m.SetHost(host, state, "ann"))

    def assign(self, region: str, **owners: str) -> Any:
        """Hosts shall go to other clusters; underscores stand for dashes."""
        wanted = {host.replace("_", "-"): to.replace("_", "-") for host, to in owners.items()}
        return self.tell(ids.placer(region), m.AssignHosts(wanted, "the capacity plan"))

    # --- what happens in the clusters ---------------------------------------------------------------------

    def _engine(self, job: str) -> tuple[ToyEngine, str]:
        cluster = self.jobs[job].cluster
        assert cluster is not None, f"{job} has no place"
        return self.engines[cluster], ids.cluster(cluster)

    def start(self, job: str, *ranks: int) -> None:
        """Tasks of the job's attempt begin; all of them, unless ranks are named."""
        engine, address = self._engine(job)
        for key in engine.of(job, self.jobs[job].epoch):
            if engine.tasks[key].life is Life.ORDERED and (not ranks or key[2] in ranks):
                self.post(address, engine.start(key, self.now))
        self.settle()

    def finish(self, job: str, code: int | None = 0, *, ranks: Sequence[int] = ()) -> None:
        """Tasks of the job's attempt end with ``code`` (None: without one); all, unless named."""
        engine, address = self._engine(job)
        for key in engine.of(job, self.jobs[job].epoch):
            if engine.tasks[key].life is not Life.OVER and (not ranks or key[2] in ranks):
                self.post(address, engine.end(key, code, self.now))
        self.settle()

    def checkpoint(self, job: str, step: int) -> None:
        """A task reports that the job can go on from ``step``."""
        _, address = self._engine(job)
        self.tell(address, m.Checkpointed(job, self.jobs[job].epoch, step, self.now))

    def lose(self, host: str) -> None:
        """A host dies with everything on it."""
        cluster = self.cluster_of(host)
        self.post(ids.cluster(cluster), self.engines[cluster].lose(host, self.now))
        self.settle()

    def revive(self, host: str) -> None:
        """A host comes back."""
        cluster = self.cluster_of(host)
        self.post(ids.cluster(cluster), self.engines[cluster].revive(host))
        self.settle()

    def evict(self, job: str, why: str, *ranks: int) -> None:
        """The cluster's own people end tasks of a job's attempt; all, unless ranks are named."""
        engine, address = self._engine(job)
        for key in engine.of(job, self.jobs[job].epoch):
            if engine.tasks[key].life is not Life.OVER and (not ranks or key[2] in ranks):
                self.post(address, engine.evict(key, why, self.now))
        self.settle()

    def close_host(self, host: str, why: str) -> None:
        """A cluster gives a host no new work; without a reason, it does again."""
        cluster = self.cluster_of(host)
        self.post(ids.cluster(cluster), self.engines[cluster].close_host(host, why))
        self.settle()

    def arrive(self, copy: str) -> None:
        """A copy is complete."""
        self.post(ids.QUEUE, self.mover.finish(copy))
        self.settle()

    def spoil(self, copy: str) -> None:
        """A copy fails."""
        self.post(ids.QUEUE, self.mover.spoil(copy))
        self.settle()

    # --- looking ------------------------------------------------------------------------------------------

    def state(self, job: str) -> JobState:
        """The state of a job."""
        return self.jobs[job].state

    def states(self) -> dict[str, str]:
        """The state of every job."""
        return {job: record.state.value for job, record in self.jobs.items()}

    def reason(self, job: str) -> str | None:
        """The dominant reason of a waiting job."""
        verdict = self.queue.verdict_on(self.jobs[job])
        return None if verdict is None else verdict.reason.value

    def plans(self) -> list[Planned]:
        """Every plan that won, alone or with others, in order."""
        queue = [record for record in self.journal.written if record.machine == ids.QUEUE]
        return [
            fact
            for record in queue
            for fact in plans_won(
                decode_event(record.event), decode_facts(record.machine, record.facts)
            )
        ]

    def facts(self, kind: type[Struct]) -> list[Any]:
        """Every fact of one kind in the journal, in order."""
        found: list[Any] = []
        for record in self.journal.written:
            if kind.__name__.encode() in record.facts:
                decoded = decode_facts(record.machine, record.facts)
                found += [fact for fact in decoded if type(fact) is kind]
        return found

    def orders(self, kind: type[m.Message]) -> list[Any]:
        """Every message of one kind that left the machines, in order; of several gangs each one."""
        sent = [send.message for send in self.sent]
        told = [one.gangs if isinstance(one, m.StartGangs) else (one,) for one in sent]
        return [one for some in told for one in some if type(one) is kind]
