"""All regions of a process asked at once answer as each of them would alone."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.properties.test_search_is_exhaustive import WEIGHTS, random_ask, random_region
from tests.support.build import profile
from tests.support.crowd import run_jobs
from tests.support.strategies import bounded
from topmast.fast.fleet_placer import FleetPlacer
from topmast.fast.region.inventory.index import Pool
from topmast.fast.region.machine import RegionalPlacer
from topmast.model import messages as m
from topmast.model.fleet import RegionSpec
from topmast.model.job import Resources
from topmast.model.plan import (
    FREE,
    GroupRequest,
    PlacementRequest,
    Preempt,
    RegionTerms,
    Reservation,
    Seat,
)
from topmast.policies.weighted import Weighted

OPTIONS = profile(score=WEIGHTS)


def random_fleet_placer(rng: random.Random) -> FleetPlacer:
    """Some regions, each with GPUs in use."""
    pool, placers = Pool(), {}
    for name in sorted(rng.sample(["east", "north", "south", "west"], rng.randint(1, 4))):
        placer = RegionalPlacer(name, OPTIONS, Weighted(OPTIONS), pool)
        spec = random_region(rng)
        placer.handle(m.ConfigureRegion(RegionSpec(name, spec.clusters)), 0.0)
        placers[name] = placer
        if rng.random() < 0.5:
            pool.index()  # what is taken now is taken from the index as well
        for host in placer.columns.hosts:
            taken = tuple(slot for slot in range(host.gpus) if rng.random() < 0.5)
            placer.columns.take([Seat("g", 0, host.name, taken)], {"g": Resources()})
    return FleetPlacer(placers, pool, OPTIONS, Weighted(OPTIONS))


@bounded(400)
@given(st.integers(0, 2**32 - 1))
def test_one_call_for_all_regions_finds_the_best_of_theirs(seed: int) -> None:
    """The best score over the regions, ties by region; or every region's own reason.

    Also of the requests after it, for which some regions, or other regions, have other terms.
    """
    rng = random.Random(seed)
    fleet_placer = random_fleet_placer(rng)
    names = list(fleet_placer.placers)
    terms: dict[str, RegionTerms] = {}
    for _ in range(3):
        asked = (
            names if rng.random() < 0.5 else sorted(rng.sample(names, rng.randint(1, len(names))))
        )
        changed = {name for name in asked if name not in terms or rng.random() < 0.5}
        terms = {name: _any_terms(rng) if name in changed else terms[name] for name in asked}
        ask = random_ask(rng, _hosts(fleet_placer))
        _finds_the_best(fleet_placer, ask, terms)


def _any_terms(rng: random.Random) -> RegionTerms:
    return RegionTerms(data_s=rng.choice((0.0, 60.0)), balance=rng.random())


def _finds_the_best(
    fleet_placer: FleetPlacer, ask: PlacementRequest, terms: dict[str, RegionTerms]
) -> None:
    (sent,) = fleet_placer.handle(m.RequestFleetBids(1, ask, terms), 0.0).sends
    assert isinstance(sent.message, m.FleetBids)
    alone = {name: fleet_placer.placers[name].offer(ask.in_region(terms[name])) for name in terms}
    plans = [offer.plan for offer in alone.values() if offer.plan is not None]
    if not plans:
        assert sent.message.offers == alone
        return
    best = min(plans, key=lambda plan: (plan.score, plan.region))
    (offer,) = sent.message.offers.values()
    assert offer.plan is not None
    assert offer.plan.score == pytest.approx(best.score, abs=1e-9)
    assert offer.plan == alone[offer.plan.region].plan


def crowded_fleet_placer(rng: random.Random) -> FleetPlacer:
    """Some regions with attempts that hold GPUs, shares of them, and CPUs; some are expected to end soon."""
    fleet_placer = random_fleet_placer(rng)
    for placer in fleet_placer.placers.values():
        placer.state.allocations.update(run_jobs(rng, placer.columns))
        placer.columns.allocations = placer.state.allocations
        for attempt in placer.state.allocations.values():
            attempt.expected_s = rng.choice((None, 10.0, 600.0, 2_000.0))
            placer.columns.note(attempt)
    return fleet_placer


def reserved(rng: random.Random, fleet_placer: FleetPlacer) -> Reservation:
    """Some slots of one region, free or not, which are kept for another job."""
    placer = fleet_placer.placers[rng.choice(sorted(fleet_placer.placers))]
    hosts = rng.sample(placer.columns.hosts, rng.randint(1, min(3, len(placer.columns.hosts))))
    seats = tuple(
        Seat("g", rank, h.name, tuple(s for s in range(h.gpus) if rng.random() < 0.5))
        for rank, h in enumerate(hosts)
    )
    cluster = placer.columns.cluster_of[placer.columns.index[hosts[0].name]]
    group = GroupRequest("g", len(seats), Resources(cpus=rng.choice((0.0, 1.0))))
    return Reservation("j0", placer.region, cluster, 5_000.0, seats, (group,))


def _hosts(fleet_placer: FleetPlacer) -> list[str]:
    return [h.name for p in fleet_placer.placers.values() for h in p.columns.hosts]


@bounded(400)
@given(st.integers(0, 2**32 - 1))
def test_reserved_seats_are_left_alone_as_each_region_would(seed: int) -> None:
    """With seats reserved the one call finds the best of what the regions find, and changes no column."""
    rng = random.Random(seed)
    fleet_placer = crowded_fleet_placer(rng)
    ask = msgspec.structs.replace(
        random_ask(rng, _hosts(fleet_placer)),
        held=reserved(rng, fleet_placer),
        mode=Preempt() if rng.random() < 0.4 else FREE,
    )
    terms = {name: RegionTerms(balance=rng.random()) for name in fleet_placer.placers}
    index = fleet_placer.pool.index()
    before = [column.copy() for column in (*index.arrays, index.holders.held.cleared)]
    (sent,) = fleet_placer.handle(m.RequestFleetBids(1, ask, terms), 0.0).sends
    for column, was in zip((*index.arrays, index.holders.held.cleared), before, strict=True):
        assert (column == was).all()
    assert isinstance(sent.message, m.FleetBids)
    alone = {name: fleet_placer.placers[name].offer(ask.in_region(terms[name])) for name in terms}
    scores = [offer.plan.score for offer in alone.values() if offer.plan is not None]
    found = [o.plan.score for o in sent.message.offers.values() if o.plan is not None]
    assert (not found) == (not scores)
    if found:
        assert found == [pytest.approx(min(scores), abs=1e-9)]


@bounded(400)
@given(st.integers(0, 2**32 - 1))
def test_the_first_start_is_the_earliest_of_all_regions(seed: int) -> None:
    """No region is left out that would have a place before, and the place is the one that it would tell."""
    rng = random.Random(seed)
    fleet_placer = crowded_fleet_placer(rng)
    ask = _bigger(rng, random_ask(rng, _hosts(fleet_placer)))
    terms = {name: RegionTerms(balance=rng.random()) for name in fleet_placer.placers}
    now = rng.choice((0.0, 1_000.0, 100_000.0))
    (sent,) = fleet_placer.handle(m.RequestFleetBids(1, ask, terms), now).sends
    assert isinstance(sent.message, m.FleetBids)
    told = [o.reservation for o in sent.message.offers.values() if o.reservation is not None]
    if any(offer.plan is not None for offer in sent.message.offers.values()):
        assert not told
        return
    for placer in fleet_placer.placers.values():
        placer.now = now
    alone = [
        fleet_placer.placers[name].offer(ask.in_region(terms[name])).reservation for name in terms
    ]
    there = [reservation for reservation in alone if reservation is not None]
    want = min(there, key=lambda r: (r.from_s, r.region), default=None)
    event("none" if want is None else "some")
    assert told == ([] if want is None else [want])


def _bigger(rng: random.Random, ask: PlacementRequest) -> PlacementRequest:
    group = ask.groups[0]
    groups = (GroupRequest(group.name, group.count + rng.randint(0, 4), group.resources),)
    return msgspec.structs.replace(ask, groups=groups, reserve=True)
