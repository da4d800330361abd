"""Elastic gangs that take turns: larger onto GPUs that nobody has in any layer, smaller so that all have their own."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from tests.support import invariants
from tests.support.build import cluster, elastic, fleet, job, profile
from tests.support.world import World
from topmast.fast.region.timesharing.rebalancer import SharingRebalancer
from topmast.model import messages as m
from topmast.model.fleet import Fleet
from topmast.model.job import JobSpec
from topmast.model.states import HostState, JobState
from topmast.policies.options import ElasticOptions, Preemption, RebalanceOptions, SliceOptions
from topmast.service.explain import explain_job

QUANTUM_S, SETTLE_S, COST_S = 60.0, 300.0, 30.0
BOTH = ElasticOptions(grow=True, shrink=True, every_s=60.0, settle_s=SETTLE_S, gain=1.0)
SHRINKS = ElasticOptions(shrink=True, every_s=60.0, settle_s=SETTLE_S, gain=1.0)
STAYS_IN_TURNS: dict[str, Any] = {"pack": "none"}
LONG_S = 20 * SETTLE_S


def world_of(where: Fleet | None = None, layers: int = 3, **options: Any) -> World:
    """Two hosts of four GPUs, whose gangs take turns."""
    options = {
        "elastic": BOTH, "preemption": Preemption.NONE, "rebalance": "introspective",
        "restart_cost_s": COST_S, **options,
    }  # fmt: skip
    slices = SliceOptions(layers=layers, quantum_s=QUANTUM_S)
    chosen = profile(slices=slices, order="submission", **options)
    return World(where or fleet(cluster("east-a", hosts=2, gpus=4)), chosen)


def flexible(count: int, fewest: int, most: int, **more: Any) -> JobSpec:
    """A gang of tasks of one GPU each."""
    return elastic(job("flexible", gpus=1, count=count, **more), fewest, most)


def rigid(gpus: int, **more: Any) -> JobSpec:
    """A job of one task."""
    return job("rigid", gpus=gpus, **more)


def tasks(world: World, *names: str) -> tuple[int, ...]:
    """How many tasks each has."""
    plans = [world.jobs[name].plan for name in names]
    return tuple(0 if plan is None else len(plan.seats) for plan in plans)


def slots(world: World, name: str) -> set[tuple[str, int]]:
    """The GPUs of a job."""
    plan = world.jobs[name].plan
    return set() if plan is None else {(s.host, slot) for s in plan.seats for slot in s.slots}


def causes(world: World, word: str) -> list[str]:
    """Why attempts were told to stop, in order, of those who were told this."""
    told = [row.text for row in world.journal.rows if row.text.startswith("preempting: ")]
    return [text for text in told if word in text]


# --- growing --------------------------------------------------------------------------------------------


@dataclass
class Grows:
    """Who is there in what order, and how many tasks the first has after a long time."""

    story: str
    jobs: tuple[JobSpec, ...]
    want: int
    more: dict[str, Any] = field(default_factory=dict)


GROWS = [
    Grows("onto all idle GPUs, as far as it may", (flexible(2, 1, 6),), 6),
    Grows("no further than there are GPUs that nobody has", (flexible(2, 1, 8), rigid(4)), 4),
    Grows("not over others, though layers are free", (flexible(4, 1, 8), rigid(4)), 4),
    Grows("not at all without leave", (flexible(2, 1, 6),), 2, {"elastic": SHRINKS}),
    Grows("not if nobody judges", (flexible(2, 1, 6),), 2, {"rebalance": "none"}),
    Grows("not if it may not be stopped", (flexible(2, 1, 6, preemptible=False),), 2),
    Grows("not where that saves less than the restart", (flexible(2, 1, 6),), 2,
          {"restart_cost_s": 4_000.0}),
    Grows("not where more tasks are no faster", (flexible(2, 1, 6),), 2,
          {"elastic": ElasticOptions(grow=True, every_s=60.0, settle_s=SETTLE_S, efficiency=0.5)}),
    Grows("to the largest size of whole tasks",
          (elastic(job("wide", gpus=2, count=1), 1, 3), rigid(3)), 2),
]  # fmt: skip


@pytest.mark.parametrize("case", GROWS, ids=lambda case: case.story)
def test_it_grows_onto_gpus_that_nobody_has(case: Grows) -> None:
    """Idle is what no layer has; nobody is made to take turns by another's growth."""
    world = world_of(**case.more)
    names = world.submit(*case.jobs)
    world.advance(LONG_S)
    assert tasks(world, names[0]) == (case.want,)
    taken = [slots(world, name) for name in names]
    assert sum(map(len, taken)) == len(set.union(*taken)), "everybody has GPUs of his own"
    assert {world.state(name) for name in names} == {JobState.RUNNING}
    invariants.check_rest(world)
    invariants.check_rebuilds(world)


def test_a_size_is_kept_for_a_while() -> None:
    """It does not grow before its size has settled, and what it has run is the guess of what it will."""
    world = world_of()
    (name,) = world.submit(flexible(2, 1, 6))
    world.advance(SETTLE_S - 1)
    assert tasks(world, name) == (2,)
    world.advance(BOTH.every_s + 1)
    assert tasks(world, name) == (6,)
    assert causes(world, "grows") == ["preempting: grows from 2 to 6 tasks"]
    assert world.jobs[name].resizes == 1


def test_who_shares_does_not_grow() -> None:
    """Another lies over it: it goes on with what it has, though two whole hosts are idle."""
    only = ElasticOptions(grow=True, every_s=60.0, settle_s=SETTLE_S, gain=1.0)
    world = world_of(where=fleet(cluster("east-a", hosts=3, gpus=4)), elastic=only)
    for host in ("east-a-1", "east-a-2"):
        world.set_host(host, HostState.CORDONED)
    name, _ = world.submit(flexible(4, 4, 8), rigid(4))
    for host in ("east-a-1", "east-a-2"):
        world.set_host(host, HostState.HEALTHY)
    world.advance(3 * SETTLE_S)
    assert tasks(world, name) == (4,)


def test_idle_gpus_are_left_to_those_who_share() -> None:
    """Two take turns and are too young to be moved: a third does not grow onto the GPUs to which one of them will go."""
    moves = RebalanceOptions(migrate=True, migrate_after_s=3 * SETTLE_S, join=True)
    where = fleet(cluster("east-a", hosts=3, gpus=4))
    world = world_of(where=where, rebalancing=moves)
    world.set_host("east-a-2", HostState.CORDONED)
    name, first = world.submit(flexible(4, 4, 8), rigid(4))
    (host,) = world.jobs[name].hosts
    world.set_host(host, HostState.CORDONED)
    (second,) = world.submit(rigid(4))
    for other in (host, "east-a-2"):
        world.set_host(other, HostState.HEALTHY)
    assert slots(world, first) == slots(world, second)
    world.advance(2 * SETTLE_S)
    assert tasks(world, name) == (4,), "it could have had eight"
    world.advance(2 * SETTLE_S)
    held = [slots(world, one) for one in (name, first, second)]
    assert sum(map(len, held)) == len(set.union(*held)) == 12


# --- giving way -----------------------------------------------------------------------------------------


@dataclass
class Gives:
    """Who has all GPUs, who comes, the sizes afterwards, and whether all have GPUs of their own then."""

    story: str
    first: JobSpec
    comes: tuple[JobSpec, ...]
    want: int
    own: bool
    more: dict[str, Any] = field(default_factory=dict)


GIVES = [
    Gives("what it grew onto", flexible(4, 4, 8), (rigid(2),), 6, own=True),
    Gives("to several", flexible(4, 4, 8), (rigid(2), rigid(2)), 4, own=True),
    Gives("not if less than it asked for were left", flexible(4, 1, 8), (rigid(4), rigid(3)),
          8, own=False),
    Gives("what leaves it no less than its turns", flexible(8, 2, 8), (rigid(4),), 4, own=True),
    Gives("not below its fewest", flexible(8, 6, 8), (rigid(4),), 8, own=False),
    Gives("not to one who wants all GPUs", flexible(4, 2, 8), (job("two", gpus=4, count=2),), 8,
          own=False),
    Gives("not without leave", flexible(4, 2, 8), (rigid(2),), 8, own=False,
          more={"elastic": ElasticOptions(grow=True, every_s=60.0, settle_s=SETTLE_S, gain=1.0)}),
    Gives("not if it is not elastic", job("stiff", gpus=4, count=2), (rigid(2),), 2, own=False),
    Gives("not if that costs more than it gains", flexible(8, 4, 8), (rigid(4),), 8, own=False,
          more={"restart_cost_s": 4_000.0}),
]  # fmt: skip


@pytest.mark.parametrize("case", GIVES, ids=lambda case: case.story)
def test_it_gives_way_to_who_is_laid_over_it(case: Gives) -> None:
    """Two take turns on the same GPUs; with fewer tasks each has some for itself, and both do more."""
    world = world_of(**case.more)
    (name,) = world.submit(case.first)
    world.advance(SETTLE_S + 2 * BOTH.every_s)
    assert len(slots(world, name)) == 8
    world.advance(SETTLE_S)
    comers = world.submit(*case.comes)
    assert all(world.state(comer) is not JobState.PENDING for comer in comers), "turns come at once"
    world.advance(2 * SETTLE_S)
    assert tasks(world, name) == (case.want,)
    shared = [comer for comer in comers if slots(world, comer) & slots(world, name)]
    assert bool(shared) is not case.own
    if case.own:
        assert {world.state(one) for one in (name, *comers)} == {JobState.RUNNING}
        assert all(world.jobs[comer].preemptions == 0 for comer in comers), "it alone restarts"
    invariants.check_rest(world)
    invariants.check_rebuilds(world)


def test_it_moves_aside_with_all_tasks_where_there_is_room() -> None:
    """One lies over one of its GPUs, and another is idle: it goes on with three of its own and that, which is a move to be judged."""
    world = world_of(where=fleet(cluster("east-a", hosts=2, gpus=4)))
    world.set_host("east-a-1", HostState.CORDONED)
    world.submit(flexible(4, 4, 4))
    (comer,) = world.submit(rigid(1))
    world.set_host("east-a-1", HostState.HEALTHY)
    world.advance(2 * SETTLE_S)
    assert (tasks(world, "j1"), world.jobs["j1"].resizes) == ((4,), 0)
    assert causes(world, "moved") == [
        f"preempting: moved, so that it and {comer} have GPUs of their own"
    ]
    assert not slots(world, "j1") & slots(world, comer)


def test_newcomers_are_laid_over_who_grew() -> None:
    """One of two hosts has a rigid gang, the other one that grew: that is the one which can give way."""
    world = world_of()
    for host, other, spec in (
        ("east-a-0", "east-a-1", rigid(4)),
        ("east-a-1", "east-a-0", flexible(2, 2, 4)),
    ):
        world.set_host(other, HostState.CORDONED)
        world.submit(spec)
        world.set_host(other, HostState.HEALTHY)
        assert world.jobs[f"j{len(world.jobs)}"].hosts == (host,)
    world.advance(2 * SETTLE_S)
    assert tasks(world, "j2") == (4,)
    last = sorted(slots(world, "j2"))[2:]
    (comer,) = world.submit(rigid(2))
    assert sorted(slots(world, comer)) == last, "those of its last tasks"


def test_sizes_do_not_flap() -> None:
    """One after the other comes and goes: the gang changes its size no more often than it may settle."""
    world = world_of()
    (name,) = world.submit(flexible(4, 2, 8))
    for _ in range(20):
        (comer,) = world.submit(rigid(2))
        world.advance(200)
        world.finish(comer)
        world.advance(50)
    assert world.jobs[name].resizes <= 20 * 250 / SETTLE_S
    starts_s = [
        row.at_s for row in world.journal.rows if row.job == name and "starting" in row.text
    ]
    assert len(starts_s) > 2
    assert all(after - before >= SETTLE_S for before, after in pairwise(starts_s))


def test_who_would_have_to_wait_is_given_room_too() -> None:
    """No layer is left: the grown gang gives what it has beyond its count, and the other starts."""
    world = world_of(where=fleet(cluster("east-a", hosts=1, gpus=4)), layers=1)
    (name,) = world.submit(flexible(2, 2, 4))
    world.advance(SETTLE_S + BOTH.every_s)
    assert tasks(world, name) == (4,)
    world.advance(SETTLE_S)
    (comer,) = world.submit(rigid(2))
    assert (tasks(world, name), world.state(comer)) == ((2,), JobState.RUNNING)


# --- what is measured -----------------------------------------------------------------------------------

PACKS: dict[str, Any] = {"pack": "greedy", "pack_trial_s": 60.0}


def paced(world: World, speed: float = 10.0, beside: float = 0.9) -> None:
    """Gangs report steps; those who are beside others on the same host do a part of that."""

    def rate(name: str, others: Sequence[str]) -> float:
        near = any(slots(world, name) & slots(world, other) for other in others)
        return speed * (beside if near else 1.0)

    world.engines["east-a"].speed = rate


def test_a_gang_that_runs_beside_another_keeps_its_size() -> None:
    """The pair does well together: neither does it grow, nor does it give way."""
    world = world_of(where=fleet(cluster("east-a", hosts=2, gpus=4)), **PACKS)
    paced(world)
    world.set_host("east-a-1", HostState.CORDONED)
    one, two = world.submit(flexible(4, 2, 8), rigid(4))
    world.advance(10 * QUANTUM_S)
    held = world.placer("east").state.allocations
    assert held[one].paired == two
    world.set_host("east-a-1", HostState.HEALTHY)
    world.advance(2 * SETTLE_S)
    assert tasks(world, one) == (4,)
    invariants.check_rebuilds(world)


def test_another_size_is_measured_anew() -> None:
    """Its rate after it grew is not taken for the rate before a move; nothing of the size before is left."""
    world = world_of(**PACKS)
    paced(world)
    (name,) = world.submit(flexible(2, 1, 6))
    world.advance(SETTLE_S - 1)
    sharing = world.placer("east").sharing
    assert isinstance(sharing, SharingRebalancer)
    moves = sharing._moves
    assert moves._rates == {name: pytest.approx(10.0)}
    paced(world, speed=30.0)
    world.advance(BOTH.every_s + 1)
    assert tasks(world, name) == (6,)
    assert moves._rates == {}
    world.advance(10 * QUANTUM_S)
    assert moves._rates == {name: pytest.approx(30.0)}
    assert not causes(world, "moved back")


def test_a_move_on_probation_is_judged_before_the_size_changes() -> None:
    """It was moved to a slow host, with idle GPUs beside: it does not grow before it was measured, and then it goes back."""
    options = RebalanceOptions(migrate=True, migrate_after_s=60.0)
    quick = ElasticOptions(grow=True, shrink=True, every_s=10.0, settle_s=1.0, gain=0.01)
    where = fleet(cluster("east-a", hosts=3, gpus=4))
    world = world_of(where=where, rebalancing=options, elastic=quick, pack="none")
    world.engines["east-a"].speed = lambda job_id, others: (
        1.0 if "east-a-1" in world.jobs[job_id].hosts else 10.0
    )
    for host in ("east-a-1", "east-a-2"):
        world.set_host(host, HostState.CORDONED)
    name, _ = world.submit(flexible(4, 4, 8), rigid(4))
    world.advance(10 * QUANTUM_S)
    world.set_host("east-a-1", HostState.HEALTHY)
    assert world.jobs[name].hosts == ("east-a-1",)
    world.set_host("east-a-2", HostState.HEALTHY)
    world.advance(10 * QUANTUM_S)
    told = causes(world, "")
    assert "moved to idle GPUs" in told[0]
    assert "moved back" in told[1]


# --- faults, and what people are told -------------------------------------------------------------------


def until_it_stops(world: World, name: str) -> None:
    """Time passes until a gang was told to stop, and does not yet."""
    world.engines["east-a"].obedient = False
    for _ in range(100):
        world.advance(10)
        if world.state(name) is JobState.PREEMPTING:
            return
    raise AssertionError(f"{name} goes on")


@pytest.mark.parametrize("grown", [False, True], ids=["growing", "giving way"])
def test_a_change_of_size_survives_a_crash(grown: bool) -> None:
    """The process is killed while the attempt stops: another one carries the change through."""
    world = world_of()
    (name,) = world.submit(flexible(4, 2, 8))
    comers: list[str] = []
    if grown:
        world.advance(2 * SETTLE_S)
        comers = world.submit(rigid(2))
    until_it_stops(world, name)
    world.restart()
    assert world.state(name) is JobState.PREEMPTING
    world.finish(name, 143)
    world.start(name)
    assert tasks(world, name) == ((6,) if grown else (8,))
    assert not any(slots(world, name) & slots(world, comer) for comer in comers)
    invariants.check_rebuilds(world)


def test_without_its_place_it_does_not_grow_over_others() -> None:
    """A host of its place goes away while it stops: it comes back with what it asked for, not with all in another layer."""
    world = world_of()
    name, other = world.submit(flexible(3, 1, 7), rigid(1))
    until_it_stops(world, name)
    world.set_host("east-a-1", HostState.CORDONED)
    world.finish(name, 143)
    assert tasks(world, name) == (3,)
    assert not slots(world, name) & slots(world, other)


def test_people_are_told_of_sizes_and_why() -> None:
    """`explain` says how many tasks it has and why it was restarted; the history tells of each change."""
    world = world_of()
    (name,) = world.submit(flexible(4, 2, 8))
    world.advance(2 * SETTLE_S)
    explained = explain_job(world.queue, world.machines.placers, world.jobs[name], world.now)
    assert (
        "it runs with 8 tasks, and may have from 2 to 8 tasks; it asked for 4" in explained.summary
    )
    assert "last change of size: grows from 4 to 8 tasks" in explained.summary
    (comer,) = world.submit(rigid(2))
    world.advance(2 * SETTLE_S)
    why = f"shrinks from 8 to 6 tasks, so that it and {comer} have GPUs of their own"
    assert causes(world, "shrinks") == [f"preempting: {why}"]
    orders = [sent.message for sent in world.sent if isinstance(sent.message, m.StopTasks)]
    assert len(orders) == 2
    explained = explain_job(world.queue, world.machines.placers, world.jobs[name], world.now)
    assert "it runs with 6 tasks" in explained.summary
    assert f"last change of size: {why}" in explained.summary
