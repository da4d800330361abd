"""Which cluster has which hosts: the cadence of its plans.

It speaks to the regions' placers by messages only. A placer drains a host before the host changes
its cluster. A region that is out of reach keeps its hosts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from topmast.fast.region import RegionalPlacer
from topmast.model import ids
from topmast.model import messages as m
from topmast.policies.options import SlowOptions
from topmast.runtime.planning.cadence import JOBS_A_LOOK, Cadence, Solver, System
from topmast.runtime.planning.capacity_snapshot import Demand, idle_of, options_of, snapshot_of
from topmast.slow.capacity.feedback import Gpus, Sample
from topmast.slow.capacity.planning import CapacityPlanning, CapacityPlanRequest, CapacitySnapshot
from topmast.slow.capacity.problem import Problem

APART_LOOK_S = 30.0
"""How old what is known of a region in another process may be, between two plans."""
BY = "the capacity plan"

Answers = dict[str, dict[str, Any]]


class Regions(Protocol):
    """The placers of all regions."""

    def look_now(self, age_s: float) -> None:
        """Renew what is known of regions in other processes, where it is older than ``age_s``."""
        ...

    def reached(self) -> Mapping[str, RegionalPlacer]:
        """The placers that can be reached, by region."""
        ...


class CapacityCadence(Cadence[Problem, CapacityPlanRequest, Answers]):
    """Plans every ``options.plan_capacity_every_s``."""

    kind = "capacity-plan"

    def __init__(
        self, system: System, regions: Regions, options: SlowOptions, look_s: float
    ) -> None:
        self.planning = CapacityPlanning(options_of(options))
        super().__init__(system, self.planning, options.plan_capacity_every_s, look_s)
        self._regions = regions
        self._demand: Demand | None = None

    def request(self, now_s: float) -> CapacityPlanRequest | None:
        """A problem for each region that has several clusters."""
        return self.planning.request(self._fresh_snapshot(), now_s)

    def solve(self, solver: Solver[Problem], request: CapacityPlanRequest) -> Answers:
        """One region after the other."""
        return {region: solver.plan(problem) for region, problem in request.problems.items()}

    def apply(self, request: CapacityPlanRequest, answer: Answers, now_s: float) -> str | None:
        """Order what it says, if hosts still belong to the clusters that had them."""
        orders = self.planning.apply(request, answer, self._fresh_snapshot(), now_s)
        if not orders:
            return None
        for order in orders:
            self.system.order(ids.placer(order.region), m.AssignHosts(order.owners, BY))
        count = sum(len(order.owners) for order in orders)
        return f"capacity plan {request.number}: {count} hosts to move"

    def look(self, now_s: float) -> None:
        """What waits where, and what is idle, put together from short looks. O(jobs + slots)."""
        self._regions.look_now(APART_LOOK_S)
        queue, ask = self.system.queue, self.system.ask
        fleet, names = ask(lambda: (queue.fleet, list(queue.jobs.records)))
        demand = self._demand
        if demand is None or demand.fleet is not fleet:
            demand = self._demand = ask(self._demand_of)
        unmet: Gpus = {}
        for begin in range(0, len(names), JOBS_A_LOOK):
            ask(partial(demand.add_unmet, unmet, queue, names[begin : begin + JOBS_A_LOOK]))
        idle = ask(lambda: idle_of(self._regions.reached(), self.planning.spare))
        self.planning.observe(Sample(unmet, idle), now_s)

    def snapshot(self) -> CapacitySnapshot:
        """The regions as they are known. To be called between two commits."""
        return snapshot_of(self.system.queue, self._regions.reached())

    def _fresh_snapshot(self) -> CapacitySnapshot:
        """The regions as they are now, also those in other processes."""
        self._regions.look_now(0.0)
        return self.system.ask(self.snapshot)

    def _demand_of(self) -> Demand:
        queue = self.system.queue
        return Demand(queue.fleet, queue.homes, self.planning.options.limits)
