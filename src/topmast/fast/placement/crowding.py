"""Crowded GPUs and idle ones: who shares its GPUs moves to where there are some for it alone.

Gandiva (OSDI '18): introspective mode. When jobs end, idle GPUs and such with several gangs on them stand side by side; layers
alone do not mend that. The policy `rebalance` says who had better move; the move is that of any attempt whose place is
booked (see migration).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from topmast.fast.placement.allocation import Allocation, Hold
from topmast.fast.placement.columns import Columns
from topmast.fast.placement.layers import outer
from topmast.fast.placement.migration import as_it_runs
from topmast.fast.placement.search import Search
from topmast.model.job import MILLI
from topmast.model.plan import Ask, GroupAsk, Plan
from topmast.policies.base import CrowdView

if TYPE_CHECKING:
    from topmast.fast.placement.region import RegionState

TRIED_AT_ONCE = 16
"""For so many gangs a place is looked for after one event."""
FORGOTTEN = 4
"""When a region remembers so many times more moves than it has attempts, it forgets the oldest."""


class Crowd:
    """The gangs of a region that share GPUs, and who was moved when."""

    def __init__(self) -> None:
        self._moved_s: dict[str, float] = {}
        """Working memory: after a restart a job may be moved once more."""

    def moves(self, placer: RegionState) -> list[tuple[Allocation, Plan]]:
        """Who is to move, and where to. O(attempts + slots), and a search for each that is tried."""
        rebalance, columns = placer.rebalance, placer.columns
        if rebalance is None or columns.layers == 1 or not placer.profile.rebalancing.migrate:
            return []
        idle = idle_only(columns)
        if not int(idle.free_milli.sum()):
            return []
        sharing = self._sharing(placer)
        able = [a for a in placer.state.allocations.values() if _may_move(a)]
        view = self._view(placer, able, sharing)
        found: list[tuple[Allocation, Plan]] = []
        for row in rebalance.moves(view)[:TRIED_AT_ONCE].tolist():
            to = _place(placer, idle, able[row], int(view.sharing[row]))
            if to is not None:
                idle.take(to.seats, able[row].needs())
                self._note(placer, able[row].job)
                found.append((able[row], to))
        return found

    def _note(self, placer: RegionState, job: str) -> None:
        self._moved_s.pop(job, None)
        self._moved_s[job] = placer.now
        if len(self._moved_s) > FORGOTTEN * (1 + len(placer.state.allocations)):
            del self._moved_s[next(iter(self._moved_s))]

    def _sharing(self, placer: RegionState) -> dict[tuple[str, int], int]:
        """By GPU, how many gangs were placed on it, and will be."""
        found: dict[tuple[str, int], int] = {}
        for allocation in placer.state.allocations.values():
            for seat in allocation.plan.seats:
                for slot in seat.slots:
                    key = (outer(seat.host), slot)
                    found[key] = found.get(key, 0) + 1
        return found

    def _view(
        self, placer: RegionState, able: list[Allocation], sharing: dict[tuple[str, int], int]
    ) -> CrowdView:
        now, profile = placer.now, placer.profile
        most = [
            max(sharing[outer(seat.host), slot] for seat in a.plan.seats for slot in seat.slots)
            for a in able
        ]
        lately_s = now - profile.rebalancing.retry_s
        moved_s = [self._moved_s.get(a.job, -np.inf) for a in able]
        count = len(able)
        return CrowdView(
            gpus=np.array([a.plan.gpus_milli / MILLI for a in able], np.float64),
            sharing=np.array(most, np.int64),
            age_s=np.array([now - a.start_s for a in able], np.float64),
            cost_s=np.full(count, profile.restart_cost_s),
            moved_lately=np.array(moved_s, np.float64) > lately_s,
        )


def idle_only(columns: Columns) -> Columns:
    """A copy in which only those GPUs are free that nobody holds in any layer, all of them in the first. O(slots)."""
    trial = columns.trial()
    free = trial.free_milli.reshape(columns.layers, -1)
    idle = (free == MILLI).all(axis=0)
    free[0] = np.where(idle, MILLI, 0)
    free[1:] = 0
    trial.available[columns.places :] = False
    free[0, np.repeat(~trial.available[: columns.places], columns.gpus[: columns.places])] = 0
    return trial


def _may_move(allocation: Allocation) -> bool:
    whole = all(seat.slots and seat.slot_milli == MILLI for seat in allocation.plan.seats)
    return whole and allocation.spec.preemptible and allocation.hold is Hold.RUNNING


def _place(placer: RegionState, idle: Columns, allocation: Allocation, sharing: int) -> Plan | None:
    """The best place on idle GPUs, if the gang is faster there than by its part of those that it has."""
    spec = allocation.spec
    sizes = {g.name: g.count for g in as_it_runs(placer.columns, allocation).groups}
    groups = tuple(GroupAsk(g.name, sizes[g.name], g.resources) for g in spec.groups)
    ask = Ask(allocation.job, groups, spec.topology, allocation.band, preempt=False)
    profile, state = placer.profile, placer.state
    to = Search(placer.region, idle, {}, profile, state.version, placer.now).best(ask).plan
    if to is None:
        return None
    here = spec.speed_on(allocation.plan.model) / sharing
    return to if spec.speed_on(to.model) > here else None
