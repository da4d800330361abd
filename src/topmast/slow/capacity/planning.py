"""Capacity planned again and again: what to ask the planner, whether its answer still holds, what to order.

No clock, no thread and no solver in here: those differ between a live system and a simulated one. Whoever
drives it lets it `observe` demand now and then, calls `question` when a plan is due, has its problems solved, and
hands the answers to `answered` (or says `failed`), which returns the orders. A plan stays in force until
the next is valid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from topmast.model.fleet import HostSpec
from topmast.slow.capacity.feedback import Feedback, Gpus, Key, Limits, Mean, Sample
from topmast.slow.capacity.lent import back_home
from topmast.slow.capacity.problem import Cluster, Host, Prices, Problem

PRICES = Prices(shortfall_gpu=10.0, buffer_gpu=2.0, move_in_use=10.0, move_idle=1.0, far_gpu=0.1)
"""A GPU that is lacking is worth a move of a host in use, and ten of idle ones. One that the buffer lacks is worth an
idle move too, but never what a cluster lacks: a host of the buffer is given away for it, even one in use.
"""


class Wish(Struct, frozen=True):
    """What to plan for. ``survive``: clusters shall have what they ask for even while a fault domain is down.
    ``buffer_fraction``: of all GPUs of a model in a region, the part that no cluster shall count on.
    """

    limits: Limits = Limits()
    survive: bool = False
    buffer_fraction: float = 0.0
    prices: Prices = PRICES


class HostNow(Struct, frozen=True):
    """A host: whose it is, where the fleet file has it, and, if it is about to leave, for which cluster."""

    spec: HostSpec
    owner: str
    home: str
    healthy: bool
    in_use: bool
    leaves_for: str | None = None


class RegionNow(Struct, frozen=True):
    """The clusters and hosts of a region."""

    name: str
    clusters: tuple[str, ...]
    hosts: tuple[HostNow, ...]

    def owners(self) -> dict[str, str]:
        """The owner of each host."""
        return {host.spec.name: host.owner for host in self.hosts}


class Picture(Struct, frozen=True):
    """The regions in which hosts may change clusters."""

    regions: tuple[RegionNow, ...]


class Question(Struct, frozen=True):
    """One problem for each region, what they were made of, and what clusters asked for."""

    number: int
    asked_s: float
    picture: Picture
    problems: dict[str, Problem]
    seen: Sample
    configured: Gpus
    requested: Gpus


class Order(Struct, frozen=True):
    """The hosts of a region that shall go to other clusters."""

    region: str
    owners: dict[str, str]


class InForce(Struct, frozen=True):
    """The plan that holds. ``lent``: the hosts of the buffer, which work where they are."""

    number: int
    asked_s: float
    applied_s: float
    seen: Sample
    configured: Gpus
    requested: Gpus
    shortfall: Gpus
    lent: tuple[str, ...]
    orders: tuple[Order, ...]
    figures: dict[str, dict[str, Any]]


FIGURES = ("status", "objective", "bound", "gap", "wall_s")


class CapacityPlanning:
    """What the slow path knows about hosts and clusters. Driven from outside, by one thread."""

    def __init__(self, wish: Wish) -> None:
        self.wish = wish
        self.feedback = Feedback(wish.limits)
        self.mean = Mean()
        self.in_force: InForce | None = None
        self.trouble: tuple[float, str] | None = None
        """When and why the last plan came to nothing; None after one that was applied."""
        self._count = 0

    @property
    def lent(self) -> frozenset[str]:
        """The hosts of the buffer: no cluster counts on them, and those where they are may use them."""
        return frozenset(self.in_force.lent) if self.in_force is not None else frozenset()

    def observe(self, sample: Sample, now_s: float) -> None:
        """What is lacking and what is idle now."""
        self.mean.observe(sample, now_s)

    def question(self, picture: Picture, now_s: float) -> Question | None:
        """What to ask the planner; None where no host could change its cluster. O(hosts)."""
        self._count += 1
        seen = self.mean.take(now_s)
        configured = {key: gpus for r in picture.regions for key, gpus in _configured(r).items()}
        requested = self.feedback.step(configured, seen)
        problems = {}
        for region in picture.regions:
            if len(region.clusters) > 1 and any(host.healthy for host in region.hosts):
                problems[region.name] = problem_of(region, requested, self.wish, self.lent)
        if not problems:
            return None
        return Question(self._count, now_s, picture, problems, seen, configured, requested)

    def answered(
        self,
        question: Question,
        answers: Mapping[str, Mapping[str, Any]],
        picture: Picture,
        now_s: float,
    ) -> tuple[Order, ...]:
        """Put a plan in force, if it still makes sense; what to order, nothing if it does not.

        A region that is out of reach by now goes without.
        """
        before = {region.name: region.owners() for region in question.picture.regions}
        owners = {region.name: region.owners() for region in picture.regions}
        reached = [name for name in question.problems if name in owners]
        if not reached or any(owners[name] != before[name] for name in reached):
            self.failed("hosts came, went or changed clusters while it was made", now_s)
            return ()
        orders = []
        shortfall: Gpus = {}
        lent: list[str] = []
        for region in reached:
            answer = answers[region]
            hosts = question.problems[region].hosts
            assignment = back_home(answer["assignment"], hosts, owners[region])
            lent += [host for host, cluster in assignment.items() if cluster is None]
            moves = {
                host: cluster
                for host, cluster in assignment.items()
                if cluster is not None and owners[region][host] != cluster
            }
            orders.append(Order(region, moves))
            for cluster, models in answer["shortfall"].items():
                shortfall |= {(cluster, model): gpus for model, gpus in models.items()}
        figures = {region: {f: answers[region][f] for f in FIGURES} for region in reached}
        self.in_force = InForce(
            question.number, question.asked_s, now_s, question.seen, question.configured,
            question.requested, shortfall, tuple(lent), tuple(orders), figures,
        )  # fmt: skip
        self.trouble = None
        return tuple(orders)

    def failed(self, why: str, now_s: float) -> None:
        """Nothing came of a plan: the last one stays in force."""
        self.trouble = now_s, why


def problem_of(
    region: RegionNow, requested: Mapping[Key, float], wish: Wish, lent: frozenset[str]
) -> Problem:
    """The problem of one region. Where all together ask for more GPUs than they may count on, each gets its part.

    A host that is on its way to another cluster counts as there already, and as idle, so that a plan does not
    lightly take back what the last one began. One of the buffer, ``lent``, stays in it for nothing. O(hosts +
    clusters x models).
    """
    healthy = [host for host in region.hosts if host.healthy and host.spec.gpus]
    there = _to_count_on(region, wish.buffer_fraction)
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
                host.leaves_for or (None if host.spec.name in lent else host.owner),
                host.in_use and host.leaves_for is None,
            )
            for host in healthy
        ),
        clusters=tuple(
            Cluster(name, capacities[name], wish.survive, _datacenter(region, name))
            for name in region.clusters
        ),
        buffer_fraction=wish.buffer_fraction,
        prices=wish.prices,
    )


def _to_count_on(region: RegionNow, buffer_fraction: float) -> dict[str, float]:
    """GPUs by model that clusters together may ask for: the healthy ones, but never those of the buffer.

    The buffer is a part of all, healthy or not: so failures are taken from it first, and nobody has to ask for less.
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
