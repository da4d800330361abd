"""Whose hosts are, planned on a cadence while the system runs; the fast path never waits for it.

One thread looks every few seconds what is lacking and what is idle; another waits for the planner. They speak to
the regions' placers by messages only, which drain a host before it changes its cluster. The machines are looked at in
small portions between their commits. Of a region whose placer lives in another process a copy of its books is asked
for now and then; while it is out of reach it keeps its hosts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeVar

import structlog
from msgspec import Struct

from topmast.model import ids
from topmast.model import messages as m
from topmast.model import views as v
from topmast.model.errors import TopmastError
from topmast.policies.options import SlowOptions
from topmast.ports import Clock, HistoryRow
from topmast.runtime.capacitypicture import Demand, idle_of, picture_of, wish_of
from topmast.runtime.loop import Runtime
from topmast.service.hub import Hub
from topmast.service.regions import Regions
from topmast.slow.capacity.feedback import Gpus, Sample
from topmast.slow.capacity.planning import CapacityPlanning, InForce, Order, Picture, Question
from topmast.slow.capacity.problem import Problem

LOOK_S = 5.0
WAIT_S = 1.0
"""How often it is seen whether a plan is due, or there."""
JOBS_A_LOOK = 2_000
"""So many jobs are looked at between two commits: some milliseconds."""
APART_LOOK_S = 30.0
"""How old what is known of a region in another process may be, between two plans."""
ANSWER_S = 30.0
"""How long a placer may take to answer an order before that counts as an error."""
BY = "the capacity plan"

T = TypeVar("T")
log = structlog.get_logger(__name__)


class Solver(Protocol):
    """Solves one problem at a time, far from the placers."""

    def plan(self, problem: Problem) -> dict[str, Any]:
        """The answer; raises TopmastError."""
        ...

    def close(self) -> None:
        """Stop, also in the middle of a problem."""
        ...


class _Solving(Struct):
    """A plan in the making."""

    question: Question
    answers: Future[dict[str, dict[str, Any]]]


class CapacityPlans:
    """Plans every ``options.plan_capacity_every_s``; `open` begins, `close` ends it. Without that it only answers."""

    def __init__(
        self,
        runtime: Runtime,
        clock: Clock,
        hub: Hub,
        options: SlowOptions,
        solver: Callable[[], Solver],
        regions: Regions,
    ) -> None:
        self.options = options
        self.planning = CapacityPlanning(wish_of(options))
        self._runtime, self._clock, self._hub = runtime, clock, hub
        self._make_solver = solver
        self._regions = regions
        self._solver: Solver | None = None
        self._solving: _Solving | None = None
        self._next_s: float | None = None
        self._next_look_s = 0.0
        self._stop = threading.Event()
        self._threads = ThreadPoolExecutor(2, "topmast-capacity-plans")

    # --- from outside -------------------------------------------------------------------------------

    def open(self) -> None:
        """Begin; the first plan is due one period from now."""
        if self.options.plan_capacity_every_s is None:
            return
        self._solver = self._make_solver()
        self._demand = self._demand_of()
        self._next_s = self._clock.now() + self.options.plan_capacity_every_s
        self._threads.submit(self._run)

    def close(self) -> None:
        """End both threads, and the planner."""
        self._stop.set()
        if self._solver is not None:
            self._solver.close()
        self._threads.shutdown(wait=True, cancel_futures=True)

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
            every_s=self.options.plan_capacity_every_s,
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

    # --- the thread ---------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.wait(WAIT_S):
            try:
                self._look()
            except Exception as error:  # whatever it is, the last plan stays, and people hear of it
                if self._stop.is_set():
                    return
                log.exception("planning whose hosts are went wrong")
                self._failed(f"{type(error).__name__}: {error}")

    def _look(self) -> None:
        now, solving = self._clock.now(), self._solving
        if now >= self._next_look_s:
            self._next_look_s = now + LOOK_S
            self._regions.look_now(APART_LOOK_S)
            self._observe()
        if solving is None and self._next_s is not None and now >= self._next_s:
            self._ask()
        elif solving is not None and solving.answers.done():
            self._solving = None
            self._take(solving)

    def _observe(self) -> None:
        """What waits where, and what is idle, put together from short looks. O(jobs + slots)."""
        queue = self._runtime.machines.queue
        fleet, names = self._look_at(lambda: (queue.fleet, list(queue.jobs)))
        if self._demand.fleet is not fleet:
            self._demand = self._look_at(self._demand_of)
        unmet: Gpus = {}
        for begin in range(0, len(names), JOBS_A_LOOK):
            some = names[begin : begin + JOBS_A_LOOK]
            for key, gpus in self._look_at(partial(self._demand.unmet, queue, some)).items():
                unmet[key] = unmet.get(key, 0.0) + gpus
        idle = self._look_at(lambda: idle_of(self._regions.reached(), self.planning.lent))
        self.planning.observe(Sample(unmet, idle), self._clock.now())

    def _demand_of(self) -> Demand:
        queue = self._runtime.machines.queue
        return Demand(queue.fleet, dict(queue.homes), self.planning.wish.limits)

    def _picture(self) -> Picture:
        return picture_of(self._runtime.machines.queue, self._regions.reached())

    def _fresh_picture(self) -> Picture:
        """The regions as they are now, also those apart."""
        self._regions.look_now(0.0)
        return self._look_at(self._picture)

    def _look_at(self, question: Callable[[], T]) -> T:
        """Ask between two commits of the runtime."""
        return self._runtime.ask(question).result(ANSWER_S)

    def _ask(self) -> None:
        assert self.options.plan_capacity_every_s is not None
        now = self._clock.now()
        self._next_s = now + self.options.plan_capacity_every_s
        question = self.planning.question(self._fresh_picture(), now)
        if question is not None:
            self._solving = _Solving(question, self._threads.submit(self._solve, question))

    def _solve(self, question: Question) -> dict[str, dict[str, Any]]:
        assert self._solver is not None
        return {region: self._solver.plan(p) for region, p in question.problems.items()}

    def _take(self, solving: _Solving) -> None:
        now = self._clock.now()
        try:
            answers = solving.answers.result()
        except TopmastError as error:
            self._failed(str(error))
            return
        picture = self._fresh_picture()
        orders = self.planning.answered(solving.question, answers, picture, now)
        if not orders:
            trouble = self.planning.trouble
            self._tell("capacity-plan-failed", f"no new capacity plan: {trouble and trouble[1]}")
            return
        for order in orders:
            self._carry_out(order)
        count = sum(len(order.owners) for order in orders)
        self._tell(
            "capacity-plan", f"capacity plan {solving.question.number}: {count} hosts to move"
        )

    def _carry_out(self, order: Order) -> None:
        message = m.AssignHosts(order.owners, BY)
        self._runtime.call(ids.placer(order.region), message).result(ANSWER_S)

    def _failed(self, why: str) -> None:
        self.planning.failed(why, self._clock.now())
        text = f"no new capacity plan: {why}; the last one stays in force"
        self._tell("capacity-plan-failed", text)

    def _tell(self, kind: str, text: str) -> None:
        log.info(text)
        self._hub.publish([HistoryRow(self._clock.now(), "", kind, text)])


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
