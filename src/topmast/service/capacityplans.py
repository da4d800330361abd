"""Which cluster has which hosts, planned while the server runs: the view of the plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from topmast.model.plan_views import CapacityPlanView, CapacityRow, HostMoveView
from topmast.policies.options import SlowOptions
from topmast.ports import Clock
from topmast.runtime.loop import Runtime
from topmast.runtime.planning.capacity import CapacityCadence
from topmast.service.event_stream import EventStream
from topmast.service.planning import LiveSystem, OwnProcess, PlanningThread
from topmast.service.regions import Regions
from topmast.slow.capacity.feedback import Gpus
from topmast.slow.capacity.planning import ActiveCapacityPlan
from topmast.slow.capacity.problem import Problem

LOOK_S = 5.0
"""How often it is seen what is lacking and what is idle."""


class CapacityPlans(PlanningThread):
    """Plans every ``options.plan_capacity_every_s``."""

    def __init__(
        self,
        runtime: Runtime,
        clock: Clock,
        event_stream: EventStream,
        options: SlowOptions,
        solver: Callable[[], OwnProcess[Problem]],
        regions: Regions,
    ) -> None:
        self.cadence = CapacityCadence(LiveSystem(runtime), regions, options, LOOK_S)
        super().__init__(self.cadence, runtime, clock, event_stream, solver)
        self._regions = regions

    def view(self) -> CapacityPlanView:
        """What is planned, what is still to do, what failed last. Called between two commits."""
        planning = self.cadence.planning
        plan, failure = planning.active, planning.failure
        regions = self.cadence.snapshot().regions
        gpus: Gpus = {}
        spare: Gpus = {}
        moves = []
        for region in regions:
            for host in region.hosts:
                key = (host.owner, host.spec.model)
                gpus[key] = gpus.get(key, 0.0) + host.spec.gpus
                if host.spec.name in planning.spare:
                    spare[key] = spare.get(key, 0.0) + host.spec.gpus
                if host.leaves_for is not None:
                    moves.append(HostMoveView(host.spec.name, host.owner, host.leaves_for))
        owners = {cluster: region.name for region in regions for cluster in region.clusters}
        return CapacityPlanView(
            every_s=self.cadence.every_s,
            next_s=self.cadence.next_s,
            solving=self.cadence.solving,
            number=plan.number if plan else None,
            applied_s=plan.applied_s if plan else None,
            figures=plan.figures if plan else {},
            clusters=tuple(_rows(plan, gpus, spare, owners)) if plan else (),
            leaving=tuple(moves),
            trouble=failure.why if failure else None,
            trouble_s=failure.at_s if failure else None,
            buffer=plan.spare if plan else (),
            out_of_reach=self._regions.out_of_reach(),
        )


def _rows(
    plan: ActiveCapacityPlan, gpus: Gpus, spare: Gpus, regions: Mapping[str, str]
) -> list[CapacityRow]:
    """What each cluster asked for, and has."""
    return [
        CapacityRow(
            region=regions[cluster],
            cluster=cluster,
            gpu_model=model,
            configured=plan.configured[cluster, model],
            unmet=plan.seen.unmet.get((cluster, model), 0.0),
            idle=plan.seen.idle.get((cluster, model), 0.0),
            requested=requested,
            lacking=plan.shortfall.get((cluster, model), 0.0),
            gpus=gpus.get((cluster, model), 0.0),
            lent=spare.get((cluster, model), 0.0),
        )
        for (cluster, model), requested in sorted(plan.requested.items())
        if cluster in regions
    ]
