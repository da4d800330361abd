"""A cluster manager alone: what it is told, what it decides, whom it tells."""

from collections.abc import Sequence
from typing import Any, TypeVar

from tests.support.build import cluster, job
from topmast.fast.cluster.machine import ClusterManager
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.job import JobSpec
from topmast.model.plan import Seat

M = TypeVar("M", bound=m.Message)
PAIR = (Seat("main", 0, "east-1-0", (0,)), Seat("main", 1, "east-1-1", (0,)))


class Manager:
    """Drives one `ClusterManager` and keeps what it sent."""

    def __init__(self) -> None:
        self.machine = ClusterManager("east-1")
        self.now = 0.0
        self.to_placer: list[m.Message] = []
        self.to_engine: list[m.Message] = []
        self.facts: list[Any] = []
        self.tell(m.ConfigureCluster("east", cluster("east-1")))

    def tell(self, *messages: m.Message) -> None:
        """Hand it messages."""
        for message in messages:
            outcome = self.machine.handle(message, self.now)
            self.facts += outcome.facts
            for send in outcome.sends:
                if send.to == ids.placer("east"):
                    self.to_placer.append(send.message)
                else:
                    assert send.to == ids.engine("east-1")
                    self.to_engine.append(send.message)

    def wake_at(self, now: float) -> None:
        """Time passes, with every wake-up on the way."""
        while (at_s := self.machine.next_wakeup_s()) is not None and at_s <= now:
            self.now = max(self.now, at_s)
            self.tell(m.Wake())
        self.now = now

    def ask_truth(self) -> None:
        """The time has come to ask the engine, after all that it was ordered so far."""
        self.machine._truth_asked_s = self.now - self.machine.limits.truth_every_s
        self.tell(m.Wake())

    def launch(self, epoch: int = 1, seats: Sequence[Seat] = PAIR, **more: Any) -> None:
        """A gang of one task on each of two hosts."""
        left_s = more.pop("time_left_s", None)
        spec: JobSpec = job(count=len(seats), **more)
        self.tell(m.LaunchGang("j1", epoch, spec, "east", "east-1", tuple(seats), left_s))

    def run(self, **more: Any) -> None:
        """Launch it, and have every task start."""
        self.launch(**more)
        self.tell(started(0), started(1))

    def told(self, kind: type[M]) -> list[M]:
        """What the placer was told, of one kind."""
        return [message for message in self.to_placer if type(message) is kind]

    def ordered(self, kind: type[M]) -> list[M]:
        """What the engine was ordered, of one kind."""
        return [message for message in self.to_engine if type(message) is kind]

    def end(self) -> m.AttemptEnded:
        """The one end that was reported."""
        (ended,) = self.told(m.AttemptEnded)
        return ended


def started(rank: int, epoch: int = 1) -> m.TaskStarted:
    """A task of ``j1`` runs."""
    return m.TaskStarted("j1", epoch, rank, 0.0)


def exited(rank: int, code: int = 0, epoch: int = 1, **more: Any) -> m.TaskExited:
    """A task of ``j1`` ended."""
    return m.TaskExited("j1", epoch, rank, code, 0.0, **more)


def lost(rank: int, epoch: int = 1) -> m.TaskLost:
    """A task of ``j1`` is gone without a status."""
    return m.TaskLost("j1", epoch, rank, "gone")


def evicted(rank: int, epoch: int = 1) -> m.TaskEvicted:
    """A task of ``j1`` was ended by the cluster's own people."""
    return m.TaskEvicted("j1", epoch, rank, "preempted by another account")


def runs(rank: int, epoch: int = 1, job_id: str = "j1") -> m.TruthTask:
    """A task that the engine says runs."""
    return m.TruthTask(job_id, epoch, rank, running=True)


def over(rank: int, code: int | None = 0, epoch: int = 1) -> m.TruthTask:
    """A task that the engine says has ended."""
    return m.TruthTask("j1", epoch, rank, running=False, code=code)
