"""Capacity planned on a cadence in a simulated system: the production code, with the time that solving takes modelled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from topmast.fast.queue.machine import GlobalQueue
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import TopmastError
from topmast.policies.options import SlowOptions
from topmast.runtime.capacitypicture import Demand, idle_of, picture_of, wish_of
from topmast.runtime.machines import Machines
from topmast.sim.clock import VirtualClock
from topmast.sim.heap import EventHeap, Priority
from topmast.sim.loop import Hear
from topmast.slow.capacity.feedback import Sample
from topmast.slow.capacity.planner import plan
from topmast.slow.capacity.planning import CapacityPlanning, Question

LOOK_S = 60.0
"""How often it is seen what is lacking and what is idle."""
BY = "the capacity plan"


class SimulatedCapacity:
    """Plans as `options` say, while jobs are submitted. A plan is there ``plan_s`` after it was asked for.

    How long the solver really takes does not change a run: it is limited by work alone.
    """

    def __init__(
        self,
        options: SlowOptions,
        plan_s: float,
        until_s: float,
        machines: Machines,
        clock: VirtualClock,
        heap: EventHeap,
        post: Callable[[str, Sequence[m.Message]], Any],
    ) -> None:
        assert options.plan_capacity_every_s is not None
        self.planning = CapacityPlanning(wish_of(options))
        self.plans = self.discarded = self.hosts_moved = 0
        self._every_s = options.plan_capacity_every_s
        self._plan_s, self._until_s = plan_s, until_s
        self._machines, self._clock, self._heap, self._post = machines, clock, heap, post
        self._demand = self._demand_of(machines.queue)

    def begin(self) -> None:
        """Look and plan from now on."""
        self._look(None)
        self._heap.put(self._clock.now_s + self._every_s, Priority.WAKE, self._plan, None)

    def hears(self) -> dict[type[m.Message], Hear]:
        """Whom to tell of hosts that went to other clusters."""
        return {m.HostsMoved: self._moved}

    def _moved(self, to: str, event: Any, facts: Sequence[Struct], now: float) -> None:
        self.hosts_moved += len(event.owners)

    def _look(self, _: object) -> None:
        queue, now = self._machines.queue, self._clock.now_s
        if self._demand.fleet is not queue.fleet:
            self._demand = self._demand_of(queue)
        unmet = self._demand.unmet(queue, list(queue.jobs))
        idle = idle_of(self._machines.placers, self.planning.lent)
        self.planning.observe(Sample(unmet, idle), now)
        if now + LOOK_S <= self._until_s:
            self._heap.put(now + LOOK_S, Priority.WAKE, self._look, None)

    def _demand_of(self, queue: GlobalQueue) -> Demand:
        return Demand(queue.fleet, queue.homes, self.planning.wish.limits)

    def _plan(self, _: object) -> None:
        now, machines = self._clock.now_s, self._machines
        picture = picture_of(machines.queue, machines.placers)
        question = self.planning.question(picture, now)
        if question is not None:
            self._heap.put(now + self._plan_s, Priority.NEWS, self._answer, question)
        if now + self._every_s <= self._until_s:
            self._heap.put(now + self._every_s, Priority.WAKE, self._plan, None)

    def _answer(self, question: Question) -> None:
        now, machines = self._clock.now_s, self._machines
        try:
            answers = {
                region: plan(problem, float("inf"), lambda: 0.0)
                for region, problem in question.problems.items()
            }
        except TopmastError as error:
            self.planning.failed(str(error), now)
            self.discarded += 1
            return
        picture = picture_of(machines.queue, machines.placers)
        orders = self.planning.answered(question, answers, picture, now)
        self.plans += bool(orders)
        self.discarded += not orders
        for order in orders:
            self._post(ids.placer(order.region), (m.AssignHosts(order.owners, BY),))
