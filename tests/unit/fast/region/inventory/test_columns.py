"""The columns: what is free, where it stands, and that it adds up."""

import random
from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.support.build import cluster, needs
from topmast.fast.region.inventory.columns import Columns, cpus_of
from topmast.fast.region.inventory.room import choose_slots, tasks_per_host
from topmast.model.fleet import ClusterSpec, HostSpec, RegionSpec
from topmast.model.job import Level, Resources
from topmast.model.plan import Seat
from topmast.model.states import HostState


def _columns(*clusters: ClusterSpec) -> Columns:
    return Columns(RegionSpec("east", clusters))


def _host(name: str, **more: object) -> HostSpec:
    return HostSpec(name, "H100", 8, **more)  # type: ignore[arg-type]


@dataclass
class Room:
    """How many tasks a host of 8 H100, 16 CPUs and 1,000 bytes takes, with so much in use."""

    story: str
    task: Resources
    want: int
    used_slots: tuple[int, ...] = ()
    used_milli: int = 1000
    used_cpus: float = 0.0
    choice: int = 0


ROOMS = [
    Room("whole GPUs", needs(2), 4),
    Room("an odd rest is left over", needs(3), 2),
    Room("none is large enough", needs(9), 0),
    Room("busy GPUs do not count", needs(1), 5, (0, 1, 2)),
    Room("a GPU in part use is not whole", needs(1), 7, (3,), 250),
    Room("shares fill each GPU", needs(0.3), 24),
    Room("shares fit beside shares", needs(0.5), 15, (0,), 250),
    Room("another model", needs(1, "A100"), 0),
    Room("any model", needs(1, None), 8),
    Room("the second choice", needs(1, "A100", "H100"), 8, choice=1),
    Room("beyond the list, the last choice", needs(1, "H100"), 8, choice=3),
    Room("CPUs run out first", needs(1, cpus=5), 3),
    Room("CPUs in use do not count", needs(1, cpus=5), 2, used_cpus=6),
    Room("0.1 fits ten times into 1", needs(cpus=0.1), 160),
    Room("memory runs out first", needs(1, memory=400), 2),
    Room("without GPUs, by CPUs alone", needs(cpus=4), 4),
    Room("nothing asked, no limit", needs(), 1 << 40),
]


@pytest.mark.parametrize("case", ROOMS, ids=lambda case: case.story)
def test_tasks_per_host(case: Room) -> None:
    """The scarcest resource decides."""
    columns = _columns(cluster("c-1", hosts=1, cpus=16.0, memory_bytes=1_000))
    used = needs(cpus=case.used_cpus)
    columns.take([Seat("g", 0, "c-1-0", case.used_slots, case.used_milli)], {"g": used})
    assert tasks_per_host(columns, case.task, case.choice).tolist() == [case.want]


def test_a_host_without_limits_is_limited_by_gpus_alone() -> None:
    """0 CPUs or bytes in the fleet file mean: not counted."""
    columns = _columns(cluster("c-1", hosts=1))
    room = tasks_per_host(columns, needs(1, cpus=1_000, memory=1 << 50), 0)
    assert room.tolist() == [8]


@dataclass
class Slots:
    """Which slots the next task gets, by what is free of each."""

    story: str
    free: list[int]
    gpus_milli: int
    want: tuple[int, ...] | None


SLOTS = [
    Slots("the lowest whole ones", [0, 1000, 500, 1000, 1000], 2000, (1, 3)),
    Slots("not enough whole ones", [1000, 999, 1000], 3000, None),
    Slots("the fullest that still holds the share", [1000, 400, 300], 300, (2,)),
    Slots("of equals the lowest", [1000, 400, 400], 300, (1,)),
    Slots("no GPU holds the share", [200, 299, -700], 300, None),
    Slots("no GPU at all", [1000], 0, ()),
    Slots("a claimed slot is nobody's", [-1000, 1000], 1000, (1,)),
]


@pytest.mark.parametrize("case", SLOTS, ids=lambda case: case.story)
def test_choosing_slots(case: Slots) -> None:
    """Shares crowd together, so that whole GPUs stay whole."""
    columns = _columns(cluster("c-1", hosts=1, gpus=len(case.free)))
    columns.slots(0)[:] = case.free
    assert choose_slots(columns, 0, case.gpus_milli) == case.want


def test_domains_nest_and_names_count_within_their_parent() -> None:
    """A rack r0 of one pod is not the rack r0 of another, nor of another cluster's."""
    place = {"datacenter": "d", "rack": "r0"}
    one = ClusterSpec("a", (_host("a0", pod="p0", **place), _host("a1", pod="p1", **place)))
    two = ClusterSpec("b", (_host("b0", pod="p0", **place), _host("b1", pod="p0", **place)))
    columns = _columns(one, two)
    assert columns.domain[Level.HOST].tolist() == [0, 1, 2, 3]
    assert columns.domain[Level.RACK].tolist() == [0, 1, 2, 2]
    assert columns.domain[Level.POD].tolist() == [0, 1, 2, 2]
    assert columns.domain[Level.DATACENTER].tolist() == [0, 0, 1, 1]
    assert columns.domain[Level.CLUSTER].tolist() == [0, 0, 1, 1]
    assert {name: rows.tolist() for name, rows in columns.clusters.items()} == {
        "a": [0, 1], "b": [2, 3],
    }  # fmt: skip


def test_what_was_taken_in_any_order_comes_back_whole() -> None:
    """After random takings and givings back, every column is what it was, to the last bit."""
    rng = random.Random(7)
    columns = _columns(cluster("c-1", cpus=4.0, memory_bytes=1 << 40))
    fresh = _columns(cluster("c-1", cpus=4.0, memory_bytes=1 << 40))
    held: list[tuple[Seat, Resources]] = []
    for _ in range(500):
        if held and rng.random() < 0.5:
            seat, task = held.pop(rng.randrange(len(held)))
            columns.give_back([seat], {"g": task})
        else:
            task = needs(cpus=rng.choice([0.1, 0.3, 0.7, 1.1, 1 / 3]), memory=rng.randrange(999))
            slots = tuple(rng.sample(range(8), 2))
            seat = Seat("g", 0, f"c-1-{rng.randrange(2)}", slots, rng.choice([1000, 250, 333]))
            columns.take([seat], {"g": task})
            held.append((seat, task))
    for seat, task in held:
        columns.give_back([seat], {"g": task})
    assert np.array_equal(columns.free_milli, fresh.free_milli)
    assert np.array_equal(columns.free_cpus, fresh.free_cpus)
    assert np.array_equal(columns.free_memory, fresh.free_memory)


@pytest.mark.parametrize(
    ("cpus", "want"), [(0.0, 0.0), (0.1, 0.1), (1 / 3, 0.333333), (1e-9, 1e-6), (64.0, 64.0)]
)
def test_cpus_are_counted_in_millionths(cpus: float, want: float) -> None:
    """Whoever asks for some gets some; whoever asks for none gets none."""
    assert cpus_of(needs(cpus=cpus)) == want


@dataclass
class Overdraft:
    """A seat on slots 2 and 3 of a host with 4 CPUs of which somebody else took more than there was."""

    story: str
    want: bool
    free_milli: dict[int, int] = field(default_factory=dict)
    free_cpus: float = 4.0
    free_memory: float = 100.0
    task: Resources = field(default_factory=lambda: needs(2))


@pytest.mark.parametrize(
    "case",
    [
        Overdraft("nothing is overdrawn", False),
        Overdraft("another slot is claimed", False, {0: -1000}),
        Overdraft("one of its slots is", True, {3: -1}),
        Overdraft("CPUs are, which it does not use", False, free_cpus=-1.0),
        Overdraft("CPUs are, which it uses", True, free_cpus=-1.0, task=needs(2, cpus=1)),
        Overdraft("memory is, which it uses", True, free_memory=-1.0, task=needs(2, memory=1)),
        Overdraft("memory is, which it does not use", False, free_memory=-1.0),
    ],
    ids=lambda case: case.story,
)
def test_a_seat_is_overdrawn_by_what_it_uses_itself(case: Overdraft) -> None:
    """What a preemptor claimed beside it is not its business."""
    columns = _columns(cluster("c-1", hosts=1, cpus=4.0))
    for slot, milli in case.free_milli.items():
        columns.slots(0)[slot] = milli
    columns.free_cpus[0], columns.free_memory[0] = case.free_cpus, case.free_memory
    assert columns.overdrawn(Seat("g", 0, "c-1-0", (2, 3)), case.task) is case.want


def test_a_slot_that_the_host_no_longer_has_is_overdrawn() -> None:
    """A plan made before the host lost GPUs does not fit any more."""
    columns = _columns(cluster("c-1", gpus=4))
    assert columns.overdrawn(Seat("g", 0, "c-1-0", (4,)), needs(1))


def test_only_a_healthy_host_is_available() -> None:
    """All other states keep new work away."""
    columns = _columns(cluster("c-1", hosts=1))
    for state in HostState:
        columns.set_state("c-1-0", state)
        assert bool(columns.available[0]) is (state is HostState.HEALTHY)
        assert columns.free_gpus_milli(columns.clusters["c-1"]) == 8000 * bool(columns.available[0])


def test_a_trial_does_not_touch_the_books() -> None:
    """What a search tries out is forgotten."""
    columns = _columns(cluster("c-1", hosts=1, cpus=4.0))
    trial = columns.trial()
    trial.take([Seat("g", 0, "c-1-0", (0, 1))], {"g": needs(2, cpus=1, memory=5)})
    assert columns.free_by_host().tolist() == [8000]
    assert columns.free_cpus.tolist() == [4.0]
    assert trial.free_by_host().tolist() == [6000]
    assert trial.empty().free_by_host().tolist() == [8000]
