"""The promises of far engines under every fault that real schedulers showed, in virtual time."""

import pytest

from tests.support.fakelauncher import Broken, World

STORIES = 600
BATCH = 100


@pytest.mark.parametrize("first", range(0, STORIES, BATCH))
def test_starts_once_and_ends_truly(first: int) -> None:
    """One body at most, no end while it lives, and none after; what was taken starts or ends."""
    for seed in range(first, first + BATCH):
        try:
            World(seed).run()
        except Broken as broken:
            raise AssertionError(f"seed {seed}: {broken}") from broken


def test_the_stories_are_not_tame() -> None:
    """Most ranks run, many are lost or evicted, and the engine's process crashes in many stories."""
    worlds = [World(seed).run() for seed in range(100)]
    ranks = sum(len(gang.seats) for world in worlds for gang in world.gangs.values())
    assert sum(len(world.bodies) for world in worlds) > ranks / 2
    assert sum(len(world.told) - len(world.bodies) for world in worlds) > ranks / 10
    assert sum(world.life > 1 for world in worlds) > 30
