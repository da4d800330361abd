"""A plan carried out: copies by value per byte, one at a time on each link, then drops.

Orders are given in small portions and looked at again: the world may differ from the plan by
then. What keeps data safe is checked once more by the queue that takes an order (residency, room,
the least number of replicas, readers, jobs that wait); what is refused is tried again later, and
given up after a while. A replica is dropped only when every copy of its table that the plan
wanted is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from topmast.slow.data.problem import Problem

TRIES = 20
"""So often an order is refused, or a copy fails, until it is given up."""

Op = Literal["copy", "drop"]


class ReplicaOrder(Struct, frozen=True):
    """One replica to be made or dropped; ``value``: GPUs of demand that the plan serves by it."""

    op: Op
    table: str
    region: str
    source: str | None
    bytes: float
    value: float


class Stock(Struct, frozen=True):
    """Where data is: complete replicas by table; copies in flight as (table, source, target)."""

    replicas: Mapping[str, tuple[str, ...]]
    copies: tuple[tuple[str, str, str], ...]


class Movement:
    """What is left of a plan's moves. Changed by `orders` and `refused` alone."""

    def __init__(self, copies: list[ReplicaOrder], drops: list[ReplicaOrder]) -> None:
        self.copies = copies
        self.drops = drops
        self.given_up: list[tuple[ReplicaOrder, str]] = []
        self.carried_out: list[ReplicaOrder] = []
        """In the order in which they were done."""
        self._tries: dict[tuple[str, str, str], int] = {}
        self._ordered: dict[tuple[str, str], ReplicaOrder] = {}
        self._why: dict[tuple[str, str, str], str] = {}

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return not (self.copies or self.drops or self._ordered)

    @property
    def done(self) -> int:
        """How many moves are carried out."""
        return len(self.carried_out)

    @property
    def under_way(self) -> list[ReplicaOrder]:
        """Copies that were ordered and are not there yet."""
        return list(self._ordered.values())

    @property
    def in_flight(self) -> int:
        """How many these are."""
        return len(self._ordered)

    def orders(self, stock: Stock) -> list[ReplicaOrder]:
        """What to order now. O(moves + copies in flight)."""
        self._look(stock)
        busy = {(source, target) for _, source, target in stock.copies}
        found: list[ReplicaOrder] = []
        kept: list[ReplicaOrder] = []
        for order in self.copies:
            there = stock.replicas.get(order.table, ())
            if order.region in there:
                self.carried_out.append(order)
                continue
            link = (order.source or "", order.region)
            if link in busy:
                kept.append(order)
                continue
            busy.add(link)
            found.append(order)
            self._ordered[order.table, order.region] = order
        self.copies = kept
        return found + self._safe_drops(stock)

    def _look(self, stock: Stock) -> None:
        """What became of the copies ordered: there, on their way, or failed."""
        flying = {(table, target) for table, _, target in stock.copies}
        for key, order in list(self._ordered.items()):
            if key in flying:
                continue
            del self._ordered[key]
            if order.region in stock.replicas.get(order.table, ()):
                self.carried_out.append(order)
            else:
                self._again(order, "the copy failed")

    def _safe_drops(self, stock: Stock) -> list[ReplicaOrder]:
        """Drops of tables of which all copies are there; a copy that was given up keeps the old
        replicas.
        """
        awaited = {order.table for order in self.copies}
        awaited |= {order.table for order in self._ordered.values()}
        awaited |= {order.table for order, _ in self.given_up if order.op == "copy"}
        found: list[ReplicaOrder] = []
        kept: list[ReplicaOrder] = []
        for order in self.drops:
            if order.region not in stock.replicas.get(order.table, ()):
                continue
            (kept if order.table in awaited else found).append(order)
        self.drops = kept
        return found

    def accepted(self, order: ReplicaOrder) -> None:
        """An order was taken: a drop is done; a copy is looked at again."""
        if order.op == "drop":
            self.carried_out.append(order)

    def refused(self, order: ReplicaOrder, why: str) -> None:
        """An order was not taken: it comes again later, some times."""
        self._ordered.pop((order.table, order.region), None)
        self._again(order, why)

    def _again(self, order: ReplicaOrder, why: str) -> None:
        key = (order.op, order.table, order.region)
        self._tries[key] = self._tries.get(key, 0) + 1
        if self._tries[key] >= TRIES:
            self.given_up.append((order, why))
        elif order.op == "copy":
            self.copies.append(order)
        else:
            self.drops.append(order)


def movement_of(problem: Problem, answer: Mapping[str, Any]) -> Movement:
    """The moves of an answer, copies by value per byte. O(moves log moves + shares)."""
    served = served_by(problem, answer)
    copies: list[ReplicaOrder] = []
    drops: list[ReplicaOrder] = []
    for move in answer["moves"]:
        region = move["to"] if move["op"] == "copy" else move["region"]
        value = served.get((move["table"], region), 0.0)
        order = ReplicaOrder(
            move["op"], move["table"], region, move.get("from"), move["bytes"], value
        )
        (copies if order.op == "copy" else drops).append(order)
    copies.sort(key=lambda o: (-o.value / max(o.bytes, 1.0), o.table, o.region))
    drops.sort(key=lambda o: (-o.bytes, o.table, o.region))
    return Movement(copies, drops)


def served_by(problem: Problem, answer: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """GPUs of demand that each (table, region) serves under an answer. O(shares x tables read)."""
    found: dict[tuple[str, str], float] = {}
    serve = answer["serve"]
    for workload in problem.workloads:
        gpus = sum(workload.gpus.values())
        for region, share in serve.get(workload.name, {}).items():
            for table in workload.tables:
                key = (table, region)
                found[key] = found.get(key, 0.0) + share * gpus
    return found
