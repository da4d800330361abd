"""Plans on a cadence: the buffer for hosts that fail, and regions that come and go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from topmast.model.fleet import HostSpec
from topmast.slow.capacity.feedback import Limits
from topmast.slow.capacity.planner import plan
from topmast.slow.capacity.planning import (
    CapacityPlanning,
    CapacityPlanOptions,
    CapacitySnapshot,
    HostAssignment,
    HostNow,
    RegionNow,
)
from topmast.slow.capacity.problem import Host
from topmast.slow.capacity.spare_hosts import back_home


def _host(name: str, *, in_use: bool = True, healthy: bool = True) -> HostNow:
    """A host of 8 GPUs: ``a3`` is the third of cluster a."""
    return HostNow(HostSpec(name, "H100", 8, pod="p"), name[0], name[0], healthy, in_use)


def _region(a: int, b: int, *, idle: Sequence[str] = (), failed: Sequence[str] = ()) -> RegionNow:
    """So many hosts of two clusters."""
    names = [f"a{i}" for i in range(a)] + [f"b{i}" for i in range(b)]
    hosts = (_host(n, in_use=n not in idle, healthy=n not in failed) for n in names)
    return RegionNow("east", ("a", "b"), tuple(hosts))


def _planned(planning: CapacityPlanning, *regions: RegionNow) -> tuple[HostAssignment, ...]:
    """One plan, made by the planner and put in force."""
    snapshot = CapacitySnapshot(regions)
    request = planning.request(snapshot, 0.0)
    assert request is not None
    answers = {name: plan(p, 60.0, lambda: 0.0) for name, p in request.problems.items()}
    return planning.apply(request, answers, snapshot, 1.0)


def _open_loop(buffer_fraction: float) -> CapacityPlanning:
    return CapacityPlanning(CapacityPlanOptions(Limits(gain=0.0), buffer_fraction=buffer_fraction))


def test_the_buffer_is_lent_to_where_it_is() -> None:
    """A tenth of 20 hosts is nobody's to count on: an idle one of each cluster, and no host moves."""
    planning = _open_loop(0.1)
    orders = _planned(planning, _region(10, 10, idle=("a4", "b7")))
    assert [order.owners for order in orders] == [{}]
    assert planning.spare == {"a4", "b7"}


def test_hosts_that_fail_are_replaced_from_the_buffer() -> None:
    """One of two lost hosts is made up for by the own host of the buffer, the other by that of the neighbour."""
    planning = _open_loop(0.1)
    _planned(planning, _region(10, 10, idle=("a4", "b7")))
    first = _planned(planning, _region(10, 10, idle=("a4", "b7"), failed=("a0",)))
    assert [order.owners for order in first] == [{}]
    assert planning.spare == {"b7"}
    second = _planned(planning, _region(10, 10, idle=("a4", "b7"), failed=("a0", "a1")))
    assert [order.owners for order in second] == [{"b7": "a"}]
    assert planning.spare == frozenset()


def test_without_a_buffer_nobody_makes_up_for_a_host() -> None:
    """Every cluster asks for all it has: one that lost a host is not worth a host of the neighbour."""
    planning = _open_loop(0.0)
    orders = _planned(planning, _region(10, 10, idle=("a4", "b7"), failed=("a0",)))
    assert [order.owners for order in orders] == [{}]
    assert planning.spare == frozenset()


def test_the_buffer_takes_nothing_that_somebody_asks_for() -> None:
    """Of four hosts a fiftieth is less than one: clusters that ask for all of them keep all of them."""
    planning = _open_loop(0.02)
    orders = _planned(planning, _region(2, 2))
    assert [order.owners for order in orders] == [{}]
    assert planning.spare == frozenset()


def test_a_region_that_is_out_of_reach_goes_without() -> None:
    """The plan of the others holds; with nobody in reach it comes to nothing."""
    here = _region(3, 1, idle=("b0",))
    away = RegionNow("west", ("c", "d"), (_host("c0"), _host("d0")))
    planning = _open_loop(0.0)
    request = planning.request(CapacitySnapshot((here, away)), 0.0)
    assert request is not None
    answers = {name: plan(p, 60.0, lambda: 0.0) for name, p in request.problems.items()}
    orders = planning.apply(request, answers, CapacitySnapshot((here,)), 1.0)
    assert [order.region for order in orders] == ["east"]
    assert planning.apply(request, answers, CapacitySnapshot(()), 2.0) == ()
    assert planning.failure is not None


@dataclass
class Dealt:
    """Hosts of the buffer, alike, with who has them; what the planner says, and what comes of it."""

    story: str
    owners: dict[str, str]
    assignment: dict[str, str | None]
    want: dict[str, str | None] = field(default_factory=dict)


DEALT = [
    Dealt("who has a host gets that", {"x": "a", "y": "b"}, {"x": "b", "y": None}, {"x": None, "y": "b"}),
    Dealt("nobody has one: as planned", {"x": "a", "y": "a"}, {"x": "b", "y": None}, {"x": "b", "y": None}),
    Dealt("all change places", {"x": "a", "y": "b"}, {"x": "b", "y": "a"}, {"x": "a", "y": "b"}),
    Dealt("a third takes what is left", {"x": "a", "y": "b", "z": "b"},
          {"x": "b", "y": "c", "z": None}, {"x": None, "y": "b", "z": "c"}),
]  # fmt: skip


@pytest.mark.parametrize("case", DEALT, ids=lambda case: case.story)
def test_hosts_of_the_buffer_go_home_first(case: Dealt) -> None:
    """Each cluster gets as many as planned, with as few moves as can be."""
    hosts = [Host(name, "H100", 8, "dc", "p", "r", None, False) for name in case.owners]
    found = back_home(case.assignment, hosts, case.owners)
    assert sorted(found.values(), key=str) == sorted(case.assignment.values(), key=str)
    moved = sum(to not in (None, case.owners[name]) for name, to in found.items())
    wanted = sum(to not in (None, case.owners[name]) for name, to in case.want.items())
    assert moved == wanted
    if len(case.owners) == 2:
        assert found == case.want
