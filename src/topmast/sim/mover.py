"""Copies of datasets over links that have a bandwidth: those on one link share it evenly.

Processor sharing in virtual volume: what every copy of a link has received since the start is one
number, so that a copy that joins or leaves changes no other. O(log copies) each.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import ClassVar

from msgspec import Struct

from topmast.model import ids
from topmast.model import messages as m
from topmast.model.dataset import Copy
from topmast.ports import Calls, Orders
from topmast.sim.clock import VirtualClock
from topmast.sim.heap import EventHeap, Priority

Came = Callable[[Copy], None]
Went = Callable[[str, str, float], None]


class _Lane(Struct):
    """One directed link: ``served`` bytes have gone to each copy that has been there all the
    time.
    """

    bytes_per_s: float
    served: float = 0.0
    at_s: float = 0.0
    turn: int = 0
    copies: list[tuple[float, int, Copy]] = []


class SimulatedMover(Orders):
    """Takes the orders of a real mover; ``came`` and ``went`` hear of every replica."""

    def __init__(
        self,
        clock: VirtualClock,
        heap: EventHeap,
        post: Callable[[str, Sequence[m.Message]], object],
        came: Came,
        went: Went,
    ) -> None:
        self._clock = clock
        self._heap = heap
        self._post = post
        self._came = came
        self._went = went
        self._lanes: dict[tuple[str, str], _Lane] = {}
        self._count = 0
        self.in_flight = 0

    def _delete(self, order: m.DeleteReplica) -> None:
        self._went(order.dataset, order.region, self._clock.now_s)
        self._post(ids.QUEUE, (m.ReplicaDeleted(order.region, order.path),))

    def _start(self, order: m.StartCopy) -> None:
        copy = order.copy
        key = (copy.source, copy.target)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(order.bytes_per_s, at_s=self._clock.now_s, copies=[])
        self._serve(lane)
        self._count += 1
        self.in_flight += 1
        heapq.heappush(lane.copies, (lane.served + copy.bytes, self._count, copy))
        self._plan(lane)

    def _serve(self, lane: _Lane) -> None:
        now = self._clock.now_s
        if lane.copies:
            lane.served += (now - lane.at_s) * lane.bytes_per_s / len(lane.copies)
        lane.at_s = now

    def _plan(self, lane: _Lane) -> None:
        """The next copy of the lane to be complete; whatever was planned before is void."""
        lane.turn += 1
        if lane.copies:
            left = max(0.0, lane.copies[0][0] - lane.served)
            at_s = self._clock.now_s + left * len(lane.copies) / lane.bytes_per_s
            self._heap.put(at_s, Priority.NEWS, self._done, (lane, lane.turn))

    def _done(self, plan: tuple[_Lane, int]) -> None:
        lane, turn = plan
        if lane.turn != turn:
            return
        self._serve(lane)
        full, _, copy = heapq.heappop(lane.copies)
        lane.served = max(lane.served, full)
        self.in_flight -= 1
        self._came(copy)
        self._plan(lane)
        self._post(ids.QUEUE, (m.CopyDone(copy.id, copy.bytes),))

    orders: ClassVar[Calls] = {m.StartCopy: _start, m.DeleteReplica: _delete}
