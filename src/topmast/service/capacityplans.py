"""Whose hosts are, planned on a cadence while the system runs; the fast path never waits for it.

One thread looks every few seconds what is lacking and what is idle; another waits for the planner. They speak to
the regions' placers by messages only, which drain a host before it changes its cluster. The machines are looked at in
small portions between their commits. Of a region whose placer lives in another process a copy of its books is asked
for now and then; while it is out of reach it keeps its hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from topmast.model import ids
from topmast.model import messages as m
from topmast.model import views as v
from topmast.policies.options import SlowOptions
from topmast.ports import Clock
from topmast.runtime.capacitypicture import Demand, idle_of, picture_of, wish_of
from topmast.runtime.loop import Runtime
from topmast.service.cadence import ANSWER_S, JOBS_A_LOOK, Cadence, Solver
from topmast.service.hub import Hub
from topmast.service.regions import Regions
from topmast.slow.capacity.feedback import Gpus, Sample
from topmast.slow.capacity.planning import CapacityPlanning, InForce, Order, Picture, Question
from topmast.slow.capacity.problem import Problem

LOOK_S = 5.0
"""How often it is seen what is lacking and what is idle."""
APART_LOOK_S = 30.0
"""How old what is known of a region in another process may be, between two plans."""
BY = "the capacity plan"

Answers = dict[str, dict[str, Any]]


class CapacityPlans(Cadence[Problem, Question, Answers]):
    """Plans every ``options.plan_capacity_every_s``."""

    kind = "capacity-plan"
    wait_s = 1.0

    def __init__(
        self,
        runtime: Runtime,
        clock: Clock,
        hub: Hub,
        options: SlowOptions,
        solver: Callable[[], Solver[Problem]],
        regions: Regions,
    ) -> None:
        super().__init__(runtime, clock, hub, options.plan_capacity_every_s, solver)
        self.planning = CapacityPlanning(wish_of(options))
        self._regions = regions
        self._demand: Demand | None = None
        self._next_look_s = 0.0

    # --- from outside -------------------------------------------------------------------------------

    def view(self) -> v.CapacityPlanView:
        """What is planned, what is still on its way, and what went wrong last. Asked between two commits."""
        plan, trouble = self.planning.in_force, self.planning.trouble
        regions = self._picture().regions
        gpus: Gpus = {}
        lent: Gpus = {}
        moves = []
        for region in regions:
            for host in region.hosts:
                key = (host.owner, host.spec.model)
                gpus[key] = gpus.get(key, 0.0) + host.spec.gpus
                if host.spec.name in self.planning.lent:
                    lent[key] = lent.get(key, 0.0) + host.spec.gpus
                if host.leaves_for is not None:
                    moves.append(v.HostMoveView(host.spec.name, host.owner, host.leaves_for))
        owners = {cluster: region.name for region in regions for cluster in region.clusters}
        return v.CapacityPlanView(
            every_s=self._every_s,
            next_s=self._next_s,
            solving=self._solving is not None,
            number=plan.number if plan else None,
            applied_s=plan.applied_s if plan else None,
            figures=plan.figures if plan else {},
            clusters=tuple(_rows(plan, gpus, lent, owners)) if plan else (),
            leaving=tuple(moves),
            trouble=trouble[1] if trouble else None,
            trouble_s=trouble[0] if trouble else None,
            buffer=plan.lent if plan else (),
            out_of_reach=self._regions.out_of_reach(),
        )

    # --- the cadence --------------------------------------------------------------------------------

    def look(self, now_s: float) -> None:
        """What is lacking and what is idle, now and then."""
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + LOOK_S
            self._regions.look_now(APART_LOOK_S)
            self._observe()

    def question(self, now_s: float) -> Question | None:
        """A problem for each region that has several clusters."""
        return self.planning.question(self._fresh_picture(), now_s)

    def solve(self, solver: Solver[Problem], question: Question) -> Answers:
        """One region after the other."""
        return {region: solver.plan(problem) for region, problem in question.problems.items()}

    def take(self, question: Question, answer: Answers, now_s: float) -> str | None:
        """Order what it says, if hosts are still whose they were."""
        orders = self.planning.answered(question, answer, self._fresh_picture(), now_s)
        if not orders:
            return None
        for order in orders:
            self._carry_out(order)
        count = sum(len(order.owners) for order in orders)
        return f"capacity plan {question.number}: {count} hosts to move"

    def note_failure(self, why: str, now_s: float) -> None:
        """The last plan stays in force."""
        self.planning.failed(why, now_s)

    def trouble(self) -> str:
        """Why nothing came of the last plan."""
        return self.planning.trouble[1] if self.planning.trouble else ""

    # --- looking ------------------------------------------------------------------------------------

    def _observe(self) -> None:
        """What waits where, and what is idle, put together from short looks. O(jobs + slots)."""
        queue = self._runtime.machines.queue
        fleet, names = self.ask_machines(lambda: (queue.fleet, list(queue.jobs)))
        demand = self._demand
        if demand is None or demand.fleet is not fleet:
            demand = self._demand = self.ask_machines(self._demand_of)
        unmet: Gpus = {}
        for begin in range(0, len(names), JOBS_A_LOOK):
            some = names[begin : begin + JOBS_A_LOOK]
            for key, gpus in self.ask_machines(partial(demand.unmet, queue, some)).items():
                unmet[key] = unmet.get(key, 0.0) + gpus
        idle = self.ask_machines(lambda: idle_of(self._regions.reached(), self.planning.lent))
        self.planning.observe(Sample(unmet, idle), self._clock.now())

    def _demand_of(self) -> Demand:
        queue = self._runtime.machines.queue
        return Demand(queue.fleet, dict(queue.homes), self.planning.wish.limits)

    def _picture(self) -> Picture:
        return picture_of(self._runtime.machines.queue, self._regions.reached())

    def _fresh_picture(self) -> Picture:
        """The regions as they are now, also those apart."""
        self._regions.look_now(0.0)
        return self.ask_machines(self._picture)

    def _carry_out(self, order: Order) -> None:
        message = m.AssignHosts(order.owners, BY)
        self._runtime.call(ids.placer(order.region), message).result(ANSWER_S)


def _rows(plan: InForce, gpus: Gpus, lent: Gpus, regions: Mapping[str, str]) -> list[v.CapacityRow]:
    """What each cluster asked for, and has."""
    return [
        v.CapacityRow(
            region=regions[cluster],
            cluster=cluster,
            gpu_model=model,
            configured=plan.configured[cluster, model],
            unmet=plan.seen.unmet.get((cluster, model), 0.0),
            idle=plan.seen.idle.get((cluster, model), 0.0),
            requested=requested,
            lacking=plan.shortfall.get((cluster, model), 0.0),
            gpus=gpus.get((cluster, model), 0.0),
            lent=lent.get((cluster, model), 0.0),
        )
        for (cluster, model), requested in sorted(plan.requested.items())
        if cluster in regions
    ]
