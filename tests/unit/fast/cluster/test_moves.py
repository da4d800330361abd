"""Moves of gangs that take turns: to one beside whom they may go well, and back where a move was bad."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from tests.support.build import cluster, fleet, job, profile
from tests.support.world import World
from topmast.model.engines import PROCESSES, Capability
from topmast.model.states import HostState
from topmast.policies.options import Preemption, Profile, RebalanceOptions, SliceOptions

QUANTUM_S = 60.0
JOINS: dict[str, Any] = {"join": True, "migrate_after_s": 60.0, "join_retry_s": 120.0}
MOVES: dict[str, Any] = {"migrate": True, "migrate_after_s": 60.0}
WELL, BADLY = 0.9, 0.3
"""The speed of two beside one another, over that alone."""


def world_of(hosts: int, options: dict[str, Any], **more: Any) -> World:
    """One cluster of hosts with one GPU each."""
    return World(fleet(cluster("east-a", hosts, 1, **more)), profile_of(options))


def profile_of(options: dict[str, Any]) -> Profile:
    """Jobs take turns, and move as these options say."""
    return profile(
        slices=SliceOptions(layers=3, quantum_s=QUANTUM_S), order="submission",
        preemption=Preemption.NONE, pack="greedy", rebalance="introspective",
        rebalancing=RebalanceOptions(**options),
    )  # fmt: skip


def going(world: World) -> list[str]:
    """Who has processes that do not stand still."""
    return sorted(world.engines["east-a"].going())


def submit(world: World, count: int, **more: Any) -> list[str]:
    """So many more jobs of one GPU."""
    return [world.submit(job(f"job-{len(world.jobs)}", 1, **more))[0] for _ in range(count)]


def causes(world: World) -> list[str]:
    """Why jobs were moved, in order."""
    return [r.text for r in world.journal.rows if r.text.startswith("preempting: moved")]


def trials(world: World) -> int:
    """How many trials there were."""
    return sum("on trial" in r.text for r in world.journal.rows) // 2


def get_on(world: World, *enemies: frozenset[str]) -> None:
    """Who is beside one another goes well, but for these pairs."""

    def speed(name: str, others: Sequence[str]) -> float:
        hosts = world.jobs[name].hosts
        beside = [other for other in others if world.jobs[other].hosts == hosts]
        slow = any(frozenset((name, other)) in enemies for other in beside)
        return 10.0 * (BADLY if slow else WELL if beside else 1.0)

    world.engines["east-a"].speed = speed


def check_rebuilt(world: World) -> None:
    """A process that dies now is followed by one that knows the same."""
    rebuilt = world.rebuilt()
    assert {a: x.snapshot() for a, x in rebuilt.addressed()} == world.blobs()


def test_who_was_tried_in_vain_joins_another() -> None:
    """Two of three share a GPU and get in each other's way: one goes to the third, and all run from then on."""
    world = world_of(2, JOINS)
    jobs = submit(world, 3)
    get_on(world, frozenset((jobs[0], jobs[2])))
    world.advance(20 * QUANTUM_S)
    assert going(world) == jobs
    assert sum(world.jobs[name].migrations for name in jobs) == 1
    assert any(f"moved to the GPUs of {jobs[1]}" in text for text in causes(world))
    check_rebuilt(world)


@pytest.mark.parametrize("secrets", [{}, {"TOKEN": "env:TOKEN"}], ids=["without", "with secrets"])
@pytest.mark.parametrize("options", [JOINS, MOVES], ids=["to join", "to idle GPUs"])
def test_jobs_move_only_to_clusters_that_can_run_them(
    options: dict[str, Any], secrets: dict[str, str]
) -> None:
    """Two share a GPU in vain; the other cluster gives tasks no variables of their hosts."""
    able = tuple(sorted(PROCESSES | {Capability.ENV}))
    clusters = cluster("east-a", 1, 1), replace(cluster("east-b", 1, 1), capabilities=able)
    world = World(fleet(*clusters), profile_of(options))
    if options is JOINS:
        submit(world, 1)
    else:
        world.set_host("east-a-0", HostState.CORDONED)
    two = submit(world, 2, secrets=secrets or UNSET)
    for engine in world.engines.values():
        engine.speed = lambda name, others: 10.0 * (BADLY if others else 1.0)
    world.advance(QUANTUM_S)
    world.set_host("east-a-0", HostState.HEALTHY)
    world.advance(20 * QUANTUM_S)
    moved = sum(world.jobs[name].migrations for name in two)
    assert bool(moved) is not bool(secrets)


def test_nobody_joins_where_that_is_switched_off() -> None:
    """The two take turns for good, and the third has its GPU for itself."""
    world = world_of(2, {**JOINS, "join": False})
    jobs = submit(world, 3)
    get_on(world, frozenset((jobs[0], jobs[2])))
    world.advance(20 * QUANTUM_S)
    assert len(going(world)) == 2
    assert not causes(world)


def test_nobody_leaves_one_with_whom_it_goes_well() -> None:
    """Two of three stay together, though there is another."""
    world = world_of(2, JOINS)
    jobs = submit(world, 3)
    get_on(world)
    world.advance(20 * QUANTUM_S)
    assert going(world) == jobs
    assert not causes(world)


def test_two_who_parted_are_not_brought_together_again() -> None:
    """All get in each other's way: each pair is tried once, and then they take turns where they are."""
    world = world_of(2, {**JOINS, "retry_s": 36_000.0})
    jobs = submit(world, 3)
    pairs = [frozenset((a, b)) for a in jobs for b in jobs if a < b]
    get_on(world, *pairs)
    world.advance(120 * QUANTUM_S)
    assert 2 <= trials(world) <= 3
    assert len(causes(world)) <= 2
    check_rebuilt(world)


@pytest.mark.parametrize(("work", "most"), [("same", 1), ("", 3)])
def test_of_kinds_that_do_not_go_well_one_pair_is_tried(work: str, most: int) -> None:
    """Three of a kind on one GPU: what the first pair was measured to do is expected of the others."""
    world = world_of(1, {**JOINS, "retry_s": 36_000.0})
    jobs = submit(world, 3, **({"work": work} if work else {}))
    get_on(world, *[frozenset((a, b)) for a in jobs for b in jobs if a < b])
    world.advance(60 * QUANTUM_S)
    assert trials(world) == most


def slow_host(world: World, name: str, speed: float) -> None:
    """Whoever runs on this host goes so fast, over what it does on others."""
    world.engines["east-a"].speed = lambda job_id, others: (
        10.0 * (speed if world.jobs[job_id].hosts == (name,) else 1.0)
    )


@pytest.mark.parametrize(
    ("speed", "stays"), [(0.2, False), (0.45, False), (0.55, True), (1.0, True)]
)
def test_a_move_is_taken_back_if_the_job_does_less(speed: float, stays: bool) -> None:
    """Half of the time of a GPU against all of one that is slower: the job's own steps say what is better."""
    world = world_of(2, {**MOVES, "gain": 9.0})
    slow_host(world, "east-a-1", speed)
    world.set_host("east-a-1", HostState.CORDONED)
    jobs = submit(world, 2)
    world.advance(10 * QUANTUM_S)
    world.set_host("east-a-1", HostState.HEALTHY)
    world.advance(10 * QUANTUM_S)
    hosts = sorted(world.jobs[name].hosts for name in jobs)
    assert (hosts == [("east-a-0",), ("east-a-1",)]) is stays
    back = [text for text in causes(world) if "moved back" in text]
    assert bool(back) is not stays
    check_rebuilt(world)
    seen = len(causes(world))
    world.advance(300 * QUANTUM_S)
    assert len(causes(world)) <= seen + (0 if stays else 2), "each is moved there once at most"


def test_there_is_no_way_back_to_where_more_have_come() -> None:
    """It stays where it is slow if its place is more crowded by now than it was."""
    world = world_of(2, {**MOVES, "gain": 9.0})
    slow_host(world, "east-a-1", 0.2)
    world.set_host("east-a-1", HostState.CORDONED)
    jobs = submit(world, 2)
    world.advance(10 * QUANTUM_S)
    world.set_host("east-a-1", HostState.HEALTHY)
    world.set_host("east-a-0", HostState.CORDONED)
    world.advance(10 * QUANTUM_S)
    assert causes(world)
    assert not any("moved back" in text for text in causes(world))
    assert sum(world.jobs[name].migrations for name in jobs) <= 1
