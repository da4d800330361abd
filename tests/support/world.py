"""The three machines under a virtual clock, with an engine and a mover that obey at once.

What a test tells the world to do (finish a task, lose a host) comes in as the same messages that a real
engine posts. Every event is journalled to a list, so that histories can be replayed and compared.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from topmast.model import ids
from topmast.model import messages as m
from topmast.model.fleet import ClusterSpec, Fleet, HostSpec, Link, RegionSpec, TenantSpec
from topmast.model.job import Accelerator, Band, JobSpec, Resources, TaskGroup
from topmast.model.states import JobState
from topmast.policies.base import Profile
from topmast.ports import Record
from topmast.runtime.codec import encode_event, encode_facts
from topmast.runtime.machines import Machines

GANG = tuple[str, int]


def profile(**options: Any) -> Profile:
    """A profile whose jobs may be preempted at once, unless told otherwise."""
    return Profile(**{"name": "test", "min_runtime_s": 0.0, "restart_cost_s": 1.0, **options})


def cluster(
    name: str, hosts: int = 2, gpus: int = 8, model: str = "H100", **more: Any
) -> ClusterSpec:
    """A cluster of equal hosts, two to a rack."""
    return ClusterSpec(
        name,
        tuple(
            HostSpec(f"{name}-{i}", model, gpus, rack=f"r{i // 2}", **more) for i in range(hosts)
        ),
    )


def fleet(
    *clusters: ClusterSpec, tenants: tuple[TenantSpec, ...] = (TenantSpec("default"),), **more: Any
) -> Fleet:
    """A region for each cluster, named after it up to the dash; links between all of them."""
    regions: dict[str, list[ClusterSpec]] = {}
    for spec in clusters:
        regions.setdefault(spec.name.split("-")[0], []).append(spec)
    links = tuple(Link(a, b, 1e9) for a in regions for b in regions if a != b)
    return Fleet(
        tuple(RegionSpec(name, tuple(owned)) for name, owned in regions.items()),
        more.pop("links", links),
        tenants,
        more.pop("datasets", ()),
    )


def job(
    name: str = "job",
    gpus: float = 1,
    count: int = 1,
    model: str | None = "H100",
    band: Band = Band.NORMAL,
    **more: Any,
) -> JobSpec:
    """A gang of ``count`` equal tasks with ``gpus`` each."""
    accelerators = (Accelerator(model, round(gpus * 1000)),) if gpus else ()
    resources = more.pop("resources", Resources(accelerators))
    return JobSpec(name, (TaskGroup("main", count, resources, "true"),), band=band, **more)


class World:
    """Machines, a virtual clock, an obedient engine; `journal` holds every record."""

    def __init__(self, fleet: Fleet, options: Profile | None = None) -> None:
        self.machines = Machines(options or profile())
        self.now = 0.0
        self.journal: list[Record] = []
        self.outbox: list[m.Send] = []
        self.gangs: dict[GANG, m.StartGang] = {}
        self.obedient = True
        self.tell(ids.QUEUE, m.ConfigureFleet(fleet))

    @property
    def jobs(self) -> dict[str, Any]:
        """The queue's records by id."""
        return self.machines.queue.jobs

    # --- driving ------------------------------------------------------------------------------------

    def tell(self, to: str, message: m.Message) -> Any:
        """Hand a message to a machine and let all follow, the wake-ups due now included."""
        reply = self._cascade(to, message)
        self.settle()
        return reply

    def settle(self) -> None:
        """Deliver wake-ups that are due until none is."""
        for _ in range(10_000):
            due = [
                address
                for address, machine in self.machines.addressed()
                if (at := machine.next_wakeup_s()) is not None and at <= self.now
            ]
            if not due:
                return
            for address in due:
                self._cascade(address, m.Wake())
        raise AssertionError("the machines never come to rest")

    def advance(self, seconds: float) -> None:
        """Let time pass, stopping at every wake-up on the way."""
        end = self.now + seconds
        while True:
            times = [
                at
                for _, machine in self.machines.addressed()
                if (at := machine.next_wakeup_s()) is not None and at <= end
            ]
            if not times:
                break
            self.now = max(self.now, min(times))
            self.settle()
        self.now = end

    def _cascade(self, to: str, message: m.Message) -> Any:
        waiting = deque([(to, message, True)])
        answer: Any = None
        while waiting:
            address, event, first = waiting.popleft()
            machine = self.machines.at(address)
            if machine is None:
                self.outbox.append(m.Send(address, event))
                waiting.extend((a, e, False) for a, e in self._outside(address, event))
                continue
            outcome = machine.handle(event, self.now)
            if outcome.facts:
                self.journal.append(
                    Record(
                        len(self.journal) + 1, self.now, address,
                        encode_event(event), encode_facts(outcome.facts),
                    )
                )  # fmt: skip
            if first:
                answer = outcome.reply
            waiting.extend((send.to, send.message, False) for send in outcome.sends)
        return answer

    def _outside(self, address: str, event: m.Message) -> list[tuple[str, m.Message]]:
        """What an engine that obeys at once would post."""
        if not self.obedient:
            return []
        manager = address.replace("engine/", "cluster/")
        if isinstance(event, m.StartGang):
            self.gangs[event.job, event.epoch] = event
            return [
                (manager, m.TaskStarted(event.job, event.epoch, s.rank, self.now))
                for s in event.seats
            ]
        if isinstance(event, m.StopTasks):
            gang = self.gangs.pop((event.job, event.epoch), None)
            return [
                (manager, m.TaskExited(event.job, event.epoch, s.rank, 143, self.now))
                for s in (gang.seats if gang else ())
            ]
        return []

    # --- what people and the world do ------------------------------------------------------------------

    def submit(self, *specs: JobSpec, key: str = "") -> Any:
        """Submit jobs; returns their ids."""
        return self.tell(ids.QUEUE, m.SubmitJobs(specs, key, key and repr(specs)))

    def finish(self, job: str, code: int = 0) -> None:
        """Every task of the job's attempt exits with ``code``."""
        record = self.jobs[job]
        gang = self.gangs.pop((job, record.epoch))
        for seat in gang.seats:
            self.tell(
                ids.cluster(gang.cluster),
                m.TaskExited(job, gang.epoch, seat.rank, code, self.now),
            )

    def lose(self, host: str) -> None:
        """A host dies with everything on it."""
        name = host.rsplit("-", 1)[0]
        for key, gang in list(self.gangs.items()):
            if any(seat.host == host for seat in gang.seats):
                self.gangs[key] = gang
        self.tell(ids.cluster(name), m.HostDown(host))

    def state(self, job: str) -> JobState:
        """The state of a job."""
        return self.jobs[job].state  # type: ignore[no-any-return]

    def reason(self, job: str) -> str | None:
        """The dominant reason of a waiting job."""
        reason, _ = self.machines.queue.reason_of(self.jobs[job])
        return None if reason is None else reason.value
