"""The fleet placer: one request for a place, over all regions of this process at once.

For the common gang one kernel call searches every cluster of every region; else the regions are
asked one by one. The answer is the same as that of the regions' own searches. The state of the
regions is only read, at the time of the fleet placer. It keeps memories that may be lost: the
classes that found no place (they are tried again only when there is more room), and why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate
from typing import Any, ClassVar

import msgspec

from topmast.fast.machine import EventMachine
from topmast.fast.region.explain.rejections import REASONS_KEPT, hardware_key, pending_reason
from topmast.fast.region.inventory.allocation import bid_to_external
from topmast.fast.region.inventory.allocation_table import threshold_of
from topmast.fast.region.inventory.columns import Floats
from topmast.fast.region.inventory.index import Index, Pool
from topmast.fast.region.machine import RegionalPlacer
from topmast.fast.region.preemption.search import best_spread
from topmast.fast.region.reservation.earliest import bounds_s
from topmast.fast.region.reservation.first_starts import kept_out
from topmast.fast.region.search import compiled, many, without_gpus
from topmast.fast.region.search.blocked_index import (
    ANY,
    FREE_ONLY,
    BlockedIndex,
    Needs,
    Where,
    regions_with_room,
)
from topmast.fast.region.search.scoring import fixed_cost
from topmast.fast.region.search.sizes import anywhere, largest, least_of, with_tasks
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.columns import PlanColumns
from topmast.model.job import Level
from topmast.model.plan import (
    Colocate,
    Free,
    PlacementRequest,
    Preempt,
    RegionTerms,
    Reservation,
)
from topmast.model.reason import PendingReason
from topmast.policies.base import ScorePolicy
from topmast.policies.options import Profile, ScoreWeights


class _KnownCosts(msgspec.Struct, frozen=True):
    """What clusters cost the job before."""

    index: Index
    weights: ScoreWeights
    terms: Mapping[str, RegionTerms]
    costs: Floats


class FleetPlacer(EventMachine):
    """Answers for this process's ``placers``, which have their columns in one ``pool``."""

    def __init__(
        self,
        placers: Mapping[str, RegionalPlacer],
        pool: Pool,
        profile: Profile,
        score: ScorePolicy,
    ) -> None:
        super().__init__()
        self.profile = profile
        self.placers = placers
        self.pool = pool
        self.score = score
        self.blocked = BlockedIndex()
        self._kept: Reservation | None = None
        """The seats that were kept from some of those."""
        self._index: Index | None = None
        """The index that the numbers in ``blocked`` refer to."""
        self._reasons_of: Index | None = None
        self._known_costs: _KnownCosts | None = None
        self._lacks: dict[tuple[int, tuple[int, ...] | None, bool], tuple[Needs, int]] = {}
        """By class, accelerators, and whether others might be stopped: what was lacking, in that
        index, and by which request."""
        self._free: dict[str, tuple[RegionalPlacer, int, int]] = {}
        """By region, as of a version of its books, the free thousandths of its GPUs."""
        self._reasons_by: dict[object, dict[str, PendingReason]] = {}
        """By region, why gangs find no place in the hosts of that index."""

    def _ask(self, event: m.RequestFleetBids) -> None:
        found = self._many(event, event.behind) if event.behind else None
        if found is not None:
            first = found.plans[0]
            bids = {first.region: m.Bid(first.job, first)}
            self.send(ids.QUEUE, m.FleetBids(event.batch, tuple(event.terms), bids, found))
            return
        offers = self._offers(event.ask, event.terms)
        paired = isinstance(event.ask.mode, Colocate)
        if not paired and all(offer.plan is None for offer in offers.values()):
            self._remember(event)
        told = {region: bid_to_external(offer) for region, offer in offers.items()}
        self.send(ids.QUEUE, m.FleetBids(event.batch, tuple(event.terms), told))

    def _many(self, event: m.RequestFleetBids, behind: m.Behind) -> PlanColumns | None:
        """Plans for the job and for some of those behind it; None if it has to be searched alone.

        Nothing is held or kept for any of them, so that each takes what is free.
        """
        index, weights = self.pool.index(), self.score.weights(event.ask)
        states = {region: self._placer(region).state for region in event.terms}
        kept = any(state.places for state in states.values())
        if kept or not many.may_place(index) or any(len(self.placers[r].holds) for r in states):
            return None
        kinds = (event.ask, *behind.kinds)
        fit = [
            self.score.weights(kind) == weights and many.applies(kind, weights) for kind in kinds
        ]
        count = next((n for n, kind in enumerate(behind.kind) if not fit[kind + 1]), None)
        jobs = (event.ask.job, *behind.jobs[:count])
        if not fit[0] or len(jobs) == 1:
            return None
        supply = many.Supply(behind.held_milli, behind.gpus)
        versions = {region: state.version for region, state in states.items()}
        known = [kind for kind, fits in zip(kinds, fit, strict=True) if fits]
        places = list(accumulate(fit, initial=0))
        of_ask = [0, *[places[kind + 1] for kind in behind.kind[:count]]]
        found = many.plans_of(index, known, jobs, of_ask, event.terms, supply, weights, versions)
        return found if len(found) else None

    def _offers(self, ask: PlacementRequest, terms: dict[str, RegionTerms]) -> dict[str, m.Bid]:
        """The best bid, or every region's reason. A place that is kept for the job goes first."""
        keepers = [r for r in terms if ask.job in self.placers[r].state.places]
        if keepers:
            kept = {r: self._placer(r).kept_offer(ask.in_region(terms[r])) for r in keepers}
            places = {r: offer for r, offer in kept.items() if offer is not None}
            if places:
                return places
        ask = anywhere(ask)
        return self._whole(ask, terms) if ask.more is None else self._sized(ask, terms)

    def _sized(self, ask: PlacementRequest, terms: dict[str, RegionTerms]) -> dict[str, m.Bid]:
        """The best bid for the most tasks of an elastic gang: smaller rather than without its data.

        O(log tasks) times `_whole`.
        """

        def find(
            question: PlacementRequest, there: dict[str, RegionTerms]
        ) -> dict[str, m.Bid] | None:
            offers = self._whole(question, there)
            return offers if any(o.plan is not None for o in offers.values()) else None

        assert ask.more is not None
        near = {r: its for r, its in terms.items() if not (its.data_bytes or its.data_s)}
        everything = find(with_tasks(ask, max(ask.more.most, least_of(ask))), terms)
        if everything is not None and all(r in near for r in everything):
            return everything
        best = largest(ask, lambda q: find(q, near), everything is None) if near else None
        return best or everything or self._whole(with_tasks(ask, least_of(ask)), terms)

    def _whole(self, ask: PlacementRequest, terms: dict[str, RegionTerms]) -> dict[str, m.Bid]:
        """The best bid for a gang of one size, or every region's reason."""
        by_band = isinstance(ask.mode, Preempt) and ask.mode.outranked is None
        if (by_band or isinstance(ask.mode, Free)) and compiled.applies(
            ask, self.score.weights(ask)
        ):
            return self._common(ask, terms) or self._refusals(ask, terms)
        found = self._without_gpus(ask, terms)
        if found:
            return found
        return best_of({r: self._placer(r).offer(ask.in_region(terms[r])) for r in terms})

    def _without_gpus(
        self, ask: PlacementRequest, terms: dict[str, RegionTerms]
    ) -> dict[str, m.Bid]:
        """The best plan for one task without GPUs; nothing if there is none, or it is not one.

        Reserved seats stay free. O(clusters + hosts of clusters that changed).
        """
        index, weights = self.pool.index(), self.score.weights(ask)
        if not without_gpus.applies(index, ask, weights):
            return {}
        costs = self._costs(index, terms, weights, ask.cluster)
        with self._beside(ask.held, terms):
            found = without_gpus.best(index, ask, weights, terms, costs)
            if found is None:
                return {}
            own = msgspec.structs.replace(ask, held=None).in_region(terms[found.region])
            search = self._placer(found.region).search(self.now, own)
            plan = search.plan_at(own, search.columns, found.seated, stranding=found.stranding)
        return {found.region: m.Bid(ask.job, plan)}

    def _beside(
        self, held: Reservation | None, terms: Mapping[str, RegionTerms]
    ) -> AbstractContextManager[None]:
        """For its duration the reserved seats are taken, if a region that is asked has them."""
        if held is None or held.region not in terms:
            return nullcontext()
        return kept_out(self.placers[held.region].columns, held)

    def _common(self, ask: PlacementRequest, terms: dict[str, RegionTerms]) -> dict[str, m.Bid]:
        """The best plan that the kernels find, if there is one; reserved seats stay free."""
        held = ask.held
        if held is None or held.region not in terms:
            return self._best(ask, terms)
        unheld = msgspec.structs.replace(ask, held=None)
        if not ask.preempt:
            with self._beside(held, terms):
                return self._best(unheld, terms)
        # Only the region's own search knows which attempts it may stop on reserved seats.
        others = {r: terms[r] for r in terms if r != held.region}
        offers = self._best(unheld, others) if others else {}
        search = self._placer(held.region).search(self.now, ask)
        plan = search.best(ask.in_region(terms[held.region]))
        if plan is not None:
            offers[held.region] = m.Bid(ask.job, plan)
        return best_of(offers)

    def _remember(self, event: m.RequestFleetBids) -> None:
        """Note what the placement class of this job lacks."""
        ask = event.ask
        needs, kept = self._needs(ask, event.terms), self._keeps(ask.held)
        self.blocked.block(event.placement_class, ask.models, needs, kept=kept)
        if not kept:
            self._lacks[event.placement_class, ask.models, ask.preempt] = needs, event.batch

    def refused_again(
        self, placement_class: int, models: tuple[int, ...] | None, since: int, *, stops: bool
    ) -> bool:
        """A class that was refused before is refused again for the same; False: it is not known.

        ``since``: the request that was refused, as an earlier one may be of another class that had
        the number. ``stops``: its jobs might have stopped others. O(1).
        """
        needs, batch = self._lacks.get((placement_class, models, stops), (None, -1))
        if needs is None or batch < since or self.pool.index() is not self._index:
            return False
        self.blocked.block(placement_class, models, needs)
        return True

    def free_milli(self, region: str) -> int | None:
        """GPUs of a region that nothing holds, in thousandths; None: not known.

        O(slots), or O(1) if nothing changed there.
        """
        placer = self.placers.get(region)
        if placer is None or len(placer.holds) or placer.state.places:
            return None
        known = self._free.get(region)
        if known is None or known[0] is not placer or known[1] != placer.state.version:
            free_milli = int(placer.columns.free_milli.clip(0).sum())
            known = self._free[region] = placer, placer.state.version, free_milli
        return known[2]

    def _needs(self, ask: PlacementRequest, terms: Mapping[str, RegionTerms]) -> Needs:
        """What has to be there, and where, for a gang to be placed."""
        tasks, choices = 0, list[compiled.Choice]()
        if ask.outranked is None and not ask.reserve and compiled.is_plain(ask):
            tasks = ask.groups[0].count
            choices = compiled.choices_in(self.pool.index(), ask)
        threshold = threshold_of(ask.band) if ask.preempt else FREE_ONLY
        required = ask.topology.required
        level = Level.CLUSTER if required is None else required
        return Needs(tasks, threshold, choices, self._where(ask, terms), level)

    def _keeps(self, held: Reservation | None) -> bool:
        """Whether seats of this process were kept from a job; notes which."""
        if held is None or held.region not in self.placers:
            return False
        if self._kept is None or self._kept.seats != held.seats:
            self.blocked.end_of_reservation()
            self._kept = held
        return True

    def _where(self, ask: PlacementRequest, terms: Mapping[str, RegionTerms]) -> Where:
        """The clusters of which a question was: of one, or of all in some regions."""
        index = self.pool.index()
        bits = index.bits_of(terms)
        if ask.cluster is None:
            return bits, ANY
        found = [n for region in terms for n in index.numbers_of(region, ask.cluster)]
        return bits, found[0] if len(found) == 1 else ANY

    def _check_blocked(self, event: m.CheckBlocked) -> None:
        """Name the blocked classes that more room in a region may help."""
        index = self.pool.index()
        if index is not self._index or event.clusters is None or event.region not in self.placers:
            self._index = index  # what its numbers meant is gone
            self.blocked, self._kept, self._lacks = BlockedIndex(), None, {}
            self.send(ids.QUEUE, m.Unblocked(None))
            return
        if event.freed:
            self.blocked.end_of_reservation()
            self._kept = None
        clusters = [n for name in event.clusters for n in index.numbers_of(event.region, name)]
        if clusters and len(self.blocked):
            helped = self.blocked.take_helped(index, clusters)
            helped += self._take_helped_beside(index, clusters)
            if helped:
                self.send(ids.QUEUE, m.Unblocked(tuple(dict.fromkeys(helped))))

    def _take_helped_beside(self, index: Index, clusters: list[int]) -> tuple[int, ...]:
        """Of the classes from which seats are kept, those that may fit beside these seats."""
        held = self._kept
        if held is None:
            return ()
        if not any(number in clusters for number in index.numbers_of(held.region, held.cluster)):
            return self.blocked.take_helped(index, clusters, kept=True)
        with kept_out(self.placers[held.region].columns, held):
            return self.blocked.take_helped(index, clusters, kept=True)

    def _placer(self, region: str) -> RegionalPlacer:
        placer = self.placers[region]
        placer.now = self.now
        return placer

    def _best(self, ask: PlacementRequest, terms: dict[str, RegionTerms]) -> dict[str, m.Bid]:
        """The best plan in all these regions, by one kernel call; nothing if there is none."""
        weights = self.score.weights(ask)
        index = self.pool.index()
        costs = self._costs(index, terms, weights, ask.cluster)
        spread = best_spread(index, ask, self.profile, weights, costs, self.now)
        if spread is None:
            return {}
        region = index.clusters[spread.cluster][0]
        own = ask.in_region(terms[region])
        plan = self._placer(region).search(self.now, own).plan_of(own, index, spread)
        return {region: m.Bid(ask.job, plan)}

    def _costs(
        self,
        index: Index,
        terms: Mapping[str, RegionTerms],
        weights: ScoreWeights,
        only: str | None,
    ) -> Floats:
        """What every plan in a cluster costs (C); counted anew where a region has other terms.

        Most often these are the terms of the job before, but for the region that took it.
        """
        known = self._known_costs
        if only is not None or index.slices is not None:
            return compiled.costs_of(index, terms, weights, self.profile.slices.price, only)
        if (
            known is None
            or known.index is not index
            or known.weights is not weights
            or known.terms.keys() != terms.keys()
        ):
            costs = compiled.costs_of(index, terms, weights)
        else:
            costs, before = known.costs, known.terms
            for region in [r for r, its in terms.items() if its is not before[r]]:
                first, last = index.spans.get(region, (0, 0))
                costs[first:last] = fixed_cost(terms[region], weights)
        self._known_costs = _KnownCosts(index, weights, terms, costs)
        return costs

    def _refusals(self, ask: PlacementRequest, terms: dict[str, RegionTerms]) -> dict[str, m.Bid]:
        """Every region's reason; where an attempt is too young to be stopped, until when."""
        until_s = self._until_s(ask, terms) if ask.preempt else {}
        reasons = self._reasons(ask)
        offers = {r: m.Bid(ask.job, None, reasons[r], until_s.get(r)) for r in terms}
        first = self._first_start(ask, terms, offers) if ask.reserve else None
        if first is not None:
            offers[first.region] = msgspec.structs.replace(offers[first.region], reservation=first)
        return offers

    def _until_s(self, ask: PlacementRequest, terms: Mapping[str, RegionTerms]) -> dict[str, float]:
        """By region, when an attempt is old enough to be stopped, where that could make room.

        O(attempts).
        """
        index = self.pool.index()
        bits = regions_with_room(index, self._needs(ask, terms))
        if not bits:
            return {}
        until_s = index.old_enough_at_s(ask.band, self.profile.min_runtime_s, self.now)
        return {r: at_s for r, at_s in until_s.items() if bits & index.bits_of((r,))}

    def _reasons(self, ask: PlacementRequest) -> dict[str, PendingReason]:
        """By region, why there is no plan; found once for all gangs alike. O(1) then."""
        index = self.pool.index()
        if self._reasons_of is not index or len(self._reasons_by) >= REASONS_KEPT:
            self._reasons_of, self._reasons_by = index, {}
        kind = hardware_key(ask)
        reasons = self._reasons_by.get(kind)
        if reasons is None:
            reasons = {r: pending_reason(placer.columns, ask) for r, placer in self.placers.items()}
            self._reasons_by[kind] = reasons
        return reasons

    def _first_start(
        self, ask: PlacementRequest, terms: dict[str, RegionTerms], offers: dict[str, m.Bid]
    ) -> Reservation | None:
        """Where the gang is expected to start first, of the regions that are full; ties by name."""
        full = PendingReason.INSUFFICIENT_CAPACITY
        regions = [r for r, offer in offers.items() if offer.reason is full]
        not_before_s = dict.fromkeys(regions, -math.inf)
        if all(self.placers[r].columns.watched for r in regions):
            default_s = self.profile.default_duration_s
            not_before_s = bounds_s(self.pool.index(), ask, regions, default_s, self.now)
        best: Reservation | None = None
        for at_s, region in sorted((at_s, r) for r, at_s in not_before_s.items()):
            if best is not None and (best.from_s, best.region) < (at_s, region):
                break
            found = self._placer(region).first_start(ask.in_region(terms[region]), at_s)
            if found is not None and (
                best is None or (found.from_s, found.region) < (best.from_s, best.region)
            ):
                best = found
        return best

    def snapshot(self) -> bytes:
        """Nothing: it has no state."""
        return b""

    def restore(self, blob: bytes) -> None:
        """Nothing to take up."""

    def next_wakeup_s(self) -> float | None:
        """Never."""
        return None

    handlers: ClassVar[dict[type[m.Message], Callable[..., Any]]] = {
        m.RequestFleetBids: _ask,
        m.CheckBlocked: _check_blocked,
    }


def best_of(offers: dict[str, m.Bid]) -> dict[str, m.Bid]:
    """The bid of least score, ties by region; all of them if none has a plan."""
    plans = {r: offer.plan for r, offer in offers.items() if offer.plan is not None}
    if not plans:
        return offers
    best = min(plans, key=lambda r: (plans[r].score, r))
    return {best: offers[best]}
