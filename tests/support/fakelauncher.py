"""A world for the protocol of far engines, in virtual time: scheduler, hosts, runners, network.

Every fault that was measured on real schedulers can happen, by the dice of a seed. The world
looks at each moment whether a promise is broken:

- a rank has one body at most, ever, and none after its end was told;
- an end, or that a host is down, is told only while no body of it lives;
- an attempt that was taken is started or ended in the end.
"""

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec

from topmast.adapters.engines.far import events as e
from topmast.adapters.engines.far.launcher import Host, Listed, State
from topmast.adapters.engines.far.plan import make_parts
from topmast.adapters.engines.far.protocol import Protocol, Terms
from topmast.model import messages as m
from topmast.model.job import JobSpec, Resources, TaskGroup
from topmast.model.plan import Seat

HOSTS = ("h0", "h1")
LEASE_S = 60.0
TERMS = Terms(lease_s=LEASE_S, margin_s=3.0, silence_s=15.0, distrust_s=30.0)
BEAT_S = 5.0
FAULTS = (
    "scheduler runs it twice",
    "scheduler takes a host",
    "acknowledged submission vanishes",
    "submission arrives later",
    "submission is refused",
    "id is used again",
    "another has the name",
    "cancelled part comes back",
    "listing is empty",
    "listing lacks some",
    "listing hangs",
    "scheduler has its old state",
    "scheduler evicts",
    "scheduler says ended while it lives",
    "daemon of a host is silent",
    "runner is frozen",
    "runner is killed",
    "runner ends before it asks",
    "home cannot be reached from a host",
    "host dies",
    "message is lost",
    "message is late",
    "message comes twice",
    "peers of what ended give up",
    "we crash",
    "our wall clock is set",
    "wall clock of a host is wrong",
)
SKEWS_S = (-86400.0, -120.0, 120.0, 86400.0)
"""How wrong a wall clock is, or by how much it is set."""
CHAOS_S = 250.0
QUIET_S = 500.0


class Broken(AssertionError):
    """A promise was broken."""


@dataclass
class Body:
    """The processes of one rank."""

    key: tuple[str, int, int]
    host: str
    alive: bool = True


@dataclass
class Entry:
    """A part as the scheduler has it."""

    name: str
    id: str
    submitted_s: float
    plan: e.PartPlan
    lease_s: float | None
    state: State = State.HELD
    why: str = ""
    evicted: bool = False
    run: str = ""
    hosts: int = 0
    foreign: bool = False
    """Of others, with the name of a part: nothing that it runs knows of us."""
    runners: list["Runner"] = field(default_factory=list)

    def listed(self) -> Listed:
        known = (self.name, self.id, self.submitted_s, self.state, self.why, self.evicted)
        return Listed(*known, self.run, hosts=self.hosts)


class Runner:
    """What a runner does, its processes seen as one: it may stand still, but never outlive a lease."""

    def __init__(self, world: "World", entry: Entry, host: str) -> None:
        self.world = world
        self.entry = entry
        self.host = host
        self.nonce = f"n{next(world.numbers)}"
        self.run = entry.run
        self.bodies: dict[int, Body] = {}
        self.gone = False
        self.granted = False
        self.frozen_until_s = 0.0
        self.until_s = float("inf")
        self.stopping = False
        self.evicted = False
        """It was ended by something else before it heard of a stop."""
        self.ends: dict[int, tuple[int | None, bool]] = {}
        self.told: set[int] = set()
        self.drift = 1.0 - world.dice.random() * 0.005
        self.cut_until_s = 0.0
        if world.strikes("runner ends before it asks"):
            world.at(0.0, self.leave)
        world.at(world.dice.random() * 2.0, self.claim)
        world.at(2 * LEASE_S, self.give_up)
        for fault, strike in (
            ("runner is frozen", self.freeze),
            ("runner is killed", self.kill),
            ("home cannot be reached from a host", self.cut_off),
            ("host dies", self.die_with_host),
        ):
            if world.strikes(fault):
                world.at(world.dice.random() * 80.0, strike)

    @property
    def still(self) -> bool:
        return self.world.now_s < self.frozen_until_s

    @property
    def cut(self) -> bool:
        return self.world.now_s < self.cut_until_s

    def ask(self, event: Any, hear: Callable[[Any, float], None]) -> None:
        """A request, and the answer if both arrive."""
        if self.cut:
            return
        asked_s = self.world.now_s
        for delay_s in self.world.journeys():
            self.world.at(delay_s, self._arrive, event, hear, asked_s)

    def _arrive(self, event: Any, hear: Callable[[Any, float], None], asked_s: float) -> None:
        answer = self.world.event(event)
        if answer is not None:
            for delay_s in self.world.journeys():
                self.world.at(delay_s, self._hear, hear, answer, asked_s)

    def _hear(self, hear: Callable[[Any, float], None], answer: Any, asked_s: float) -> None:
        if not self.gone and not self.still:
            hear(answer, asked_s)

    def claim(self) -> None:
        if not self.granted and not self.gone:
            if not self.still:
                self.ask(
                    e.Claim(self.entry.name, self.host, self.nonce, "a", 1, self.run), self.heard
                )
            self.world.at(2.0, self.claim)

    def give_up(self) -> None:
        if not self.granted:
            self.leave()

    def heard(self, answer: e.Answer, asked_s: float) -> None:
        """Obey an answer to a claim or a beat."""
        if answer.status != e.GRANTED:
            self.finish()
            return
        lease_s = self.entry.lease_s
        if lease_s is not None:
            until_s = asked_s + lease_s * self.drift
            self.until_s = until_s if not self.granted else max(self.until_s, until_s)
            self.world.at(max(0.0, self.until_s - self.world.now_s), self.lapse)
        if not self.granted:
            self.granted = True
            if self.world.now_s < self.until_s:
                self.begin()
            self.world.at(BEAT_S, self.beat)
        assert answer.orders is not None
        if answer.orders.grace_s is not None and not self.stopping:
            self.stopping = True
            self.world.at(self.world.dice.random() * answer.orders.grace_s, self.end_all, 143)

    def begin(self) -> None:
        job, epoch = self.world.attempt_of(self.entry.name)
        for rank in self.entry.plan.ranks[self.host]:
            body = self.world.birth((job, epoch, rank), self.host)
            self.bodies[rank] = body
            self.world.at(self.world.dice.random() * 120.0, self.end, rank, 0)

    def beat(self) -> None:
        if self.gone or len(self.told) == len(self.bodies) > 0:
            return
        if not self.still:
            self.ask(e.Beat(self.entry.name, self.host, self.nonce), self.heard)
        self.world.at(BEAT_S, self.beat)

    def lapse(self) -> None:
        """The lease may be over: whatever stands still, another process ends the ranks."""
        if self.world.now_s >= self.until_s - 1e-9:
            self.end_all(None, evicted=True)

    def end(self, rank: int, code: int | None, evicted: bool = False) -> None:
        body = self.bodies.get(rank)
        if body is not None and body.alive and not (self.still and code == 0):
            body.alive = False
            self.evicted = self.evicted or evicted
            self.ends[rank] = (code, self.evicted)
            self.tell(rank)
            if code != 0:
                self.world.shake(body.key)

    def end_all(self, code: int | None, evicted: bool = False) -> None:
        for rank in list(self.bodies):
            self.end(rank, code, evicted)
        if not self.bodies:
            self.leave()

    def tell(self, rank: int) -> None:
        if self.gone or rank in self.told:
            return
        if not self.still:
            code, evicted = self.ends[rank]
            at_s = self.world.now_s + self.world.hosts_ahead_s[self.host]
            event = e.RankEnded(
                self.entry.name, self.host, self.nonce, rank, code, at_s, "", evicted
            )
            self.ask(event, lambda answer, asked_s: self.heard_told(rank))
        self.world.at(2.0, self.tell, rank)

    def heard_told(self, rank: int) -> None:
        self.told.add(rank)
        if len(self.told) == len(self.bodies):
            self.leave()

    def finish(self) -> None:
        """Home wants none of it: end all without a word."""
        for body in self.bodies.values():
            body.alive = False
        self.leave()

    def leave(self) -> None:
        if not self.gone:
            self.gone = True
            self.world.at(self.world.dice.random(), self.world.runner_left, self)

    def freeze(self) -> None:
        self.frozen_until_s = self.world.now_s + self.world.dice.choice([5.0, 30.0, 200.0])

    def cut_off(self) -> None:
        """Its processes go on; the scheduler's daemon has another way, and answers."""
        self.cut_until_s = self.world.now_s + self.world.dice.choice([20.0, 40.0, 200.0])

    def kill(self) -> None:
        """One of its processes: the other ends the ranks, and tells."""
        if not self.gone:
            self.world.at(1.0, self.end_all, None)

    def signal(self, grace_s: float) -> None:
        """SIGTERM by the scheduler, and SIGKILL later."""
        self.evicted = self.evicted or not self.stopping
        self.world.at(self.world.dice.random() * grace_s, self.end_all, 143)
        self.world.at(grace_s + 1.0, self.die)

    def die(self) -> None:
        """At once, without a word."""
        self.finish()

    def die_with_host(self) -> None:
        self.world.host_dies(self.host)


class World:
    """Everything, and the clock."""

    def __init__(self, seed: int, protocol: Callable[..., Protocol] = Protocol) -> None:
        self.dice = random.Random(seed)
        self.make_protocol = protocol
        self.now_s = 1.0
        self.numbers = count()
        self._later: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        few = self.dice.random() < 0.3
        self.rates = {
            fault: self.dice.choice([0.0, 0.05, 0.2, 0.5])
            if not few or self.dice.random() < 0.2
            else 0.0
            for fault in FAULTS
        }
        self.calm = False
        self.many_hosts = self.dice.random() < 0.5
        self.holds = self.dice.random() < 0.7
        """Whether the scheduler can hold a part."""
        self.runs_again = self.dice.random() < 0.5
        """Whether the scheduler may run a part again, and tells one run from another."""
        self.entries: list[Entry] = []
        self.runners: list[Runner] = []
        self.next_id = 1
        self.silent: dict[str, bool] = dict.fromkeys(HOSTS, False)
        self.bodies: dict[tuple[str, int, int], Body] = {}
        self.told: dict[tuple[str, int, int], m.Message] = {}
        self.news: list[m.Message] = []
        self.started: set[tuple[str, int, int]] = set()
        self.gangs: dict[tuple[str, int], m.StartGang] = {}
        self.taken: set[tuple[str, int]] = set()
        self.asked: set[tuple[str, str]] = set()
        """Name and id of what the engine asked to end; an end counts as asked for if that was lost too."""
        self.durable: list[bytes] = []
        self.story: list[str] = []
        self.life = 0
        self.up = False
        self.ahead_s = 0.0
        """Of our wall clock before the right time; it may be set while we run."""
        self.hosts_ahead_s = {host: self.wrong_s("wall clock of a host is wrong") for host in HOSTS}
        self.boot()

    # --- time and chance ------------------------------------------------------------------------

    def at(self, delay_s: float, call: Callable[..., object], *given: Any) -> None:
        heapq.heappush(self._later, (self.now_s + delay_s, next(self.numbers), call, given))

    def strikes(self, fault: str) -> bool:
        struck = not self.calm and self.dice.random() < self.rates[fault]
        if struck:
            self.note(fault)
        return struck

    def wrong_s(self, fault: str) -> float:
        """How far a clock is ahead, by the dice."""
        return self.dice.choice(SKEWS_S) if self.strikes(fault) else 0.0

    def note(self, *words: object) -> None:
        self.story.append(f"{self.now_s:8.2f} " + " ".join(str(word) for word in words))

    def journeys(self) -> list[float]:
        """When a message arrives, and how often."""
        if self.strikes("message is lost"):
            return []
        late_s = 90.0 * self.dice.random() if self.strikes("message is late") else 0.0
        times = [self.dice.random() * 0.1 + late_s]
        if self.strikes("message comes twice"):
            times.append(self.dice.random() * 70.0)
        return times

    def run(self) -> "World":
        """The whole of a story: chaos, then calm, then what must be so."""
        for number in range(self.dice.randint(1, 3)):
            self.at(self.dice.random() * 60.0, self.order, f"j{number}")
        for _ in range(3):
            self.at(self.dice.random() * CHAOS_S, self.disturb)
        self.at(CHAOS_S, self.be_calm)
        self.at(CHAOS_S + 190.0, self.judge_starts)
        self.run_until(CHAOS_S + QUIET_S)
        self.judge()
        return self

    def run_until(self, until_s: float) -> None:
        """Have everything happen that happens before."""
        while self._later and self.now_s < until_s:
            self.now_s, _, call, given = heapq.heappop(self._later)
            call(*given)

    def be_calm(self) -> None:
        self.calm = True
        for host in HOSTS:
            self.speak(host)
        if not self.up:
            self.boot()

    # --- the engine's process ---------------------------------------------------------------------

    def boot(self) -> None:
        self.life += 1
        self.up = True
        self.protocol = self.make_protocol(TERMS, HOSTS)
        decode = msgspec.json.Decoder(e.Fact).decode
        for fact in self.durable:
            self.protocol.attempts.apply(decode(fact))
        self.carry_out(self.protocol.recover(self.moment()))
        self.at(0.1, self.look, self.life)
        self.at(1.0, self.tick, self.life)

    def moment(self) -> e.Moment:
        return e.Moment(self.now_s, self.now_s + self.ahead_s)

    def crash(self) -> None:
        self.note("crash")
        self.up = False
        self.at(self.dice.choice([0.5, 5.0, 100.0]), self.reboot, self.life)

    def reboot(self, life: int) -> None:
        if not self.up and life == self.life:
            self.boot()

    def is_down(self) -> bool:
        return not self.up

    def crashes(self) -> bool:
        if self.up and self.strikes("we crash") and self.dice.random() < 0.05:
            self.crash()
        return not self.up

    def event(self, event: Any) -> Any:
        """What the engine does with an event, cut off anywhere by a crash; its answer."""
        if not self.up:
            return None
        outcome = self.protocol.handle(event, self.moment())
        if self.crashes():
            return None
        self.durable += [msgspec.json.encode(fact) for fact in outcome.facts]
        for fact in outcome.facts:
            self.note("fact", fact)
            if isinstance(fact, e.Intended):
                self.taken.add((fact.gang.job, fact.gang.epoch))
        if self.crashes():
            return None
        self.carry_out(outcome)
        return None if self.is_down() else outcome.answer

    def carry_out(self, outcome: e.Outcome) -> None:
        for action in outcome.actions:
            if self.crashes():
                return
            if isinstance(action, e.Post):
                self.hear(action.message)
                continue
            self.note(type(action).__name__, getattr(action, "listed", getattr(action, "plan", "")))
            delay_s = self.dice.random() * (20.0 if self.strikes("message is late") else 0.5)
            if isinstance(action, e.Cancel):
                self.asked.add((action.listed.name, action.listed.id))
            if isinstance(action, e.Submit):
                self.at(delay_s, self.submit, action, self.life)
            elif self.strikes("message is lost"):
                continue
            elif isinstance(action, e.Release):
                self.at(delay_s, self.release, action.listed)
            elif isinstance(action, e.Cancel):
                self.at(delay_s, self.cancel, action.listed, action.grace_s)

    def tick(self, life: int) -> None:
        if life == self.life and self.up:
            self.event(e.Tick())
            self.at(1.0, self.tick, life)

    def look(self, life: int) -> None:
        if life == self.life and self.up:
            self.at(self.dice.random() * 0.3, self.look_again, life, self.now_s)

    def look_again(self, life: int, began_s: float) -> None:
        if life != self.life or not self.up:
            return
        if self.strikes("listing hangs"):
            self.event(e.LookFailed("no answer"))
            self.at(5.0, self.look, life)
            return
        listed = [entry.listed() for entry in self.entries]
        if self.strikes("listing is empty"):
            listed = []
        if self.strikes("listing lacks some"):
            listed = [one for one in listed if self.dice.random() < 0.5]
        hosts = tuple(Host(name, not silent) for name, silent in self.silent.items())
        # Between the scheduler's answer and its arrival things happen.
        self.at(
            self.dice.random() * 0.5, self.looked, life, e.Looked(began_s, tuple(listed), hosts)
        )

    def looked(self, life: int, event: e.Looked) -> None:
        if life == self.life and self.up:
            self.event(event)
            self.at(0.2 if self.protocol.urgent else 2.0, self.look, life)

    # --- orders -----------------------------------------------------------------------------------

    def order(self, job: str) -> None:
        """Start a gang; sometimes again, sometimes stop it, even before."""
        gang = self.gang(job, [self.dice.choice(HOSTS) for _ in range(self.dice.randint(1, 4))])
        for delay_s in [0.0] + [self.dice.random() * CHAOS_S] * self.dice.randint(0, 2):
            self.at(delay_s, self.start, gang)
        for _ in range(self.dice.choice([0, 0, 1, 2])):
            stop = e.Stop(job, 1, self.dice.choice([0.0, 5.0, 30.0]))
            self.at(self.dice.random() * 90.0, self.event, stop)
        self.at(CHAOS_S + 1.0, self.start, gang)
        self.at(CHAOS_S + 200.0, self.event, e.Stop(job, 1, 1.0))

    def gang(self, job: str, hosts: Sequence[str]) -> m.StartGang:
        """A gang with a task on each of these hosts; some hosts give each of theirs two GPUs."""
        spec = JobSpec("a job", (TaskGroup("trainer", len(hosts), Resources(), "true"),))
        large = {host for host in HOSTS if self.dice.random() < 0.2}
        seats = tuple(
            Seat("trainer", n, host, (2 * n, 2 * n + 1) if host in large else (2 * n,))
            for n, host in enumerate(hosts)
        )
        gang = self.gangs[job, 1] = m.StartGang(job, 1, spec, "east", "east-1", seats)
        return gang

    def start(self, gang: m.StartGang) -> None:
        parts = make_parts(gang, "f", many_hosts=self.many_hosts)
        for part in parts if self.holds else ():
            if self.strikes("another has the name"):
                self.take_name(part)
        self.event(e.Start(gang, parts, {}))

    # --- the scheduler ----------------------------------------------------------------------------

    def attempt_of(self, name: str) -> tuple[str, int]:
        words = name.split("-")
        return words[2], int(words[3])

    def submit(self, action: e.Submit, life: int) -> None:
        name = action.plan.name
        if self.strikes("submission is refused") and self.dice.random() < 0.2:
            self.answer_submit(e.Submitted(name, refused="no such partition"), life)
        elif self.strikes("submission arrives later"):
            self.at(self.dice.random() * 60.0, self.enter, action)
            self.answer_submit(e.Submitted(name, unsure="no answer in time"), life)
        else:
            vanished = f"gone-{len(self.entries)}"
            strikes = self.strikes("acknowledged submission vanishes")
            id = vanished if strikes else self.enter(action)
            self.answer_submit(e.Submitted(name, id=id if self.holds else ""), life)

    def answer_submit(self, event: e.Submitted, life: int) -> None:
        if life == self.life:
            self.at(
                self.dice.random() * 0.2, lambda: self.event(event) if life == self.life else None
            )

    def enter(self, action: e.Submit) -> str:
        plan = action.plan
        if not self.holds and any(entry.name == plan.name for entry in self.entries):
            return ""  # where parts cannot be held, their names are unique
        if self.strikes("id is used again"):
            self.next_id = 1
        entry = Entry(plan.name, str(self.next_id), self.now_s, plan, action.lease_s)
        self.next_id += 1
        self.entries.append(entry)
        if not (self.holds and action.hold):
            self.queue(entry)
        return entry.id

    def take_name(self, plan: e.PartPlan) -> None:
        """A job of others is called so, and ends by itself."""
        id = f"other-{len(self.entries)}"
        entry = Entry(plan.name, id, self.now_s, plan, None, run=id, foreign=True)
        entry.state = self.dice.choice([State.HELD, State.WAITING, State.RUNNING, State.ENDED])
        self.entries.append(entry)
        self.at(self.dice.random() * 60.0, setattr, entry, "state", State.ENDED)

    def find(self, listed: Listed) -> Entry | None:
        key = (listed.name, listed.id, listed.submitted_s)
        return next((n for n in self.entries if (n.name, n.id, n.submitted_s) == key), None)

    def release(self, listed: Listed) -> None:
        entry = self.find(listed)
        if entry is not None and entry.state is State.HELD:
            self.queue(entry)

    def queue(self, entry: Entry) -> None:
        entry.state = State.WAITING
        self.at(self.dice.random() * 10.0, self.execute, entry)
        if self.runs_again and self.strikes("scheduler runs it twice"):
            self.at(self.dice.random() * 60.0, self.execute_again, entry)

    def execute(self, entry: Entry) -> None:
        if entry.state is State.WAITING and entry in self.entries:
            entry.state = State.RUNNING
            self.start_runners(entry)

    def execute_again(self, entry: Entry) -> None:
        self.note("runs again", entry.name, entry.id)
        if entry.state is not State.HELD:
            entry.state = State.RUNNING
            self.start_runners(entry)

    def start_runners(self, entry: Entry) -> None:
        if entry.foreign:
            self.at(self.dice.random() * 60.0, setattr, entry, "state", State.ENDED)
            return
        entry.run = f"r{len(entry.runners)}" if self.runs_again else ""
        hosts = list(entry.plan.ranks)
        if len(hosts) > 1 and self.strikes("scheduler takes a host"):
            hosts.remove(self.dice.choice(hosts))
        entry.hosts = len(hosts)
        entry.runners += [Runner(self, entry, host) for host in hosts]
        self.runners += entry.runners[-len(hosts) :]

    def runner_left(self, runner: Runner) -> None:
        """The scheduler takes the last run of an entry for the entry."""
        entry = runner.entry
        last = entry.runners[-entry.hosts :]
        if entry.state is State.RUNNING and all(one.gone for one in last):
            entry.state = State.ENDED
            entry.why = "completed"
            self.note("ended, says the scheduler", entry.name, entry.id)

    def cancel(self, listed: Listed, grace_s: float) -> None:
        entry = self.find(listed)
        if entry is None:
            return
        if entry.state in (State.HELD, State.WAITING):
            entry.state = State.ENDED
            if (self.runs_again or not entry.runners) and self.strikes("cancelled part comes back"):
                self.at(self.dice.random() * 30.0, self.execute_again, entry)
        elif entry.foreign:
            entry.state = State.ENDED
        for runner in entry.runners:
            runner.signal(grace_s)

    def shake(self, key: tuple[str, int, int]) -> None:
        """What computes together with a task that ended otherwise than well may end too."""
        for entry in self.entries:
            for runner in entry.runners:
                for rank, body in runner.bodies.items():
                    is_peer = body.key[:2] == key[:2] and body.key != key
                    if body.alive and is_peer and self.strikes("peers of what ended give up"):
                        self.at(self.dice.random() * 2.0, runner.end, rank, 1)

    def disturb(self) -> None:
        """Something happens to the scheduler or a host."""
        running = [entry for entry in self.entries if entry.state is State.RUNNING]
        if running and self.strikes("scheduler evicts"):
            entry = self.dice.choice(running)
            entry.evicted = True
            for runner in entry.runners:
                runner.signal(2.0)
        if running and self.strikes("scheduler says ended while it lives"):
            entry = self.dice.choice(running)
            for host in entry.plan.ranks:
                self.silence(host)
            entry.state, entry.why = State.ENDED, "node failed"
        if self.entries and self.strikes("scheduler has its old state"):
            entry = self.dice.choice(self.entries)
            if self.dice.random() < 0.5:
                self.entries.remove(entry)
            elif self.holds:
                entry.state = State.HELD
        if self.strikes("daemon of a host is silent"):
            self.silence(self.dice.choice(HOSTS))
        self.ahead_s += self.wrong_s("our wall clock is set")

    def silence(self, host: str) -> None:
        self.silent[host] = True
        self.at(self.dice.choice([3.0, 20.0, 100.0]), self.speak, host)

    def speak(self, host: str) -> None:
        """A daemon that comes back ends what the scheduler takes for ended, and that takes time."""
        if not self.silent[host]:
            return
        for entry in self.entries:
            if entry.state is State.ENDED:
                for runner in entry.runners:
                    if runner.host == host and not runner.gone:
                        self.at(self.dice.random() * 10.0, runner.die)
        self.silent[host] = False

    def host_dies(self, host: str) -> None:
        self.silence(host)
        for entry in self.entries:
            for runner in entry.runners:
                if runner.host == host:
                    runner.die()

    # --- what must be so --------------------------------------------------------------------------

    def birth(self, key: tuple[str, int, int], host: str) -> Body:
        if key in self.bodies:
            raise Broken(f"{key} has a second body")
        if key in self.told:
            raise Broken(f"{key} starts after its end: {self.told[key]}")
        self.note("body", key, host)
        body = self.bodies[key] = Body(key, host)
        return body

    def hear(self, message: m.Message) -> None:
        self.note(message)
        self.news.append(message)
        if isinstance(message, m.TaskExited | m.TaskLost | m.TaskEvicted):
            key = (message.job, message.epoch, message.rank)
            if key in self.bodies and self.bodies[key].alive:
                raise Broken(f"{message}, and it lives")
            is_new = key not in self.told
            before = self.told.setdefault(key, message)
            if type(before) is not type(message) and self.gangs:
                raise Broken(f"{before}, and then {message}")
            if isinstance(message, m.TaskExited) and key not in self.bodies:
                raise Broken(f"{message}, and it never ran")
            self.check_why(key, message)
            if is_new and not (isinstance(message, m.TaskExited) and message.code == 0):
                stop = e.Stop(message.job, message.epoch, 30.0)  # a gang ends as a whole
                self.at(self.dice.random(), self.event, stop)
        elif isinstance(message, m.TaskStarted):
            self.started.add((message.job, message.epoch, message.rank))
        elif isinstance(message, m.HostDown):
            alive = [b.key for b in self.bodies.values() if b.alive and b.host == message.host]
            if alive:
                raise Broken(f"{message}, and {alive} live")
        elif isinstance(message, m.TaskList):
            self.check_truth(message)

    def check_why(self, key: tuple[str, int, int], message: m.Message) -> None:
        """What something else ended is told as that, also after a stop; and nothing more is."""
        runners = [r for r in self.runners if self.attempt_of(r.entry.name) == key[:2]]
        entries = [n for n in self.entries if self.attempt_of(n.name) == key[:2]]
        entries += [runner.entry for runner in runners]
        runners = [r for r in runners if key[2] in r.entry.plan.ranks[r.host]]
        said = [r.ends[key[2]][1] for r in runners if key[2] in r.ends]
        ours = any((entry.name, entry.id) in self.asked for entry in entries)
        evicted = isinstance(message, m.TaskEvicted)
        if isinstance(message, m.TaskExited) and any(said) and not ours and self.life == 1:
            raise Broken(f"{message}, and something else had it ended")
        if evicted and not any(entry.evicted for entry in entries) and not any(said):
            raise Broken(f"{message}, and nothing else had it ended")

    def check_truth(self, truth: m.TaskList) -> None:
        said = {(t.job, t.epoch, t.rank): t.running for t in truth.tasks}
        for key, body in self.bodies.items():
            if body.alive and not said.get(key):
                raise Broken(f"{key} lives, and the truth is {truth}")

    def judge_starts(self) -> None:
        """All has been calm for long: what was given has started, or ended."""
        for key in sorted(self.gangs):
            for seat in self.gangs[key].seats:
                rank = (*key, seat.rank)
                if rank not in self.told and rank not in self.started:
                    raise Broken(f"{rank} was given, and is neither started nor ended")

    def judge(self) -> None:
        """At the end, when all was calm and everything was stopped."""
        for body in self.bodies.values():
            if body.alive:
                raise Broken(f"{body} was stopped long ago")
        for key in sorted(self.gangs):
            for seat in self.gangs[key].seats:
                if (*key, seat.rank) not in self.told:
                    raise Broken(f"{key} rank {seat.rank} was stopped, and its end was not told")
        ours = [entry for entry in self.entries if not entry.foreign]
        waiting = [n for n in ours if n.state in (State.HELD, State.WAITING)]
        if waiting:
            raise Broken(f"{[n.listed() for n in waiting]} wait, and all is over")


def tell(seeds: range) -> None:
    """The stories of these seeds; what is broken in one names its seed."""
    for seed in seeds:
        try:
            World(seed).run()
        except Broken as broken:
            raise AssertionError(f"seed {seed}: {broken}") from broken
