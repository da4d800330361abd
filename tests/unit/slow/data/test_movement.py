"""Plans carried out: which copies and drops are ordered when, and what is never ordered."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from topmast.slow.data.movement import TRIES, Movement, ReplicaOrder, Stock, movement_of
from topmast.slow.data.problem import Prices, Problem, Region, Table, Workload

PRICES = Prices(10.0, ((1.0, 10.0),), 0.0, 0.0)


def _copy(table: str, to: str, *, source: str = "east") -> ReplicaOrder:
    return ReplicaOrder("copy", table, to, source, 10.0, 1.0)


def _drop(table: str, region: str) -> ReplicaOrder:
    return ReplicaOrder("drop", table, region, None, 10.0, 0.0)


def _stock(copies: tuple[tuple[str, str, str], ...] = (), **replicas: tuple[str, ...]) -> Stock:
    return Stock(replicas, copies)


def _names(orders: list[ReplicaOrder]) -> list[str]:
    return [f"{order.op} {order.table} {order.region}" for order in orders]


@dataclass
class Case:
    """What is left of a plan, where data is, and what is ordered then."""

    story: str
    copies: list[ReplicaOrder]
    drops: list[ReplicaOrder]
    stock: Stock
    want: list[str]


CASES = [
    Case(
        "one copy at a time on a link, the first of the plan",
        [_copy("a", "west"), _copy("b", "west"), _copy("c", "north")], [],
        _stock(a=("east",), b=("east",), c=("east",)),
        ["copy a west", "copy c north"],
    ),
    Case(
        "a link that carries somebody else's copy is busy",
        [_copy("a", "west")], [],
        _stock((("x", "east", "west"),), a=("east",)),
        [],
    ),
    Case(
        "what is there already is not copied",
        [_copy("a", "west")], [],
        _stock(a=("east", "west")),
        [],
    ),
    Case(
        "a drop waits for the copies of its table, and for no others",
        [_copy("a", "west"), _copy("b", "west")], [_drop("b", "east"), _drop("c", "east")],
        _stock(a=("east",), b=("east",), c=("east", "west")),
        ["copy a west", "drop c east"],
    ),
    Case(
        "what is gone already is not dropped",
        [], [_drop("a", "east")],
        _stock(a=("west",)),
        [],
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_what_is_ordered(case: Case) -> None:
    """One look at the stock."""
    assert _names(Movement(case.copies, case.drops).orders(case.stock)) == case.want


def test_a_move_from_region_to_region_is_a_copy_and_then_a_drop() -> None:
    """In flight, there, dropped: then the plan is over."""
    movement = Movement([_copy("a", "west")], [_drop("a", "east")])
    assert _names(movement.orders(_stock(a=("east",)))) == ["copy a west"]
    assert movement.orders(_stock((("a", "east", "west"),), a=("east",))) == []
    assert movement.in_flight == 1
    (drop,) = movement.orders(_stock(a=("east", "west")))
    movement.accepted(drop)
    assert movement.is_over
    assert movement.done == 2
    assert _names(movement.carried_out) == ["copy a west", "drop a east"]


def test_a_copy_that_failed_is_ordered_again_and_given_up_in_the_end() -> None:
    """And the replica that it was to take the place of stays."""
    movement = Movement([_copy("a", "west")], [_drop("a", "east")])
    stock = _stock(a=("east",))
    ordered = [order for _ in range(3 * TRIES) for order in movement.orders(stock)]
    assert _names(ordered) == ["copy a west"] * TRIES
    assert [(o.table, why) for o, why in movement.given_up] == [("a", "the copy failed")]


def test_a_refused_drop_comes_again_until_it_is_given_up() -> None:
    """A job reads it now; later it may be dropped."""
    movement = Movement([], [_drop("a", "east")])
    stock = _stock(a=("east", "west"))
    for _ in range(TRIES):
        (order,) = movement.orders(stock)
        movement.refused(order, "job j1 reads it")
    assert movement.orders(stock) == []
    assert movement.given_up[0][1] == "job j1 reads it"


def test_copies_go_by_the_demand_that_they_serve_per_byte() -> None:
    """A small table that many read goes before a large one that more read."""
    problem = Problem(
        regions=(Region("east", 1e3, {"G": 8.0}), Region("west", 1e3, {"G": 8.0})),
        tables=(Table("large", 100.0, ("east",)), Table("small", 1.0, ("east",))),
        prices=PRICES,
        workloads=(Workload("l", ("large",), {"G": 6.0}), Workload("s", ("small",), {"G": 2.0})),
    )
    moves = [
        {"op": "copy", "table": t, "from": "east", "to": "west", "bytes": b}
        for t, b in (("large", 100.0), ("small", 1.0))
    ]
    answer = {"moves": moves, "serve": {"l": {"west": 1.0}, "s": {"east": 0.5, "west": 0.5}}}
    movement = movement_of(problem, answer)
    assert [(o.table, o.value) for o in movement.copies] == [("small", 1.0), ("large", 6.0)]
