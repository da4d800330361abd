"""A storm: people, faults and time acting on a whole system at random, from one seed.

News of tasks may be delayed, doubled, overtaken and lost; hosts flap; copies fail; the process is
killed before a commit, after it, or half-way through what it sends. Two things the storm grants, for
engines promise them: news of hosts and truths arrive in the order in which they happened, and
nothing overtakes them.

    python -m tests.simulation.storm --seeds 0:300 --steps 3000
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tests.support import invariants
from tests.support.build import cluster, dataset, elastic, fleet, gang, job, needs, profile, tenant
from tests.support.deeds import ACTS, act_on
from tests.support.engine import Life, TaskKey, ToyEngine
from tests.support.world import World
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.dependency import After
from topmast.model.engines import PROCESSES, Capability
from topmast.model.errors import InvalidInput, TopmastError
from topmast.model.expansion import size_of
from topmast.model.fleet import Fleet
from topmast.model.job import Band, Checkpoint, JobSpec, Level, Topology
from topmast.model.owners import owners_of
from topmast.model.states import TERMINAL, WAITING, HostState
from topmast.model.sweep import Span, Sweep
from topmast.policies.options import (
    ElasticOptions,
    Preemption,
    Profile,
    RebalanceOptions,
    ShareOptions,
    SliceOptions,
    WhenBlocked,
)

FULL_CHECK_STEPS = 100
REBUILD_CHECK_STEPS = 400
KINDS = (After.STARTED, After.OK, After.ANY)
CALM_S = 4 * 3_600.0
"""How long, once the storm is over, the queue may take to empty."""
IN_ORDER = (m.HostDown, m.HostUp, m.HostClosed, m.HostOpened, m.TaskList)


class Weather(Struct, frozen=True):
    """How bad it is: chances by message, task, deed or delivery."""

    lost: float = 0.04
    doubled: float = 0.08
    late: float = 0.1
    never_starts: float = 0.02
    cannot_start: float = 0.02
    fails: float = 0.1
    deaf: float = 0.05
    copy_fails: float = 0.3
    killed: float = 0.004
    deed_every_s: float = 4.0
    host_lost_every_s: float = 120.0
    others_every_s: float = 40.0
    """How often people or the scheduler of a cluster itself evict a task or close a host."""


CALM = Weather(
    lost=0.0, doubled=0.0, late=0.0, never_starts=0.0, cannot_start=0.0, fails=0.0, deaf=0.0,
    copy_fails=0.0, killed=0.0,
)  # fmt: skip
"""No faults, and nobody does anything any more."""


class Killed(Exception):
    """The process is gone."""


WITH_ENV = tuple(sorted(PROCESSES | {Capability.ENV}))
"""Of an engine that gives tasks variables of their hosts, too."""


def storm_fleet(hosts: int = 3) -> Fleet:
    """Two regions, three clusters, two tenants that share, and some data."""
    return fleet(
        cluster("east-1", hosts=hosts, gpus=4, cpus=16.0),
        cluster("east-2", hosts=2, gpus=4, model="A100", cpus=16.0),
        replace(cluster("west-1", hosts=3, gpus=4, cpus=16.0), capabilities=WITH_ENV),
        tenants=(
            tenant("org", borrow=8, H100=16, A100=8),
            tenant("c", "org"),
            tenant("a", "org", lend=4, H100=8, A100=4),
            tenant("b", "org", borrow=8, H100=4, A100=4),
        ),
        datasets=(
            dataset("east-only", "east"),
            dataset("west-only", "west"),
            dataset("both", "east", "west"),
            dataset("resident", "west", allowed=("west",)),
        ),
    )


PROFILES: tuple[dict[str, Any], ...] = (
    {},
    {"reserve_after_s": 30.0, "copy_patience": 0.0},
    {"order": "remaining-time", "preemption": Preemption.RANK, "min_runtime_s": 5.0},
    {
        "order": "shortest",
        "preemption": Preemption.NONE,
        "copies_per_period": 2,
        "copy_period_s": 300.0,
    },
    {"order": "submission", "preemption": Preemption.NONE, "when_blocked": WhenBlocked.STOP},
    {"defragment": True, "defragment_after_s": 10.0, "defragment_gain": 0.1},
    {
        "order": "turn",
        "preemption": Preemption.NONE,
        "shares": ShareOptions(policy="max-min-fairness", round_s=20.0),
    },
    {"elastic": ElasticOptions(grow=True, shrink=True, every_s=10.0, settle_s=5.0, gain=0.1)},
    {
        "slices": SliceOptions(layers=3, quantum_s=20.0),
        "pack": "greedy",
        "pack_trial_s": 20.0,
        "rebalance": "introspective",
        "rebalancing": RebalanceOptions(migrate=True, migrate_after_s=30.0, retry_s=200.0),
        "elastic": ElasticOptions(grow=True, shrink=True, every_s=10.0, settle_s=5.0, gain=0.1),
    },
)


def storm_profile(seed: int) -> Profile:
    """Quick to preempt and to forgive, so that much happens in little time; not always by credit."""
    quick = {"min_runtime_s": 20.0, "suspect_s": 30.0, "backoff_s": 1.0, "backoff_cap_s": 20.0}
    return profile(**{**quick, **PROFILES[seed % len(PROFILES)]})


class StormyWorld(World):
    """A world whose mail goes through the storm, and whose process may die in any delivery."""

    def __init__(self, storm: Storm, seed: int) -> None:
        self.storm = storm
        super().__init__(storm_fleet(), storm_profile(seed), obedient=False)

    def post(self, to: str, news: Sequence[m.Message]) -> None:
        """Every message takes its own time, or never arrives."""
        for message in news:
            self.storm.carry(to, message)

    def deliver(self, to: str, message: m.Message) -> Any:
        """Handle, commit, release; and somewhere in between, perhaps, die."""
        cascade = self.handle(to, message)
        dies_at = self.storm.dies_at(len(cascade.sends))
        if dies_at == 0:
            raise Killed
        self.commit(cascade)
        if dies_at is not None:
            self.release(cascade.sends[: dies_at - 1])
            raise Killed
        self.release(cascade.sends)
        return cascade.reply

    def release(self, sends: Sequence[m.Send]) -> None:
        """Orders reach engines at once; what comes of them is the storm's business."""
        super().release(sends)
        for send in sends:
            self.storm.ordered(send)


class Storm:
    """One run: a clock, a heap of what will happen, and chance."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.weather = CALM
        self.heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self.count = 0
        self.life = 0
        self.alive = True
        self.floor_s: dict[str, float] = {}
        self.unanswered: list[tuple[tuple[JobSpec, ...], str]] = []
        self.keys: dict[str, tuple[tuple[JobSpec, ...], tuple[str, ...]]] = {}
        self.seen: dict[str, int] = {}
        self.world = StormyWorld(self, seed)
        self.witness = invariants.Witness(self.world)
        for engine in self.world.engines.values():
            engine.watch = self.witness
        self.weather = Weather()
        self.at(0.0, self._deed)
        self.at(self._soon(self.weather.host_lost_every_s), self._lose_some_host)
        self.at(self._soon(self.weather.others_every_s), self._others_do)

    def note(self, what: str) -> None:
        """Count what happened, so that a storm that was none shows."""
        self.seen[what] = self.seen.get(what, 0) + 1

    # --- time ---------------------------------------------------------------------------------------

    def at(self, delay_s: float, do: Callable[..., None], *args: Any) -> None:
        """Have something happen."""
        self.count += 1
        heapq.heappush(self.heap, (self.world.now + delay_s, self.count, do, args))

    def _soon(self, mean_s: float) -> float:
        return self.rng.expovariate(1.0 / mean_s)

    def _chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def step(self) -> None:
        """The next thing happens: a wake-up that is due, or what lies first on the heap."""
        try:
            wake_s = self.world.next_wakeup_s() if self.alive else None
            if wake_s is not None and (not self.heap or wake_s <= self.heap[0][0]):
                self.world.now = max(self.world.now, wake_s)
                self.world.deliver(self.world.due()[0], m.Wake())
            else:
                at_s, _, do, args = heapq.heappop(self.heap)
                self.world.now = max(self.world.now, at_s)
                do(*args)
        except Killed:
            self._die()
        self.witness.check_step()

    # --- death ---------------------------------------------------------------------------------------

    def dies_at(self, sends: int) -> int | None:
        """None: not now. 0: before the commit. n: after it, when n - 1 messages are out."""
        if not self._chance(self.weather.killed):
            return None
        return self.rng.randrange(sends + 2)

    def _die(self) -> None:
        self.note("kill")
        self.life += 1
        self.alive = False
        self.world.crash()
        self.at(self.rng.choice([0.0, 1.0, 30.0]), self._rise)

    def _rise(self) -> None:
        self.alive = True
        self.floor_s.clear()
        self.world.recover()
        for specs, key in self.unanswered:
            self._submit(specs, key)
        self.unanswered.clear()

    # --- mail ----------------------------------------------------------------------------------------

    def carry(self, to: str, message: m.Message) -> None:
        """Send a message on its way through the weather."""
        weather = self.weather
        news_of_copies = to == ids.QUEUE
        if self._chance(weather.lost) and not news_of_copies:
            self.note("lost")
            return
        delay_s = self._soon(15.0) if self._chance(weather.late) else self.rng.uniform(0.0, 1.0)
        arrives_s = max(self.world.now + delay_s, self.floor_s.get(to, 0.0))
        if isinstance(message, IN_ORDER):
            arrives_s = max(self.world.now + delay_s / 10.0, self.floor_s.get(to, 0.0))
            self.floor_s[to] = arrives_s
        self.at(arrives_s - self.world.now, self._arrive, to, message, self.life)
        if self._chance(weather.doubled) and not isinstance(message, IN_ORDER):
            self.note("doubled")
            again_s = arrives_s + self._soon(10.0) - self.world.now
            self.at(again_s, self._arrive, to, message, self.life)

    def _arrive(self, to: str, message: m.Message, life: int) -> None:
        """Mail for a process that is gone is lost."""
        if self.alive and life == self.life:
            self.world.deliver(to, message)

    # --- engines and mover ---------------------------------------------------------------------------

    def ordered(self, send: m.Send) -> None:
        """An order is with its engine or the mover: in its own time something comes of it."""
        message = send.message
        cluster = send.to.partition("/")[2]
        if isinstance(message, m.StartGang):
            for seat in message.seats:
                task = (message.job, message.epoch, seat.rank)
                if not self._chance(self.weather.never_starts):
                    self.at(self.rng.uniform(0.0, 4.0), self._begin, cluster, task)
        elif isinstance(message, m.StopTasks):
            if message.grace_s and self._chance(self.weather.deaf):
                self.note("deaf")
                return
            for task in self.world.engines[cluster].of(message.job, message.epoch):
                until_s = self.rng.uniform(0.0, max(0.5, message.grace_s))
                code = 0 if self._chance(0.1) else 143
                self.at(until_s, self._end, cluster, task, code)
        elif isinstance(message, m.StartCopy):
            self.at(self.rng.uniform(0.5, 20.0), self._end_copy, message.copy.id)

    def _task(self, cluster: str, task: TaskKey) -> tuple[ToyEngine, Life]:
        engine = self.world.engines[cluster]
        return engine, engine.tasks[task].life

    def _begin(self, cluster: str, task: TaskKey) -> None:
        engine, life = self._task(cluster, task)
        if life is not Life.ORDERED:
            return
        if self._chance(self.weather.cannot_start):
            self.note("cannot start")
            self.world.post(ids.cluster(cluster), engine.end(task, None, self.world.now))
            return
        self.note("begun")
        self.world.post(ids.cluster(cluster), engine.start(task, self.world.now))
        code = 1 if self._chance(self.weather.fails) else 0
        self.at(self._soon(40.0), self._end, cluster, task, code)
        if self._chance(0.2):
            self.at(self._soon(10.0), self._checkpoint, cluster, task)

    def _end(self, cluster: str, task: TaskKey, code: int) -> None:
        engine, life = self._task(cluster, task)
        if life is Life.ALIVE:
            self.note(f"exit {code}")
            self.world.post(ids.cluster(cluster), engine.end(task, code, self.world.now))

    def _checkpoint(self, cluster: str, task: TaskKey) -> None:
        _, life = self._task(cluster, task)
        if life is Life.ALIVE:
            now = self.world.now
            message = m.Checkpointed(task[0], task[1], int(now), now)
            self.world.post(ids.cluster(cluster), [message])

    def _end_copy(self, copy: str) -> None:
        if copy not in self.world.mover.moving:
            return
        mover = self.world.mover
        spoilt = self._chance(self.weather.copy_fails)
        self.note("copy failed" if spoilt else "copied")
        self.world.post(ids.QUEUE, mover.spoil(copy) if spoilt else mover.finish(copy))

    def _lose_some_host(self) -> None:
        if self.weather is CALM:
            return
        self.at(self._soon(self.weather.host_lost_every_s), self._lose_some_host)
        cluster = self.rng.choice(sorted(self.world.engines))
        engine = self.world.engines[cluster]
        up = [host for host in engine.hosts if host not in engine.down]
        if up:
            self.note("host lost")
            host = self.rng.choice(up)
            self.world.post(ids.cluster(cluster), engine.lose(host, self.world.now))
            self.at(self.rng.uniform(40.0, 200.0), self._revive, cluster, host)

    def _revive(self, cluster: str, host: str) -> None:
        engine = self.world.engines[cluster]
        if host in engine.down:
            self.world.post(ids.cluster(cluster), engine.revive(host))

    def _others_do(self) -> None:
        """A cluster's own people or its scheduler evict a task, or close a host for a while."""
        if self.weather is CALM:
            return
        self.at(self._soon(self.weather.others_every_s), self._others_do)
        cluster = self.rng.choice(sorted(self.world.engines))
        engine, address = self.world.engines[cluster], ids.cluster(cluster)
        if self._chance(0.5) and (alive := engine.alive()):
            self.note("evicted")
            task = self.rng.choice(sorted(alive))
            self.world.post(address, engine.evict(task, "preempted there", self.world.now))
        elif open_hosts := [host for host in engine.hosts if host not in engine.closed]:
            self.note("host closed")
            host = self.rng.choice(open_hosts)
            self.world.post(address, engine.close_host(host, "drained there"))
            self.at(self.rng.uniform(20.0, 100.0), self._open_host, cluster, host)

    def _open_host(self, cluster: str, host: str) -> None:
        engine = self.world.engines[cluster]
        if host in engine.closed:
            self.world.post(ids.cluster(cluster), engine.close_host(host, ""))

    # --- people --------------------------------------------------------------------------------------

    def _deed(self) -> None:
        """Somebody does something."""
        if self.weather is CALM:
            return
        self.at(self._soon(self.weather.deed_every_s), self._deed)
        if not self.alive:
            return
        deeds = [self._submit_some] * 12 + [self._cancel_some] * 2 + [self._set_some_host] * 2
        deeds += [self._move_data, self._repeat_key, self._save, self._new_fleet_file]
        deeds += [self._assign_hosts] * 2 + [self._act_on_some] * 3
        self.rng.choice(deeds)()

    def _submit_some(self) -> None:
        specs = tuple(self._depending(self._some_job()) for _ in range(self.rng.randint(1, 3)))
        self._submit(specs, f"k{self.count}" if self._chance(0.5) else "")

    def _depending(self, spec: JobSpec) -> JobSpec:
        """The job, now and then one that waits for others."""
        if not self.world.jobs or not self._chance(0.15):
            return spec
        names = self.rng.sample(list(self.world.jobs), min(len(self.world.jobs), 2))
        self.note("depends")
        if self._chance(0.3):
            span = Span(0, self.rng.randint(0, 5))
            limit = self.rng.choice([None, 1, 2])
            return replace(spec, sweep=Sweep(span=span, variable="I", max_parallel=limit))
        return replace(spec, depends_on={name: self.rng.choice(KINDS) for name in names})

    def _submit(self, specs: tuple[JobSpec, ...], key: str) -> None:
        message = m.SubmitJobs(specs, key, key and repr(specs))
        try:
            answer = self.world.deliver(ids.QUEUE, message)
        except Killed:
            if key:
                self.unanswered.append((specs, key))
            raise
        if isinstance(answer, InvalidInput):  # one that it depends on has failed
            assert any(spec.depends_on for spec in specs)
            self.note("refused")
            return
        assert len(answer) == size_of(specs)
        if key in self.keys:
            assert self.keys[key] == (specs, answer), f"{key} admitted twice"
            return
        self.witness.acknowledged(answer)
        if key:
            self.keys[key] = (specs, answer)

    def _repeat_key(self) -> None:
        if self.keys:
            self.note("key repeated")
            key = self.rng.choice(sorted(self.keys))
            self._submit(self.keys[key][0], key)

    def _some_job(self) -> JobSpec:
        """Singles, gangs, shares, groups, readers of data; and now and then what never can be."""
        rng = self.rng
        common: dict[str, Any] = {
            "tenant": rng.choice("abc"),
            "band": rng.choice(list(Band)),
            "preemptible": rng.random() < 0.8,
            "checkpoint": Checkpoint(grace_s=rng.choice([2.0, 10.0])),
            "max_restarts": rng.choice([0, 3, 10]),
            "time_limit_s": rng.choice([None, None, 60.0, 600.0]),
            "duration_s": rng.choice([None, 20.0, 60.0]),
            "topology": rng.choice(
                [Topology(), Topology(preferred=Level.RACK), Topology(required=Level.POD)]
            ),
        }
        if rng.random() < 0.3:
            common["datasets"] = (rng.choice(["east-only", "west-only", "both", "resident"]),)
        if len(self.witness.known) % 6 == 0:
            common["secrets"] = {"TOKEN": "env:TOKEN"}  # only west-1 can give it
        kind = rng.randrange(20)
        if kind == 0:
            return job(gpus=4, count=40, **common)
        if kind == 1:
            return job(**{**common, "datasets": ("unheard-of",)})
        if kind <= 4:
            trainers, readers = (rng.randint(1, 2), needs(2, cpus=2)), (2, needs(cpus=3))
            return gang({"trainer": trainers, "reader": readers}, **common)
        if kind <= 7:
            return job(gpus=rng.choice([0.3, 0.5]), count=rng.randint(1, 3), **common)
        if kind <= 10:
            models = rng.choice([("H100", "A100"), (None,)])
            return job(resources=needs(rng.choice([1, 2, 4]), *models), **common)
        if kind >= 17:
            return elastic(job(gpus=rng.choice([1, 2]), count=rng.randint(2, 4), **common), 1, 6)
        return job(gpus=rng.choice([1, 2, 3, 4]), count=rng.choice([1, 1, 1, 2, 3]), **common)

    def _cancel_some(self) -> None:
        going = [job for job, r in self.world.jobs.items() if r.state not in TERMINAL]
        if going:
            self.note("cancel")
            self.world.deliver(ids.QUEUE, m.CancelJobs((self.rng.choice(going),), "ann"))

    def _act_on_some(self) -> None:
        """Hold, release, stop, requeue or change a job, whatever its state."""
        if self.world.jobs:
            job = self.rng.choice(list(self.world.jobs))
            act = act_on(job, self.rng.randrange(len(ACTS)))
            self.note(type(act).__name__)
            self.world.deliver(ids.QUEUE, act)

    def _set_some_host(self) -> None:
        hosts = [(r, h) for r, p in self.world.machines.placers.items() for h in p.columns.index]
        region, host = self.rng.choice(sorted(hosts))
        states = [HostState.HEALTHY] * 3 + [HostState.CORDONED, HostState.DRAINING]
        state = self.rng.choice(states)
        self.note(f"host {state}")
        self.world.deliver(ids.placer(region), m.SetHost(host, state, "ann"))

    def _assign_hosts(self) -> None:
        """A plan of capacity wants some hosts of the east elsewhere; it replaces the last one."""
        owners = owners_of(self.world.placer("east").state.region)
        some = sorted(host for host in owners if self._chance(0.3))
        wanted = {host: self.rng.choice(["east-1", "east-2"]) for host in some}
        self.note("assign")
        self.world.deliver(ids.placer("east"), m.AssignHosts(wanted, "ann"))

    def _move_data(self) -> None:
        name = self.rng.choice(["east-only", "west-only", "both", "resident"])
        region = self.rng.choice(["east", "west"])
        request = m.RequestReplica(name, region, "ann")
        message = request if self._chance(0.5) else m.DropReplica(name, region)
        answer = self.world.deliver(ids.QUEUE, message)
        self.note(type(message).__name__ + (" refused" if isinstance(answer, TopmastError) else ""))

    def _save(self) -> None:
        self.note("snapshot")
        self.world.snapshot()

    def _new_fleet_file(self) -> None:
        """Another fleet file comes with a restart: the server is stopped and started with it."""
        self.note("new fleet file")
        self.world.fleet = storm_fleet(hosts=self.rng.choice([2, 3, 4]))
        self.world.equip(self.world.fleet)
        for engine in self.world.engines.values():
            engine.watch = self.witness
        raise Killed

    # --- the whole story -----------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Storm for so many steps, then calm: everything that can finish must."""
        for number in range(1, steps + 1):
            self.step()
            if number % FULL_CHECK_STEPS == 0 and self.alive:
                self.check_fully()
            if number % REBUILD_CHECK_STEPS == 0 and self.alive:
                invariants.check_rebuilds(self.world)
        self.calm_down()

    def check_fully(self) -> None:
        """All invariants; and, if every machine is at rest, that nobody waits in vain."""
        invariants.check_all(self.world)
        self.witness.check_known()
        if not self.world.due():
            invariants.check_no_inversion(self.world)

    def calm_down(self) -> None:
        """Faults stop: the queue drains, and engines and books agree."""
        self.weather = CALM
        if not self.alive:
            self._rise()
        for name, engine in self.world.engines.items():
            for host in sorted(engine.down):
                self._revive(name, host)
            for host in sorted(engine.closed):
                self._open_host(name, host)
        for region, placer in self.world.machines.placers.items():
            for host in placer.columns.index:
                healthy = m.SetHost(host, HostState.HEALTHY, "ann")
                self.world.deliver(ids.placer(region), healthy)
        held = tuple(job for job, record in self.world.jobs.items() if record.hold)
        self.world.deliver(ids.QUEUE, m.ReleaseJobs(held))
        until_s = self.world.now + CALM_S
        while self.world.now < until_s and self._unfinished() and self._something_can_happen():
            self.step()
        assert not self._unfinished(), f"not drained: {self._unfinished()}"
        while self.heap or self.world.due():
            self.step()
        invariants.check_rest(self.world)
        invariants.check_engines_agree(self.world)
        for placer in self.world.machines.placers.values():
            assert not placer.state.closed, "a host that its cluster opened is closed"
        invariants.check_replicas(self.world)
        invariants.check_rebuilds(self.world)
        self.witness.check_known()
        assert not any(self.witness.alive.values()), "something runs although all jobs are over"

    def _something_can_happen(self) -> bool:
        return bool(self.heap) or self.world.next_wakeup_s() is not None

    def _unfinished(self) -> dict[str, str]:
        """Jobs that are not over and could be."""
        found = {}
        for name, record in self.world.jobs.items():
            if record.state in TERMINAL:
                continue
            hopeless = record.state in WAITING and invariants.expected_to_wait(self.world, record)
            if not hopeless or self.world.mover.moving:
                found[name] = f"{record.state} {self.world.reason(name)} {record.spec}"
        return found


def main(arguments: list[str]) -> int:
    """Run many seeds; print what fails, and how to run it again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:20", help="a seed, or FIRST:BEYOND")
    parser.add_argument("--steps", type=int, default=3_000)
    options = parser.parse_args(arguments)
    first, _, beyond = options.seeds.partition(":")
    failed = []
    totals: dict[str, int] = {}
    for seed in range(int(first), int(beyond or int(first) + 1)):
        storm = Storm(seed)
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
