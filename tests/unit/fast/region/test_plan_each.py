"""Places for many jobs in columns: what a region says of them, and for which jobs it makes none."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.build import ask, cluster, fleet, job
from tests.support.world import World
from topmast.fast.region.search.scoring import stranded_table
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.job import Band
from topmast.model.plan import PlacementRequest
from topmast.policies.options import ScoreWeights


def answer(world: World, *kinds: PlacementRequest) -> m.RegionPlans:
    """To a question for one place of each kind."""
    question = m.RequestRegionPlans(1, tuple([k.kind() for k in kinds]), tuple(range(len(kinds))))
    decision = world.placer("east").handle(question, world.now)
    (send,) = decision.sends
    assert send.to == ids.QUEUE
    assert isinstance(send.message, m.RegionPlans)
    return send.message


def test_it_says_what_is_free_of_hosts_before_any_place_is_taken() -> None:
    """And what GPUs cost that are left free: from that follows what a place strands."""
    world = World(fleet(cluster("east-1", hosts=1, gpus=8)))
    world.submit(job(gpus=3))
    told = answer(world, ask(job(gpus=1)), ask(job(gpus=2)))
    assert told.plans
    assert told.free == (5, 5)
    price = world.queue.profile.score.fragmentation
    table = stranded_table(ask(job(gpus=1)).mix, 9)
    assert told.stranded == pytest.approx(price * table)
    changes = [told.stranded[4] - told.stranded[5], told.stranded[2] - told.stranded[4]]
    assert told.plans.fragmentation == pytest.approx(changes)


class ByBand:
    """A score that asks more of jobs that must run soon."""

    def weights(self, ask: PlacementRequest) -> ScoreWeights:
        """Prices by the band."""
        weights = ScoreWeights()
        return replace(weights, balance=9.0) if ask.band is Band.CRITICAL else weights


@pytest.mark.parametrize("score", [ByBand(), None], ids=["by band", "for all alike"])
def test_where_bands_pay_differently_no_place_stands_for_all_of_them(score: Any) -> None:
    """A request is for jobs of every band: such a region is asked about one job after the other."""
    world = World(fleet(cluster("east-1", hosts=1, gpus=8)))
    if score is not None:
        world.placer("east").score = score
    assert answer(world, ask(job(gpus=1))).able is (score is None)
