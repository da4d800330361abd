"""A toy engine and a toy mover: what the contracts of `ports` promise, without a single process.

They do as they are told at once (``obedient``), or leave it to the test when a task starts and ends.
Every method returns the news it causes; whoever calls it carries them to the cluster manager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import UNSET, Struct

from topmast.model import messages as m
from topmast.model.dataset import Copy
from topmast.model.fleet import ClusterSpec, Fleet
from topmast.model.plan import Seat

Gang = tuple[str, int]
TaskKey = tuple[str, int, int]
SIGTERM_CODE = 143


class Life(StrEnum):
    """How far a task has come."""

    ORDERED = "ordered"
    ALIVE = "alive"
    OVER = "over"


class ToyTask(Struct):
    """One task, by its seat; ``told`` when it was asked to stop."""

    seat: Seat
    life: Life = Life.ORDERED
    code: int | None = None
    at_s: float = 0.0
    told: bool = False
    evicted: str = ""
    """Why the cluster's own people ended it, if they did."""


class Watch(Protocol):
    """Whoever wants to see each process come and go."""

    def begun(self, cluster: str, task: TaskKey) -> None:
        """A task has a process now."""
        ...

    def ended(self, cluster: str, task: TaskKey) -> None:
        """A task that had a process has none any more."""
        ...


class ToyEngine:
    """One cluster's engine. It forgets nothing, and starts no attempt twice."""

    def __init__(self, cluster: ClusterSpec, *, obedient: bool = True) -> None:
        self.name = cluster.name
        self.watch: Watch | None = None
        self.hosts = [host.name for host in cluster.hosts]
        self.obedient = obedient
        self.tasks: dict[TaskKey, ToyTask] = {}
        self.gangs: dict[Gang, m.StartGang] = {}
        self.stopped: dict[Gang, bool] = {}
        self.down: dict[str, bool] = {}
        self.closed: dict[str, str] = {}
        self.still: dict[Gang, bool] = {}
        self.speed: Callable[[str, Sequence[str]], float] = lambda job, beside: 1.0
        """Steps per second of a job beside those that go on as well."""
        self._steps: dict[str, float] = {}
        self._counted_s = 0.0

    # --- orders -----------------------------------------------------------------------------------

    def order(self, message: m.Message, now: float) -> list[m.Message]:
        """Carry out what a cluster manager says."""
        if isinstance(message, m.StartGang):
            return self._start_gang(message, now)
        if isinstance(message, m.StartGangs):
            return [news for gang in message.gangs for news in self._start_gang(gang, now)]
        if isinstance(message, m.StopTasks):
            return self._stop(message.job, message.epoch, now)
        if isinstance(message, m.SuspendGang | m.ResumeGang):
            self._count(now)
            self.still[message.job, message.epoch] = isinstance(message, m.SuspendGang)
            return []
        if isinstance(message, m.ReadProgress):
            self._count(now)
            steps = int(self._steps.get(message.job, 0.0))
            return [m.ProgressReport(message.job, message.epoch, steps, now)] if steps else []
        if isinstance(message, m.SetHosts):
            return self.equip([host.name for host in message.hosts])
        assert isinstance(message, m.ListTasks), message
        return [self.truth()]

    def equip(self, hosts: list[str]) -> list[m.Message]:
        """Have other hosts; what went is none of its business any more."""
        new = [host for host in hosts if host not in self.hosts]
        self.hosts = hosts
        self.down = {host: True for host in self.down if host in hosts}
        self.closed = {host: why for host, why in self.closed.items() if host in hosts}
        return [m.HostUp(host) for host in new]

    def going(self) -> list[str]:
        """The jobs that have a process and do not stand still."""
        gangs = dict.fromkeys((job, epoch) for job, epoch, _ in self.alive())
        return [gang[0] for gang in gangs if not self.still.get(gang)]

    def _count(self, now: float) -> None:
        """Add up the steps until now of those who went on."""
        going = self.going()
        for job in going:
            speed = self.speed(job, [other for other in going if other != job])
            self._steps[job] = self._steps.get(job, 0.0) + speed * (now - self._counted_s)
        self._counted_s = now

    def _start_gang(self, gang: m.StartGang, now: float) -> list[m.Message]:
        name = (gang.job, gang.epoch)
        self.gangs.setdefault(name, gang)
        self._count(now)
        news: list[m.Message] = []
        for seat in gang.seats:
            key = (*name, seat.rank)
            task = self.tasks.setdefault(key, ToyTask(seat))
            if task.life is not Life.ORDERED:
                news += self.news_of(key)
            elif name in self.stopped or seat.host in self.down:
                news += self.end(key, None, now)
            elif self.obedient:
                news += self.start(key, now)
        return news

    def _stop(self, job: str, epoch: int, now: float) -> list[m.Message]:
        self._count(now)
        self.still.pop((job, epoch), None)
        self.stopped[job, epoch] = True
        news: list[m.Message] = []
        for key in self.of(job, epoch):
            task = self.tasks[key]
            task.told = True
            if task.life is Life.OVER:
                news += self.news_of(key)
            elif task.life is Life.ORDERED:
                news += self.end(key, None, now)
            elif self.obedient:
                news += self.end(key, SIGTERM_CODE, now)
        return news

    def open(self) -> list[m.Message]:
        """Somebody new listens: say what lives, what ended, and which hosts there are."""
        news: list[m.Message] = [
            m.HostDown(host) if host in self.down else m.HostUp(host) for host in self.hosts
        ]
        news += [m.HostClosed(host, why) for host, why in self.closed.items()]
        for key in self.tasks:
            news += self.news_of(key)
        return news

    def truth(self) -> m.TaskList:
        """What runs and what ended; not what was ordered and has not begun."""
        told = tuple(
            m.TruthTask(
                *key, task.life is Life.ALIVE, task.code, task.at_s, evicted=task.evicted or UNSET
            )
            for key, task in sorted(self.tasks.items())
            if task.life is not Life.ORDERED
        )
        return m.TaskList(told, tuple(sorted(self.down)), dict(self.closed) or UNSET)

    # --- what happens -------------------------------------------------------------------------------

    def start(self, key: TaskKey, now: float) -> list[m.Message]:
        """A task that was ordered begins."""
        task = self.tasks[key]
        assert task.life is Life.ORDERED, task
        assert task.seat.host not in self.down, task
        task.life, task.at_s = Life.ALIVE, now
        if self.watch is not None:
            self.watch.begun(self.name, key)
        return self.news_of(key)

    def end(self, key: TaskKey, code: int | None, now: float) -> list[m.Message]:
        """A task is over, with a status or without."""
        task = self.tasks[key]
        assert task.life is not Life.OVER, task
        was_alive = task.life is Life.ALIVE
        task.life, task.code, task.at_s = Life.OVER, code, now
        if self.watch is not None and was_alive:
            self.watch.ended(self.name, key)
        return self.news_of(key)

    def evict(self, key: TaskKey, why: str, now: float) -> list[m.Message]:
        """The cluster's own people end a task."""
        self.tasks[key].evicted = why
        return self.end(key, None, now)

    def close_host(self, host: str, why: str) -> list[m.Message]:
        """The cluster gives a host no new work; without a reason, it does again."""
        if why:
            self.closed[host] = why
            return [m.HostClosed(host, why)]
        del self.closed[host]
        return [m.HostOpened(host)]

    def lose(self, host: str, now: float) -> list[m.Message]:
        """A host dies with everything on it."""
        self.down[host] = True
        news: list[m.Message] = [m.HostDown(host)]
        for key, task in self.tasks.items():
            if task.seat.host == host and task.life is not Life.OVER:
                news += self.end(key, None, now)
        return news

    def revive(self, host: str) -> list[m.Message]:
        """The host is back, empty."""
        self.down.pop(host, None)
        return [m.HostUp(host)]

    # --- views --------------------------------------------------------------------------------------

    def of(self, job: str, epoch: int) -> list[TaskKey]:
        """The tasks of an attempt, by rank."""
        gang = self.gangs.get((job, epoch))
        return [(job, epoch, seat.rank) for seat in gang.seats] if gang else []

    def alive(self) -> list[TaskKey]:
        """The tasks that have a process."""
        return [key for key, task in self.tasks.items() if task.life is Life.ALIVE]

    def news_of(self, key: TaskKey) -> list[m.Message]:
        """What there is to say of a task; saying it again does no harm."""
        task = self.tasks[key]
        if task.life is Life.ORDERED:
            return []
        if task.life is Life.ALIVE:
            return [m.TaskStarted(*key, at_s=task.at_s)]
        if task.evicted:
            return [m.TaskEvicted(*key, task.evicted)]
        if task.code is None:
            return [m.TaskLost(*key, error="gone")]
        return [m.TaskExited(*key, code=task.code, at_s=task.at_s)]


class ToyMover:
    """The stores of all regions, and the copies between them."""

    def __init__(self) -> None:
        self.stored: dict[tuple[str, str], bool] = {}
        self.moving: dict[str, Copy] = {}
        self.done: dict[str, bool] = {}

    def stock(self, fleet: Fleet) -> None:
        """Have the replicas that a fleet starts with."""
        for spec in fleet.datasets:
            for region in spec.replicas:
                self.stored[spec.name, region] = True

    def order(self, message: m.Message) -> list[m.Message]:
        """Begin a copy, or delete a replica; a copy that is done is done."""
        if isinstance(message, m.DeleteReplica):
            self.stored.pop((message.dataset, message.region), None)
            return [m.ReplicaDeleted(message.region, message.path)]
        assert isinstance(message, m.StartCopy), message
        copy = message.copy
        if copy.id in self.done:
            return [m.CopyDone(copy.id, copy.bytes)]
        self.moving[copy.id] = copy
        return []

    def finish(self, copy_id: str) -> list[m.Message]:
        """A copy is complete, if its source is still there to be read."""
        copy = self.moving.pop(copy_id)
        if (copy.dataset, copy.source) not in self.stored:
            return [m.CopyFailed(copy_id, "the source is gone")]
        self.stored[copy.dataset, copy.target] = True
        self.done[copy_id] = True
        return [m.CopyDone(copy_id, copy.bytes)]

    def spoil(self, copy_id: str, error: str = "broken") -> list[m.Message]:
        """A copy cannot go on."""
        self.moving.pop(copy_id)
        return [m.CopyFailed(copy_id, error)]
