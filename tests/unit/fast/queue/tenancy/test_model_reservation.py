"""GPU models that are kept for those who use them: who waits for them, and for how long."""

from __future__ import annotations

import pytest

from tests.support.build import cluster, fleet, job, needs, profile
from tests.support.world import World
from topmast.policies.options import Profile, ReserveOptions

FLEET = fleet(
    cluster("east-1", hosts=1, gpus=8, model="V100"), cluster("west-1", hosts=1, gpus=2, model="T4")
)
EITHER = needs(1, "V100", "T4")
ANY = needs(1, None)


def _options(patience_s: float | None) -> Profile:
    reserve = ReserveOptions(
        models=("V100",), power={"T4": 0.5}, least_gpus=4.0, patience_s=patience_s, price=1.0
    )
    return profile(order="submission", scoring="efficiency", reserve=reserve)


def _world(patience_s: float | None = 600.0) -> World:
    return World(FLEET, _options(patience_s))


def _models(world: World) -> list[str | None]:
    return [record.model for record in world.jobs.values()]


@pytest.mark.parametrize("resources", [EITHER, ANY], ids=["a list", "any model"])
def test_small_jobs_wait_while_high_end_gpus_are_free(resources: object) -> None:
    """Two take the lesser GPUs; the third waits, and takes a V100 when its patience is over."""
    world = _world()
    world.submit(*(job(f"n{i}", resources=resources) for i in range(3)))
    world.settle()
    assert _models(world) == ["T4", "T4", None]
    world.advance(599.0)
    assert _models(world) == ["T4", "T4", None]
    world.advance(1.0)
    assert _models(world) == ["T4", "T4", "V100"]


@pytest.mark.parametrize(("gpus", "count"), [(3, 1), (1, 3)], ids=["a large task", "a gang"])
def test_who_fits_on_no_lesser_model_waits_as_long(gpus: int, count: int) -> None:
    """No host, or no cluster, of the lesser model could hold it: the V100s are kept from it for a while, not for ever."""
    world = _world()
    (name,) = world.submit(job("wide", count=count, resources=needs(gpus, "V100", "T4")))
    world.advance(599.0)
    assert world.reason(name) == "InsufficientCapacity"
    world.advance(1.0)
    assert _models(world) == ["V100"]


def test_without_patience_they_wait_for_good() -> None:
    """They get a lesser GPU when one comes free."""
    world = _world(None)
    world.submit(*(job(f"n{i}", resources=EITHER) for i in range(3)))
    world.advance(1e6)
    assert _models(world) == ["T4", "T4", None]
    world.finish("j1")
    world.settle()
    assert world.jobs["j3"].model == "T4"


def test_who_uses_them_does_not_wait() -> None:
    """A gang that is large, and a job that asks for nothing else."""
    world = _world()
    world.submit(job("gang", count=4, resources=EITHER), job("asks", resources=needs(1, "V100")))
    world.settle()
    assert _models(world) == ["V100", "V100"]


def test_all_is_as_ever_where_nothing_is_reserved() -> None:
    """Who finds no lesser GPU takes a V100 at once."""
    world = World(FLEET, profile(order="submission"))
    world.submit(*(job(f"n{i}", resources=EITHER) for i in range(3)))
    world.settle()
    assert _models(world) == ["T4", "T4", "V100"]


def test_a_restart_changes_nothing() -> None:
    """The patience is counted from the submission."""
    world = _world()
    world.submit(*(job(f"n{i}", resources=EITHER) for i in range(3)))
    world.advance(300.0)
    world.restart()
    world.settle()
    assert _models(world) == ["T4", "T4", None]
    world.advance(301.0)
    assert _models(world) == ["T4", "T4", "V100"]


@pytest.mark.timeout(60)
def test_patience_is_over_at_the_time_that_was_told() -> None:
    """Even where that time less the submission is rounded below the patience: the job was tried again and again then."""
    submit_s, patience_s = 6517.135067, 1_800.0
    assert (submit_s + patience_s) - submit_s < patience_s
    world = _world(patience_s)
    world.advance(submit_s)
    world.submit(*(job(f"n{i}", resources=EITHER) for i in range(3)))
    world.settle()
    assert _models(world) == ["T4", "T4", None]
    world.advance(submit_s + patience_s - world.now)
    assert _models(world) == ["T4", "T4", "V100"]
