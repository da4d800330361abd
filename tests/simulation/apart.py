"""A storm over processes of their own: a queue and two placers, with links that delay, lose and break.

A link carries one batch at a time, like the real one: the request may be lost, or its answer after it
was taken; the process at either end may die, before it commits, after, or half-way through what it
sends. News of engines is only late, for what is tried here lies between the processes.

    python -m tests.simulation.apart --seeds 0:100 --steps 2000
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from tests.simulation.storm import WITH_ENV, Killed
from tests.support import invariants
from tests.support.build import cluster, elastic, fleet, job, profile, tenant
from tests.support.engine import Life, TaskKey
from tests.support.world import World
from topmast.adapters.link.wire import decode_batch, encode_batch, encode_envelope
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import Conflict
from topmast.model.fleet import Fleet
from topmast.model.job import Band, Checkpoint, JobSpec
from topmast.model.states import TERMINAL, WAITING, HostState, JobState
from topmast.policies.options import ElasticOptions
from topmast.runtime.relay import NOT_PAIRED

REGIONS = ("east", "west")
CALM_S = 6 * 3_600.0
BATCH = 20


def apart_fleet(gpus: int = 4) -> Fleet:
    """Two small regions with so many GPUs a host, and two tenants of which one has little quota."""
    return fleet(
        replace(cluster("east-1", hosts=2, gpus=gpus), capabilities=WITH_ENV),
        cluster("west-1", hosts=2, gpus=gpus),
        tenants=(tenant("a", H100=4 * gpus), tenant("b", borrow=8, H100=8)),
    )


class Part(World):
    """One process. It may die in any delivery, and its mail takes its time."""

    def __init__(self, storm: ApartStorm, name: str, elsewhere: dict[str, str]) -> None:
        self.storm = storm
        self.name = name
        self.alive = True
        self.life = 0
        self.wires: dict[str, Wire] = {}
        self.floor_s: dict[str, float] = {}
        sizes = ElasticOptions(grow=True, shrink=True, every_s=10.0, settle_s=5.0, gain=0.1)
        options = profile(
            min_runtime_s=20.0, suspect_s=30.0, backoff_s=1.0, backoff_cap_s=20.0, elastic=sizes
        )
        super().__init__(None, options, obedient=False, elsewhere=elsewhere)

    def post(self, to: str, news: Sequence[m.Message]) -> None:
        """Engines' news arrives a little later, in the order in which it happened."""
        for message in news:
            arrives_s = max(
                self.storm.now + self.storm.rng.uniform(0.0, 0.5), self.floor_s.get(to, 0.0)
            )
            self.floor_s[to] = arrives_s
            self.storm.at(arrives_s - self.storm.now, self._arrive, to, message, self.life)

    def _arrive(self, to: str, message: m.Message, life: int) -> None:
        if self.alive and life == self.life:
            self.deliver(to, message)

    def deliver(self, to: str, message: m.Message) -> Any:
        """Handle, commit, release; and somewhere in between, perhaps, die."""
        self.now = self.storm.now
        cascade = self.handle(to, message)
        dies_at = self.storm.dies_at(len(cascade.sends))
        if dies_at == 0:
            raise Dead(self)
        self.commit(cascade)
        self.release(cascade.sends if dies_at is None else cascade.sends[: dies_at - 1])
        if dies_at is not None:
            raise Dead(self)
        return cascade.reply

    def release(self, sends: Sequence[m.Send]) -> None:
        """To the links what is for elsewhere, to the engines the rest."""
        for send in sends:
            if isinstance(send.message, m.Forward):
                self.wires[send.to.partition("/")[2]].carry(send.message)
            else:
                super().release([send])
                self.storm.ordered(self, send)

    def begin(self) -> None:
        """A new process: who am I, what was not heard, and what do the engines say."""
        self.alive = True
        for name, wire in self.wires.items():
            wire.reset()
            if self.name == ids.QUEUE:
                self.deliver(ids.QUEUE, m.LinkDown(name, "not reached yet"))
            self.deliver(ids.relay(name), m.OpenStream(f"{self.name}-journal"))
        if self.name == ids.QUEUE:
            self.deliver(ids.QUEUE, m.ConfigureFleet(self.fleet))
        for address, _ in self.machines.addressed():
            self.deliver(address, m.Recovered())
        for name, engine in self.engines.items():
            self.post(ids.cluster(name), engine.open())


class Dead(Killed):
    """A process is gone."""

    def __init__(self, part: Part) -> None:
        super().__init__(part.name)
        self.part = part


class Wire:
    """What leaves one process for another: the virtual twin of `LinkEnd`."""

    def __init__(self, storm: ApartStorm, source: Part, target: Part, name: str, to: str) -> None:
        self.storm, self.source, self.target = storm, source, target
        self.name, self.to = name, to
        self.broken = False
        self.reset()

    def reset(self) -> None:
        """Its process is new."""
        self.waiting: list[m.Forward] = []
        self.up = False
        self.peer = ""

    def carry(self, order: m.Forward) -> None:
        """Queue a message; one that may be lost is, while the link is down."""
        if order.seq or self.up:
            self.waiting.append(order)

    def exchange(self) -> None:
        """Send the next batch, or ask who is there; again and again."""
        source, life = self.source, self.source.life
        if not source.alive:
            self.storm.at(1.0, self.exchange)
            return
        batch = self.waiting[:BATCH] if self.up else []
        state = source.machines.relays[self.name].state
        envelopes = [encode_envelope(order.seq, order.message) for order in batch]
        data = encode_batch(state.stream, self.peer, state.applied, envelopes)
        if self.broken or not self.target.alive or self.storm.chance("request lost", 0.05):
            self.storm.at(self.storm.latency(), self._fail, life)
        else:
            self.storm.at(self.storm.latency(), self._reach, data, batch, life)

    def _reach(self, data: bytes, batch: list[m.Forward], life: int) -> None:
        """The batch is there: the other process takes it, whether or not its sender still lives."""
        target = self.target
        if not target.alive:
            self.storm.at(0.0, self._fail, life)
            return
        got = decode_batch(data, for_queue=self.to == ids.QUEUE)
        relay = self.source.name  # an end is called after who is at the other one
        order = m.Deliver(self.to, got.stream, got.peer, got.applied, got.envelopes)
        try:
            receipt = target.deliver(ids.relay(relay), order)
        except Dead:
            self.storm.at(0.0, self._fail, life)
            raise
        if self.storm.chance("answer lost", 0.05):
            self.storm.at(self.storm.latency(), self._fail, life)
        else:
            self.storm.at(self.storm.latency(), self._settle, receipt, batch, life)

    def _fail(self, life: int) -> None:
        self.storm.at(1.0, self.exchange)
        if life == self.source.life and self.source.alive:
            self.waiting = [order for order in self.waiting if order.seq]
            self._turn(False)

    def _settle(self, receipt: m.Receipt, batch: list[m.Forward], life: int) -> None:
        if life != self.source.life or not self.source.alive:
            self.storm.at(1.0, self.exchange)
            return
        if receipt.refused:
            assert receipt.refused == NOT_PAIRED, receipt
            self._fail(life)
            return
        relay = ids.relay(self.name)
        if not self.up:
            try:
                answer = self.source.deliver(relay, m.Pair(receipt.stream, receipt.applied))
            except Dead:
                self.storm.at(1.0, self.exchange)
                raise
            assert not isinstance(answer, Conflict), answer
            self.peer = receipt.stream
        sent = [order for order in batch if order.seq > receipt.applied]
        assert not sent, "a batch was taken, and not all of it"
        rest = self.waiting[len(batch) :]
        self.waiting = [o for o in rest if not 0 < o.seq <= receipt.applied]
        self.storm.at(0.2, self.exchange)
        self.source.deliver(relay, m.Acked(receipt.applied))
        self._turn(True)

    def _turn(self, up: bool) -> None:
        if self.up != up:
            self.up = up
            if self.source.name == ids.QUEUE:
                up_news = m.LinkUp(self.name, self.storm.in_bulk)
                news = up_news if up else m.LinkDown(self.name, "the wire is cut")
                self.source.deliver(ids.QUEUE, news)


class ApartStorm:
    """One run: a clock, a heap of what will happen, and chance."""

    def __init__(self, seed: int, calm_s: float = CALM_S, hosts: Fleet | None = None) -> None:
        self.calm_s = calm_s
        self.rng = random.Random(seed)
        self.now = 0.0
        self.calm = True
        self.heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self.count = 0
        self.seen: dict[str, int] = {}
        self.slow_s = self.rng.choice([0.01, 0.1, 0.5])
        self.in_bulk = seed % 2 == 1
        """Whether regions make plans in columns."""
        self.queue = Part(self, ids.QUEUE, {ids.placer(r): ids.relay(r) for r in REGIONS})
        self.queue.fleet = hosts or apart_fleet(16 if self.in_bulk else 4)
        self.queue.mover.stock(self.queue.fleet)
        self.placers = {r: Part(self, r, {ids.QUEUE: ids.relay("queue")}) for r in REGIONS}
        self.parts = [self.queue, *self.placers.values()]
        self.wires = []
        for region in self.queue.fleet.regions:
            part = self.placers[region.name]
            part.equip(Fleet((region,)))
            self.queue.wires[region.name] = Wire(
                self, self.queue, part, region.name, ids.placer(region.name)
            )
            part.wires["queue"] = Wire(self, part, self.queue, "queue", ids.QUEUE)
            self.wires += [self.queue.wires[region.name], part.wires["queue"]]
        # The witness looks at jobs through the queue, and at what runs through all engines.
        self.queue.engines = {n: e for p in self.placers.values() for n, e in p.engines.items()}
        self.witness = invariants.Witness(self.queue)
        for engine in self.queue.engines.values():
            engine.watch = self.witness

        for part in self.parts:
            part.begin() if part is not self.queue else self._begin_queue()
        for wire in self.wires:
            self.at(self.rng.uniform(0.0, 1.0), wire.exchange)
        self.calm = False
        self.at(0.0, self._deed)

    def _begin_queue(self) -> None:
        """The queue has no engines of its own: those of the regions are there to be looked at."""
        engines, self.queue.engines = self.queue.engines, {}
        try:
            self.queue.begin()
        finally:
            self.queue.engines = engines

    # --- time, chance and death ------------------------------------------------------------------------

    def at(self, delay_s: float, do: Callable[..., None], *args: Any) -> None:
        """Have something happen."""
        self.count += 1
        heapq.heappush(self.heap, (self.now + delay_s, self.count, do, args))

    def chance(self, what: str, probability: float) -> bool:
        """Whether a fault happens; counted, so that a storm that was none shows."""
        if self.calm or self.rng.random() >= probability:
            return False
        self.seen[what] = self.seen.get(what, 0) + 1
        return True

    def latency(self) -> float:
        """How long one way takes."""
        return self.rng.expovariate(1.0 / self.slow_s)

    def dies_at(self, sends: int) -> int | None:
        """None: not now. 0: before the commit. n: after it, when n - 1 messages are out."""
        return self.rng.randrange(sends + 2) if self.chance("kill", 0.002) else None

    def step(self) -> None:
        """The next thing happens: a wake-up that is due, or what lies first on the heap."""
        wakes = [
            (w, i) for i, p in enumerate(self.parts) if p.alive and (w := _wake_s(p)) is not None
        ]
        try:
            if wakes and (not self.heap or min(wakes)[0] <= self.heap[0][0]):
                at_s, index = min(wakes)
                self.now = max(self.now, at_s)
                part = self.parts[index]
                part.now = self.now
                part.deliver(part.due()[0], m.Wake())
            else:
                at_s, _, do, args = heapq.heappop(self.heap)
                self.now = max(self.now, at_s)
                do(*args)
        except Dead as death:
            self._bury(death.part)
        self.queue.now = self.now
        self.witness.check_step()

    def _bury(self, part: Part) -> None:
        part.alive = False
        part.life += 1
        part.crash()
        self.at(self.rng.choice([0.5, 5.0, 60.0]), self._raise, part)

    def _raise(self, part: Part) -> None:
        self._begin_queue() if part is self.queue else part.begin()

    # --- engines ---------------------------------------------------------------------------------------

    def ordered(self, part: Part, send: m.Send) -> None:
        """In its own time something comes of an order."""
        message, name = send.message, send.to.partition("/")[2]
        if isinstance(message, m.StartGang | m.StartGangs):
            gangs = message.gangs if isinstance(message, m.StartGangs) else (message,)
            for gang in gangs:
                for seat in gang.seats:
                    task = (gang.job, gang.epoch, seat.rank)
                    self.at(self.rng.uniform(0.0, 2.0), self._start, part, name, task)
        elif isinstance(message, m.StopTasks):
            for task in part.engines[name].of(message.job, message.epoch):
                self.at(self.rng.uniform(0.0, 2.0), self._end, part, name, task, 143)

    def _start(self, part: Part, name: str, task: TaskKey) -> None:
        engine = part.engines[name]
        if engine.tasks[task].life is Life.ORDERED:
            part.post(ids.cluster(name), engine.start(task, self.now))
            code = 1 if self.rng.random() < 0.1 else 0
            self.at(self.rng.expovariate(1 / 40.0), self._end, part, name, task, code)

    def _end(self, part: Part, name: str, task: TaskKey, code: int) -> None:
        engine = part.engines[name]
        if engine.tasks[task].life is Life.ALIVE:
            part.post(ids.cluster(name), engine.end(task, code, self.now))

    # --- people, and those who dig up cables -------------------------------------------------------------

    def _deed(self) -> None:
        if self.calm:
            return
        self.at(self.rng.expovariate(1 / 4.0), self._deed)
        if self.chance("cut", 0.05):
            wires = self.rng.choice(
                [self.wires[:2], self.wires[2:], self.wires[:1], self.wires[1:2]]
            )
            self._cut(wires, True)
            self.at(self.rng.uniform(1.0, 120.0), self._cut, wires, False)
        if self.rng.random() < 0.05:
            self.rng.choice(self.parts).snapshot()
        if not self.queue.alive:
            return
        going = [j for j, r in self.queue.jobs.items() if r.state not in TERMINAL]
        if self.rng.random() < 0.15 and going:
            self.queue.deliver(ids.QUEUE, m.CancelJobs((self.rng.choice(going),), "ann"))
        elif self.rng.random() < 0.1:
            region = self.rng.choice(REGIONS)
            state = self.rng.choice([HostState.HEALTHY, HostState.DRAINING, HostState.CORDONED])
            order = m.SetHost(f"{region}-1-{self.rng.randrange(2)}", state, "ann")
            self.queue.deliver(ids.placer(region), order)
        else:
            specs = tuple(self._job() for _ in range(self.rng.randint(1, 3)))
            if self.in_bulk and self.rng.random() < 0.35:
                specs = (job(gpus=1, tenant="a", max_restarts=3),) * self.rng.randint(4, 16)
            self.witness.acknowledged(self.queue.deliver(ids.QUEUE, m.SubmitJobs(specs)))

    def _cut(self, wires: list[Wire], broken: bool) -> None:
        for wire in wires:
            wire.broken = broken

    def _job(self) -> JobSpec:
        rng = self.rng
        rigid = job(
            gpus=rng.choice([1, 2, 4]), count=rng.choice([1, 1, 2]), tenant=rng.choice("ab"),
            band=rng.choice(list(Band)), preemptible=rng.random() < 0.8, max_restarts=3,
            checkpoint=Checkpoint(grace_s=2.0),
        )  # fmt: skip
        if self.count % 5 == 0:  # only east-1 can give it
            rigid = replace(rigid, secrets={"TOKEN": "env:TOKEN"})
        return elastic(rigid, 1, 4) if self.count % 4 == 0 else rigid

    def return_under_a_question(self) -> JobState:
        """West comes back just when a job is tried that only it can run; how that is a minute later."""
        self.calm = True
        self._cut(self.wires[2:], True)
        self._let_pass(10.0)
        self.at(self.rng.uniform(0.0, 3.0), self._cut, self.wires[2:], False)
        self._let_pass(self.rng.uniform(0.0, 4.0))
        (name,) = self.queue.deliver(ids.QUEUE, m.SubmitJobs((job(gpus=1, model="A100"),)))
        self._let_pass(60.0)
        return self.queue.state(name)

    # --- the whole story -----------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Storm for so many steps, then calm: everything must finish, and the books agree."""
        for _ in range(steps):
            self.step()
        self.calm = True
        self._cut(self.wires, False)
        self._settle_down()
        for region in REGIONS:
            for index in range(2):
                healthy = m.SetHost(f"{region}-1-{index}", HostState.HEALTHY, "ann")
                self.queue.deliver(ids.placer(region), healthy)
        until_s = self.now + self.calm_s
        while self._unfinished() and self.now < until_s:
            self.step()
        assert not self._unfinished(), f"not drained: {self._unfinished()}"
        self._settle_down()
        self.check()

    def _settle_down(self) -> None:
        """Let all processes be up, and all that is under way arrive."""
        self._let_pass(300.0)
        assert all(wire.up for wire in self.wires)

    def _let_pass(self, time_s: float) -> None:
        until_s = self.now + time_s
        while self.now < until_s:
            self.step()

    def _unfinished(self) -> list[str]:
        return [
            f"{name} {r.state} {self.queue.reason(name) if r.state in WAITING else ''} {r.plan}"
            for name, r in self.queue.jobs.items()
            if r.state not in TERMINAL
        ]

    def check(self) -> None:
        """At rest: each job is over once, nothing is held anywhere, each journal tells the same."""
        self.witness.check_known()
        invariants.check_counters(self.queue)
        invariants.check_audit(self.queue)
        assert not any(self.witness.alive.values()), "something runs although all jobs are over"
        for region, part in self.placers.items():
            assert not part.placer(region).state.allocations
            assert not part.placer(region).holds
            invariants.check_placer(part.placer(region))
            ours, theirs = part.machines.relays["queue"], self.queue.machines.relays[region]
            assert ours.state.sent == theirs.state.applied
            assert theirs.state.sent == ours.state.applied
            assert not ours.state.outbox
            assert not theirs.state.outbox


def _wake_s(part: Part) -> float | None:
    return part.next_wakeup_s()


def main(arguments: list[str]) -> int:
    """Run many seeds; print what fails, and how to run it again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:20", help="a seed, or FIRST:BEYOND")
    parser.add_argument("--steps", type=int, default=2_000)
    options = parser.parse_args(arguments)
    first, _, beyond = options.seeds.partition(":")
    failed = []
    totals: dict[str, int] = {}
    for seed in range(int(first), int(beyond or int(first) + 1)):
        storm = ApartStorm(seed)
        try:
            storm.run(options.steps)
        except Exception:
            failed.append(seed)
            print(f"seed {seed} (--seeds {seed} --steps {options.steps}):")
            traceback.print_exc(file=sys.stdout)
        for what, count in storm.seen.items():
            totals[what] = totals.get(what, 0) + count
    print(f"{len(failed)} failed: {failed}")
    print(", ".join(f"{what} {count}" for what, count in sorted(totals.items())))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
