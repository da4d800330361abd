"""The machines of one process by address, made when first spoken to."""

from __future__ import annotations

from collections.abc import Iterator

from topmast.fast.clusters.machine import ClusterManager
from topmast.fast.placement.desk import Desk
from topmast.fast.placement.index import Pool
from topmast.fast.placement.machine import RegionalPlacer
from topmast.fast.queue.machine import GlobalQueue
from topmast.model import ids
from topmast.policies.base import Profile
from topmast.policies.registry import policies_of
from topmast.ports import Machine


class Machines:
    """The queue, and a placer or cluster manager for every address that names one.

    Raises InvalidInput for a profile that names a policy that does not exist.
    """

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        policies = policies_of(profile)
        self._score = policies.score
        self.queue = GlobalQueue(profile, policies.order)
        self.placers: dict[str, RegionalPlacer] = {}
        self.clusters: dict[str, ClusterManager] = {}
        self.pool = Pool()
        self.desk = Desk(self.placers, self.pool, profile, self._score)
        self._by_address: dict[str, Machine] = {ids.QUEUE: self.queue}

    def at(self, address: str) -> Machine | None:
        """The machine at an address; None for one that lies outside (an engine, the mover)."""
        found = self._by_address.get(address)
        if found is not None:
            return found
        if address == ids.DESK:
            return self.desk
        kind, _, name = address.partition("/")
        if kind == "placer":
            self.placers[name] = RegionalPlacer(name, self.profile, self._score, self.pool)
            self._by_address[address] = self.placers[name]
        elif kind == "cluster":
            self.clusters[name] = ClusterManager(name)
            self._by_address[address] = self.clusters[name]
        return self._by_address.get(address)

    def addressed(self) -> Iterator[tuple[str, Machine]]:
        """Every machine that keeps something, in the order in which they were first spoken to."""
        yield from list(self._by_address.items())
