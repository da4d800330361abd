"""All regions of a process asked at once answer as each of them would alone."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.test_search_is_exhaustive import WEIGHTS, random_ask, random_region
from tests.support.build import profile
from tests.support.strategies import bounded
from topmast.fast.placement.desk import Desk, in_region
from topmast.fast.placement.index import Pool
from topmast.fast.placement.machine import RegionalPlacer
from topmast.model import messages as m
from topmast.model.fleet import RegionSpec
from topmast.model.job import Resources
from topmast.model.plan import Seat
from topmast.policies.weighted import Weighted

OPTIONS = profile(score=WEIGHTS)


def random_desk(rng: random.Random) -> Desk:
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
    return Desk(placers, pool, OPTIONS, Weighted(OPTIONS))


@bounded(400)
@given(st.integers(0, 2**32 - 1))
def test_one_call_for_all_regions_finds_the_best_of_theirs(seed: int) -> None:
    """The best score over the regions, ties by region; or every region's own reason."""
    rng = random.Random(seed)
    desk = random_desk(rng)
    ask = random_ask(rng, [h.name for p in desk.placers.values() for h in p.columns.hosts])
    terms = {
        name: m.RegionTerms(data_s=rng.choice((0.0, 60.0)), balance=rng.random())
        for name in desk.placers
    }
    (sent,) = desk.handle(m.AskFleet(1, ask, terms), 0.0).sends
    assert isinstance(sent.message, m.FleetOffered)
    alone = {name: desk.placers[name].offer(in_region(ask, terms[name])) for name in terms}
    plans = [offer.plan for offer in alone.values() if offer.plan is not None]
    if not plans:
        assert sent.message.offers == alone
        return
    best = min(plans, key=lambda plan: (plan.score, plan.region))
    (offer,) = sent.message.offers.values()
    assert offer.plan is not None
    assert offer.plan.score == pytest.approx(best.score, abs=1e-9)
    assert offer.plan == alone[offer.plan.region].plan
