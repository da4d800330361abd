"""Capacity planned again and again: what to ask the planner, whether its answer still holds, what
to order.

See `topmast.slow.planning`. The cadence lets the planning `observe` demand between plans, calls
`request` when a plan is due, has its problems solved, and gives the answers to `apply` (or calls
`failed`), which returns the orders.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from topmast.model.fleet import HostSpec
from topmast.slow.capacity.feedback import Feedback, Gpus, Key, Limits, Mean, Sample
from topmast.slow.capacity.problem import Cluster, Host, Prices, Problem
from topmast.slow.capacity.spare_hosts import back_home
from topmast.slow.planning import ActivePlan, Planning, PlanRequest

PRICES = Prices(shortfall_gpu=10.0, buffer_gpu=2.0, move_in_use=10.0, move_idle=1.0, far_gpu=0.1)
"""A GPU that is lacking is worth a move of a host in use, and ten of idle ones. One that the
buffer lacks is worth an idle move too, but never what a cluster lacks: a host of the buffer is
given away for it, even one in use.
"""


class CapacityPlanOptions(Struct, frozen=True):
    """What to plan for."""

    limits: Limits = Limits()
    """How far a cluster's request may go from what is configured."""
    survive: bool = False
    """Clusters shall have what they ask for even while a fault domain is down."""
    buffer_fraction: float = 0.0
    """Of all GPUs of a model in a region, the part that no cluster shall count on."""
    prices: Prices = PRICES


class HostNow(Struct, frozen=True):
    """A host at one time."""

    spec: HostSpec
    owner: str
    """The cluster that has it."""
    home: str
    """The cluster that has it in the fleet file."""
    healthy: bool
    in_use: bool
    leaves_for: str | None = None
    """The cluster that gets it when it is empty."""


class RegionNow(Struct, frozen=True):
    """The clusters and hosts of a region."""

    name: str
    clusters: tuple[str, ...]
    hosts: tuple[HostNow, ...]

    def owners(self) -> dict[str, str]:
        """The owner of each host."""
        return {host.spec.name: host.owner for host in self.hosts}


class CapacitySnapshot(Struct, frozen=True):
    """The regions in which hosts may change clusters."""

    regions: tuple[RegionNow, ...]


class CapacityPlanRequest(PlanRequest, frozen=True):
    """One problem for each region."""

    snapshot: CapacitySnapshot
    problems: dict[str, Problem]
    seen: Sample
    """What was unmet and idle since the last request, in the mean."""
    configured: Gpus
    """What the fleet file gives each cluster."""
    requested: Gpus
    """What each cluster asks for."""


class HostAssignment(Struct, frozen=True):
    """The hosts of a region that shall go to other clusters."""

    region: str
    owners: dict[str, str]
    """The new cluster of each."""


class ActiveCapacityPlan(ActivePlan, frozen=True):
    """Which cluster has which hosts."""

    seen: Sample
    configured: Gpus
    requested: Gpus
    shortfall: Gpus
    """What clusters asked for and do not get."""
    spare: tuple[str, ...]
    """The hosts of the buffer: they work where they are."""
    orders: tuple[HostAssignment, ...]


FIGURES = ("status", "objective", "bound", "gap", "wall_s")


class CapacityPlanning(Planning[ActiveCapacityPlan]):
    """What the slow path knows about hosts and clusters. For one thread."""

    def __init__(self, options: CapacityPlanOptions) -> None:
        super().__init__()
        self.options = options
        self.feedback = Feedback(options.limits)
        self.mean = Mean()

    @property
    def spare(self) -> frozenset[str]:
        """The hosts of the buffer: no cluster counts on them, and those where they are may use
        them.
        """
        return frozenset(self.active.spare) if self.active is not None else frozenset()

    def observe(self, sample: Sample, now_s: float) -> None:
        """What is lacking and what is idle now."""
        self.mean.observe(sample, now_s)

    def request(self, snapshot: CapacitySnapshot, now_s: float) -> CapacityPlanRequest | None:
        """What to ask the planner; None where no host could change its cluster. O(hosts)."""
        number = self._next_number()
        seen = self.mean.take(now_s)
        configured = {key: gpus for r in snapshot.regions for key, gpus in _configured(r).items()}
        requested = self.feedback.step(configured, seen)
        problems = {}
        for region in snapshot.regions:
            if len(region.clusters) > 1 and any(host.healthy for host in region.hosts):
                problems[region.name] = problem_of(region, requested, self.options, self.spare)
        if not problems:
            return None
        return CapacityPlanRequest(number, now_s, snapshot, problems, seen, configured, requested)

    def apply(
        self,
        request: CapacityPlanRequest,
        answers: Mapping[str, Mapping[str, Any]],
        snapshot: CapacitySnapshot,
        now_s: float,
    ) -> tuple[HostAssignment, ...]:
        """Make a plan the active one and return what to order; nothing if it makes no sense any
        more.

        A region that is out of reach by now goes without.
        """
        before = {region.name: region.owners() for region in request.snapshot.regions}
        owners = {region.name: region.owners() for region in snapshot.regions}
        reached = [name for name in request.problems if name in owners]
        if not reached or any(owners[name] != before[name] for name in reached):
            self.failed("hosts came, went or changed clusters while it was made", now_s)
            return ()
        orders = []
        shortfall: Gpus = {}
        spare: list[str] = []
        for region in reached:
            answer = answers[region]
            hosts = request.problems[region].hosts
            assignment = back_home(answer["assignment"], hosts, owners[region])
            spare += [host for host, cluster in assignment.items() if cluster is None]
            moves = {
                host: cluster
                for host, cluster in assignment.items()
                if cluster is not None and owners[region][host] != cluster
            }
            orders.append(HostAssignment(region, moves))
            for cluster, models in answer["shortfall"].items():
                shortfall |= {(cluster, model): gpus for model, gpus in models.items()}
        figures = {region: {f: answers[region][f] for f in FIGURES} for region in reached}
        self._activate(
            ActiveCapacityPlan(
                request.number, request.asked_s, now_s, figures, request.seen, request.configured,
                request.requested, shortfall, tuple(spare), tuple(orders),
            )
        )  # fmt: skip
        return tuple(orders)


def problem_of(
    region: RegionNow,
    requested: Mapping[Key, float],
    options: CapacityPlanOptions,
    spare: frozenset[str],
) -> Problem:
    """The problem of one region. Where all together ask for more GPUs than they may count on,
    each gets its part.

    A host that is on its way to another cluster counts as there already, and as idle, so that a
    plan does not lightly take back what the last one began. One of the buffer, ``spare``, stays
    in it for nothing. O(hosts + clusters x models).
    """
    healthy = [host for host in region.hosts if host.healthy and host.spec.gpus]
    there = _to_count_on(region, options.buffer_fraction)
    asked: dict[str, float] = {}
    for (cluster, model), gpus in requested.items():
        if cluster in region.clusters:
            asked[model] = asked.get(model, 0.0) + gpus
    part = {
        model: min(1.0, there.get(model, 0.0) / asked[model]) for model in asked if asked[model]
    }
    capacities: dict[str, dict[str, float]] = {cluster: {} for cluster in region.clusters}
    for (cluster, model), gpus in requested.items():
        if cluster in capacities and there.get(model):
            capacities[cluster][model] = gpus * part.get(model, 1.0)
    return Problem(
        hosts=tuple(
            Host(
                host.spec.name,
                host.spec.model,
                host.spec.gpus,
                host.spec.datacenter,
                domain_of(host.spec),
                host.spec.rack,
                host.leaves_for or (None if host.spec.name in spare else host.owner),
                host.in_use and host.leaves_for is None,
            )
            for host in healthy
        ),
        clusters=tuple(
            Cluster(name, capacities[name], options.survive, _datacenter(region, name))
            for name in region.clusters
        ),
        buffer_fraction=options.buffer_fraction,
        prices=options.prices,
    )


def _to_count_on(region: RegionNow, buffer_fraction: float) -> dict[str, float]:
    """GPUs by model that clusters together may ask for: the healthy ones, but never those of the
    buffer.

    The buffer is a part of all, healthy or not: so failures are taken from it first, and no
    cluster has to ask for less.
    """
    every: dict[str, float] = {}
    healthy: dict[str, float] = {}
    for host in region.hosts:
        if host.spec.gpus:
            every[host.spec.model] = every.get(host.spec.model, 0.0) + host.spec.gpus
        if host.spec.gpus and host.healthy:
            healthy[host.spec.model] = healthy.get(host.spec.model, 0.0) + host.spec.gpus
    beside = {model: gpus - math.ceil(buffer_fraction * gpus) for model, gpus in every.items()}
    return {model: min(gpus, beside[model]) for model, gpus in healthy.items()}


def domain_of(host: HostSpec) -> str:
    """What may fail at once: a host's pod; its rack or its datacenter where no pods are named."""
    return f"{host.datacenter}/{host.pod or host.rack}"


def _configured(region: RegionNow) -> Gpus:
    """GPUs by cluster and model, as the fleet file has them."""
    found: Gpus = {}
    for host in region.hosts:
        if host.spec.gpus:
            key = (host.home, host.spec.model)
            found[key] = found.get(key, 0.0) + host.spec.gpus
    return found


def _datacenter(region: RegionNow, cluster: str) -> str | None:
    """Where most of a cluster's own GPUs stand."""
    gpus: dict[str, int] = {}
    for host in region.hosts:
        if host.home == cluster:
            gpus[host.spec.datacenter] = gpus.get(host.spec.datacenter, 0) + host.spec.gpus
    return min(gpus, key=lambda name: (-gpus[name], name), default=None)
