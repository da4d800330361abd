"""A cadence of the slow path under the virtual clock: the production code, with the time that
solving takes modelled.

How long a solver really takes does not change a run: it is limited by work alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from topmast.fast.queue import GlobalQueue
from topmast.fast.region import RegionalPlacer
from topmast.model import messages as m
from topmast.model.job import MILLI, Band
from topmast.policies.options import SlowOptions
from topmast.runtime.machines import Machines
from topmast.runtime.planning.cadence import Cadence, Solver
from topmast.runtime.planning.capacity import CapacityCadence
from topmast.runtime.planning.data import DataCadence
from topmast.runtime.planning.data_snapshot import gang_of
from topmast.sim.books import ALLOCATIONS, Tables
from topmast.sim.clock import VirtualClock
from topmast.sim.heap import EventHeap, Priority
from topmast.slow.capacity import planner as capacity
from topmast.slow.capacity.problem import Problem as CapacityProblem
from topmast.slow.data.access_log import Entry
from topmast.slow.data.demand import Kind
from topmast.slow.data.planner import Options, Planner
from topmast.traces.trace import Trace

LOOK_S = 60.0
"""Time between two looks of a cadence."""
JOB, END_S = ALLOCATIONS.index("job_id"), ALLOCATIONS.index("end_s")
MODEL, GPUS = ALLOCATIONS.index("gpu_model"), ALLOCATIONS.index("gpus")
START_S = ALLOCATIONS.index("start_s")

T = TypeVar("T")
Post = Callable[[str, Sequence[m.Message]], Any]


class SimulatedSystem:
    """The machines of a simulation, as a cadence uses them."""

    def __init__(self, machines: Machines, post: Post) -> None:
        self._machines = machines
        self._post = post

    @property
    def queue(self) -> GlobalQueue:
        """The machine itself: nothing else runs meanwhile."""
        return self._machines.queue

    def ask(self, question: Callable[[], T]) -> T:
        """Ask at once."""
        return question()

    def order(self, to: str, message: m.Message) -> None:
        """Have a machine handle a message. Raises TopmastError for one that it refuses."""
        reply = self._post(to, (message,))
        if isinstance(reply, Exception):
            raise reply

    def look_now(self, age_s: float) -> None:
        """Every region is in this process."""

    def reached(self) -> dict[str, RegionalPlacer]:
        """The placers of all regions."""
        return self._machines.placers


class Unlimited:
    """A planner of capacity that no clock stops."""

    def plan(self, problem: CapacityProblem) -> dict[str, Any]:
        """The answer; raises TopmastError."""
        return capacity.plan(problem, float("inf"), lambda: 0.0)


class Solved(Struct, frozen=True):
    """An answer that is computed when it is taken."""

    result: Callable[[], Any]

    def done(self) -> bool:
        """It can be taken at any time."""
        return True


class SimulatedPlanning:
    """Drives a cadence by the event heap. A plan is there ``plan_s`` after it was asked for.

    Plans are asked for until ``until_s``, when the last job is submitted: no job would gain by
    later ones.
    """

    def __init__(
        self,
        cadence: Cadence[Any, Any, Any],
        solver: Solver[Any],
        plan_s: float,
        until_s: float,
        clock: VirtualClock,
        heap: EventHeap,
    ) -> None:
        assert cadence.every_s is not None
        self.plans = self.discarded = 0
        self._cadence, self._solver = cadence, solver
        self._every_s = cadence.every_s
        self._plan_s, self._until_s = plan_s, until_s
        self._clock, self._heap = clock, heap

    def begin(self) -> None:
        """Plan and look from now on."""
        self._cadence.begin(self._clock.now_s, self._solve)
        self._look(None)
        self._plan_later()

    def _plan_later(self) -> None:
        due_s = self._clock.now_s + self._every_s
        if due_s <= self._until_s:
            self._heap.put(due_s, Priority.WAKE, self._plan, None)

    def _plan(self, _: object) -> None:
        self._cadence.ask(self._clock.now_s)
        self._plan_later()

    def _solve(self, request: Any) -> Solved:
        self._heap.put(self._clock.now_s + self._plan_s, Priority.NEWS, self._take, None)
        return Solved(lambda: self._cadence.solve(self._solver, request))

    def _take(self, _: object) -> None:
        applied = self._cadence.take(self._clock.now_s).applied
        self.plans += applied
        self.discarded += not applied

    def _look(self, _: object) -> None:
        now, cadence = self._clock.now_s, self._cadence
        cadence.look(now)
        if now + cadence.look_s <= self._until_s or cadence.in_flight:
            self._heap.put(now + cadence.look_s, Priority.WAKE, self._look, None)


class SimulatedDataPlanning(SimulatedPlanning):
    """Plans where data is. Attempts that end are written into the access log through `watched`."""

    def __init__(
        self,
        options: SlowOptions,
        plan_s: float,
        seed: int,
        trace: Trace,
        system: SimulatedSystem,
        clock: VirtualClock,
        heap: EventHeap,
    ) -> None:
        self.cadence = DataCadence(system, options, LOOK_S, seed=seed)
        planner = Planner(Options(time_limit_s=float("inf")), lambda: 0.0)
        super().__init__(self.cadence, planner, plan_s, float(trace.submit_s.max()), clock, heap)
        self._rows = {job: row for row, job in enumerate(trace.job_id)}
        self._trace = trace

    def remember(self, entries: Iterable[Entry]) -> None:
        """Jobs before the run count in its plans."""
        for entry in entries:
            self.cadence.planning.access_log.note(entry)

    def watched(self, tables: Tables) -> Tables:
        """Tables that write their rows of allocations into the access log too."""

        def allocation(row: Sequence[Any]) -> object:
            self._note(row)
            return tables.allocations(row)

        return Tables(tables.jobs, allocation, tables.timeline, tables.copies)

    def _note(self, row: Sequence[Any]) -> None:
        trace, number = self._trace, self._rows[row[JOB]]
        names = trace.datasets.names[int(trace.datasets.codes[number])]
        if names:
            kind = Kind(row[MODEL], bool(trace.band[number] >= Band.HIGH))
            gpu_s = row[GPUS] * (row[END_S] - row[START_S])
            submit_s = float(trace.submit_s[number])
            tasks = int(trace.tasks[number])
            gang = gang_of(round(float(trace.gpus[number]) * MILLI) * tasks, tasks)
            entry = Entry(submit_s, tuple(names.split("|")), kind, gpu_s, gang)
            self.cadence.planning.access_log.note(entry)


class SimulatedCapacityPlanning(SimulatedPlanning):
    """Plans which cluster has which hosts, and counts the hosts that went to other clusters."""

    def __init__(
        self,
        options: SlowOptions,
        plan_s: float,
        until_s: float,
        system: SimulatedSystem,
        clock: VirtualClock,
        heap: EventHeap,
    ) -> None:
        cadence = CapacityCadence(system, system, options, LOOK_S)
        super().__init__(cadence, Unlimited(), plan_s, until_s, clock, heap)
        self.hosts_moved = 0

    def count_moved(
        self, to: str, event: m.HostsMoved, facts: Sequence[Struct], now: float
    ) -> None:
        """Heard by the loop for each message of hosts that moved."""
        self.hosts_moved += len(event.owners)
