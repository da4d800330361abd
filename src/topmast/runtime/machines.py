"""The machines of one process by address, made when first spoken to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Raw, Struct

from topmast.accounts import Accounts
from topmast.fast.cluster import ClusterManager, Packing
from topmast.fast.fleet_placer import FleetPlacer
from topmast.fast.queue import GlobalQueue
from topmast.fast.region import Pool, RegionalPlacer
from topmast.model import ids
from topmast.policies.base import PairSpeeds
from topmast.policies.options import Profile
from topmast.policies.registry import policies_of
from topmast.ports import Machine
from topmast.runtime.relay import Relay


class RegionState(Struct, frozen=True):
    """Snapshots of the machines of one region, all of one time, as JSON."""

    placer: Raw
    clusters: dict[str, Raw]
    """Those of the cluster managers, by cluster."""


class Machines:
    """The queue, the accounts, and a placer, cluster manager or relay for each address of one.

    ``elsewhere`` lists machines of other processes, each with the relay that stands for it.
    ``reconcile``: whether cluster managers ask their engines what they run, now and then.
    ``pair_speeds``: measured speeds of jobs on the same GPUs. Raises InvalidInput for a profile
    that names a policy that does not exist.
    """

    def __init__(
        self,
        profile: Profile,
        elsewhere: Mapping[ids.Address, ids.Address] | None = None,
        pair_speeds: PairSpeeds | None = None,
        *,
        reconcile: bool = True,
    ) -> None:
        self.profile = profile
        self.reconcile = reconcile
        self._elsewhere = dict(elsewhere or {})
        policies = policies_of(profile)
        self._score = policies.score
        self._rebalance = policies.rebalance
        self._packing = None
        if policies.rebalance is not None:
            self._packing = Packing(
                policies.pack, policies.rebalance, profile.pack_trial_s, profile.rebalancing.retry_s
            )
        self.queue = GlobalQueue(policies, pair_speeds)
        self.placers: dict[str, RegionalPlacer] = {}
        self.clusters: dict[str, ClusterManager] = {}
        self.pool = Pool()
        self.fleet_placer = FleetPlacer(self.placers, self.pool, profile, self._score)
        self.relays: dict[str, Relay] = {}
        self.accounts = Accounts()
        self.known: dict[ids.Address, Machine] = {ids.FLEET_PLACER: self.fleet_placer}
        """Those that were spoken to, by address; `at` makes the others."""
        if ids.QUEUE not in self._elsewhere:
            self.known[ids.QUEUE] = self.queue
        for relay in self._elsewhere.values():
            self.at(relay)  # it hears `Recovered` at every start

    def route(self, address: ids.Address) -> ids.Address:
        """The receiver of what is sent to an address: the machine itself, or its relay."""
        return self._elsewhere.get(address, address)

    def at(self, address: str) -> Machine | None:
        """The machine at an address; None for one that lies outside (an engine, the mover)."""
        found = self.known.get(address)
        if found is not None:
            return found
        kind, _, name = address.partition("/")
        if kind == "placer":
            self.placers[name] = RegionalPlacer(
                name, self.profile, self._score, self.pool, self._rebalance
            )
            self.known[address] = self.placers[name]
        elif kind == "cluster":
            self.clusters[name] = ClusterManager(
                name, self.profile.slices, self._packing, reconcile=self.reconcile
            )
            self.known[address] = self.clusters[name]
        elif address == ids.ACCOUNTS:
            self.known[address] = self.accounts
        elif kind == "relay":
            self.relays[name] = Relay(name)
            self.known[address] = self.relays[name]
        return self.known.get(address)

    def leave(self, region: str) -> None:
        """A region that was placed here is placed elsewhere from now on."""
        if self.placers.pop(region, None) is not None:
            del self.known[ids.placer(region)]

    def region_state(self, region: str) -> RegionState:
        """Snapshots of the machines of a region that is placed here. O(hosts + attempts)."""
        clusters = {
            name: Raw(manager.snapshot())
            for name, manager in self.clusters.items()
            if manager.state.region == region
        }
        return RegionState(Raw(self.placers[region].snapshot()), clusters)

    def region_states(self) -> dict[str, RegionState]:
        """Those of all regions that are placed here."""
        return {region: self.region_state(region) for region in sorted(self.placers)}

    def copy_of_placer(self, region: str, books: bytes) -> RegionalPlacer:
        """A placer with the books of one that lives elsewhere, to look at."""
        copy = RegionalPlacer(region, self.profile, self._score)
        copy.restore(books)
        return copy

    def addressed(self) -> Iterator[tuple[str, Machine]]:
        """Every machine that keeps something, in the order in which they were first spoken to."""
        yield from [item for item in self.known.items() if item[0] != ids.FLEET_PLACER]
