"""The promises of far engines under every fault that real schedulers showed, in virtual time."""

import pytest

from tests.support.build import cluster
from tests.support.fakelauncher import HOSTS, World, tell
from topmast.fast.cluster.machine import ClusterManager
from topmast.model import messages as m
from topmast.model.states import Outcome

STORIES = 600
BATCH = 100


@pytest.mark.parametrize("first", range(0, STORIES, BATCH))
def test_starts_once_and_ends_truly(first: int) -> None:
    """One body at most, no end while it lives, and none after; what was taken starts or ends."""
    tell(range(first, first + BATCH))


def test_the_stories_are_not_tame() -> None:
    """Most ranks run, many are lost or evicted, the engine's process crashes, hosts are unequal."""
    worlds = [World(seed).run() for seed in range(100)]
    ranks = sum(len(gang.seats) for world in worlds for gang in world.gangs.values())
    assert sum(len(world.bodies) for world in worlds) > ranks / 2
    assert sum(len(world.told) - len(world.bodies) for world in worlds) > ranks / 10
    assert sum(world.life > 1 for world in worlds) > 30
    assert sum(len(unequal_parts(world)) > 0 for world in worlds) > 5


def test_names_that_others_gave_first_take_no_start() -> None:
    """What is ended, waits or runs under the name of a part is neither its start nor its end."""
    for seed in range(100):
        world = World(seed)
        world.rates = dict.fromkeys(world.rates, 0.0) | {"another has the name": 1.0}
        world.holds = True
        gang = world.gang("j0", HOSTS)
        world.start(gang)
        world.run_until(60.0)
        assert any(entry.foreign for entry in world.entries), f"seed {seed}"
        assert sorted(world.started) == [("j0", 1, 0), ("j0", 1, 1)], f"seed {seed}: {world.told}"


def unequal_parts(world: World) -> list[str]:
    """The further parts of gangs of a scheduler that takes many hosts: a gang there needs several."""
    names = {entry.name for entry in world.entries} if world.many_hosts else set()
    return sorted(name for name in names if not name.endswith("-0"))


def test_a_gang_that_was_evicted_does_not_count_as_failed() -> None:
    """Its peers give up at once, and home orders a stop before the eviction is told."""
    late = 0
    for seed in range(100):
        world = World(seed)
        world.rates = dict.fromkeys(world.rates, 0.0)
        world.rates |= {"peers of what ended give up": 1.0, "message is lost": 0.2}
        world.many_hosts = False
        gang = evicted_gang(world)
        if gang is None:
            continue
        ended, first = outcome_of(world, gang)
        late += isinstance(first, m.TaskExited)
        told = f"seed {seed}: {ended}"
        assert (ended.outcome, ended.evicted) == (Outcome.PREEMPTED, True), told
    assert late > 30, "the race is run"


def evicted_gang(world: World) -> m.StartGang | None:
    """Run a gang on two hosts, and evict it from one of them; peers see that at once.

    None: not all of it ran then.
    """
    gang = world.gang("j0", HOSTS)
    world.start(gang)

    world.run_until(20.0)
    if sum(body.alive for body in world.bodies.values()) < len(HOSTS):
        return None
    (runner,) = world.dice.choice(world.entries).runners
    runner.entry.evicted = True
    runner.signal(10.0)
    (rank,) = runner.bodies
    world.shake(("j0", 1, rank))
    world.run_until(100.0)
    return gang


def outcome_of(world: World, gang: m.StartGang) -> tuple[m.AttemptEnded, m.Message]:
    """What a cluster manager makes of the news, in their order; and the first end that was bad."""
    manager = ClusterManager("east-1")
    manager.handle(m.ConfigureCluster("east", cluster("east-1")), 0.0)
    launch = m.LaunchGang(gang.job, gang.epoch, gang.spec, "east", "east-1", gang.seats, None)
    manager.handle(launch, 0.0)
    news = [n for n in world.news if not isinstance(n, m.HostUp)]
    sends = [send for one in news for send in manager.handle(one, 1.0).sends]
    (ended,) = [send.message for send in sends if isinstance(send.message, m.AttemptEnded)]
    bad = [n for n in news if isinstance(n, m.TaskExited | m.TaskEvicted | m.TaskLost)]
    return ended, next(n for n in bad if not isinstance(n, m.TaskExited) or n.code != 0)
