"""What a region answers: its best plan for a job, or why there is none, and what would help."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from topmast.fast.region.explain.changes.trials import Spot, Trials
from topmast.fast.region.explain.rejections import Verdicts, pending_reason, victims_of
from topmast.fast.region.inventory.allocation import expected_end_s, to_external
from topmast.fast.region.inventory.columns import Columns
from topmast.fast.region.preemption.moving import Departure, departures, room_for
from topmast.fast.region.preemption.price import too_young_until_s
from topmast.fast.region.preemption.search import PreemptiveSearch
from topmast.fast.region.preemption.shrinking import room_by_shrinking
from topmast.fast.region.reservation.bookings import suits
from topmast.fast.region.reservation.first_starts import Ends, ends_of, first_start, kept_out
from topmast.fast.region.search.compiled import applies
from topmast.fast.region.search.search import fewest_gpus_milli
from topmast.fast.region.search.sizes import anywhere, cut, largest, least_of, with_tasks
from topmast.fast.region.state import RegionState
from topmast.model import messages as m
from topmast.model.bisection import fewer_than, fewest_with
from topmast.model.plan import (
    Colocate,
    Free,
    Move,
    PlacementRequest,
    Plan,
    Preempt,
    Reservation,
    Shrink,
)
from topmast.model.reason import ClusterVerdict, PendingReason, Rejection, VictimVerdict

FIRST_STARTS_KEPT = 64


class RegionAnswers(RegionState):
    """Questions to the state; none of them writes it."""

    def verdicts(
        self, ask: PlacementRequest, now: float, *, preempt: bool = True
    ) -> list[tuple[ClusterVerdict, Plan | None]]:
        """What a search finds in every cluster, by name: on free GPUs, else with preemption.

        Where a place is kept for the job, because it is being moved, that is what it will have.
        """
        found = self._best_plans(ask, now, preempt)
        return [(verdicts.of(name, plan), plan) for verdicts, name, plan in found]

    def rejected(
        self,
        ask: PlacementRequest,
        now: float,
        ruled_out: Callable[[str], Rejection | None],
        *,
        preempt: bool = True,
    ) -> dict[str, Rejection]:
        """The hosts that `verdicts` counts as rejected, by name.

        ``ruled_out``: why a cluster is none for the job as a whole.
        """
        found: dict[str, Rejection] = {}
        for verdicts, name, plan in self._best_plans(ask, now, preempt):
            found |= verdicts.rejected(name, plan, ruled_out(name))
        return found

    def _best_plans(
        self, ask: PlacementRequest, now: float, preempt: bool
    ) -> Iterator[tuple[Verdicts, str, Plan | None]]:
        kept = self.kept_offer(ask)
        place = None if kept is None else kept.plan
        search = self.search(now, ask)
        preempt = preempt and self._may_preempt(ask)
        verdicts = Verdicts(search, ask, preempt=preempt)
        for name in sorted(self.columns.clusters):
            mine = place is not None and place.cluster == name
            found = place if mine else search.best(ask, name)
            if found is None and preempt:
                found = search.best(msgspec.structs.replace(ask, mode=Preempt()), name)
            yield verdicts, name, None if found is None else to_external(found)

    def barred(
        self, ask: PlacementRequest, now: float, why: Rejection, detail: str
    ) -> list[ClusterVerdict]:
        """What there is to say of every cluster, by name, when the region is ruled out."""
        verdicts = Verdicts(self.search(now, ask), ask, preempt=False)
        return [verdicts.barred(name, why, detail) for name in sorted(self.columns.clusters)]

    def victims(self, plan: Plan, now: float) -> tuple[VictimVerdict, ...]:
        """Those that a plan stops and that have not let go yet, and what that costs."""
        return victims_of(self.search(now), plan)

    def place(
        self, ask: PlacementRequest, now: float, *, preempt: bool = True, gone: tuple[str, ...] = ()
    ) -> Spot | None:
        """Where the gang has a place, once the jobs ``gone`` are. As `Trials.place`."""
        search = self.search(now, ask)
        if gone:
            held = search.allocations
            search.columns = search.columns.without(held[job] for job in gone if job in held)
            search.allocations = {job: held[job] for job in held if job not in gone}
        return Trials(search, ask, preempt=preempt and self._may_preempt(ask)).place(ask)

    def trials(
        self,
        ask: PlacementRequest,
        now: float,
        *,
        preempt: bool = True,
        ends: Mapping[str, float] | None = None,
    ) -> Trials:
        """A gang that has no place, and copies of what is here, to try changes on.

        ``ends``: when jobs will be over by a forecast, if there is one.

        They may be tried while the region goes on. O(slots + attempts).
        """
        search, held = self.search(now, ask), self._is_held_here(ask)
        search.columns = search.columns.still()
        search.allocations = {job: copy.copy(a) for job, a in search.allocations.items()}
        return Trials(
            search,
            ask,
            preempt=preempt and self._may_preempt(ask),
            unheld=self.columns.still() if held else None,
            ends=ends,
        )

    def expected_ends(self, now: float) -> dict[str, float]:
        """When each attempt is expected to let go of its seats, by job."""
        held, default_s = self.state.allocations, self.profile.default_duration_s
        return {job: expected_end_s(held[job], default_s, now) for job in held}

    def _may_preempt(self, ask: PlacementRequest) -> bool:
        by_band = not self.preemption.by_rank
        return by_band and self.preemption.may_stop_for(ask.band)

    def offer(self, ask: PlacementRequest) -> m.Bid:
        """The best plan for a job, or why there is none. A place that is kept for it goes first."""
        kept = self.kept_offer(ask)
        if kept is not None:
            return kept
        if isinstance(ask.mode, Colocate):
            return self.sharing.colocate(ask, ask.mode.job)
        ask = anywhere(ask)
        plan = largest(ask, self._find)
        if plan is not None:
            return m.Bid(ask.job, plan)
        return self._refusal(ask if ask.more is None else with_tasks(ask, least_of(ask)))

    def _find(self, ask: PlacementRequest) -> Plan | None:
        """The best plan for a gang of one size, found as its request says."""
        match ask.mode:
            case Free() if self._is_held_here(ask) and applies(ask, self.score.weights(ask)):
                # Reserved seats are taken for a moment, without a copy of the columns. Not where
                # victims are looked for: their room is not counted beside such seats.
                assert ask.held is not None
                with kept_out(self.columns, ask.held):
                    unheld = msgspec.structs.replace(ask, held=None)
                    return self.search(self.now, unheld).best(ask)
            case Preempt(outranked=names) if names is not None:
                return self._outranking(self.search(self.now, ask), ask, names)
            case Move(worth_gpu_s=worth_gpu_s):
                return room_for(self.search(self.now, ask), ask, worth_gpu_s)
            case Shrink():
                search = self.search(self.now, ask)
                held = search.allocations
                search.allocations = {j: a for j, a in held.items() if self.sharing.may_resize(a)}
                return room_by_shrinking(search, ask)
        return self.search(self.now, ask).best(ask)

    def _is_held_here(self, ask: PlacementRequest) -> bool:
        """Whether seats of this region are reserved for another job."""
        return ask.held is not None and ask.held.region == self.region

    def kept_offer(self, ask: PlacementRequest) -> m.Bid | None:
        """The place kept for a job that moves, if it can still have it. O(1) for other jobs."""
        place = self.state.places.get(ask.job)
        if place is None or not suits(place, ask, self.columns):
            return None
        plan = cut(place.plan, ask)
        if plan is None:
            return None
        plan = msgspec.structs.replace(plan, region_version=self.state.version)
        return m.Bid(ask.job, plan, kept=True)

    def departures(self, hosts: tuple[str, ...], now: float) -> tuple[Departure, ...]:
        """What becomes of each attempt on hosts of this region that are drained."""
        search = self.search(now)
        search.allocations = self.state.allocations
        return departures(search, hosts)

    def _refusal(self, ask: PlacementRequest) -> m.Bid:
        """Why there is no plan for a job; and when there will be one, if that is asked."""
        reason, first, until_s = pending_reason(self.columns, ask), None, None
        if ask.preempt:
            held = self.stoppable() if ask.outranked is None else self.state.allocations
            until_s = too_young_until_s(held, ask, self.profile, self.now)
        if ask.reserve and reason is PendingReason.INSUFFICIENT_CAPACITY:
            first = self.first_start(ask)
        return m.Bid(ask.job, None, reason, until_s, first)

    def _outranking(
        self, search: PreemptiveSearch, ask: PlacementRequest, names: Sequence[str]
    ) -> Plan | None:
        """The best plan that stops some of the outranked: the last, and as few as will do.

        Nothing is searched where even all that these hold is not enough GPUs.
        """
        held = self.state.allocations
        last_first = [job for job in names if job in held]
        lacks_milli = fewest_gpus_milli(ask) - int(self.columns.free_milli.clip(0).sum())
        gains_milli = search.gains_milli([held[job] for job in last_first])
        too_few = fewer_than(lacks_milli, [gains_milli[job] for job in last_first])

        def stopping(jobs: Sequence[str]) -> Plan | None:
            return search.best(msgspec.structs.replace(ask, mode=Preempt(tuple(jobs))))

        def sparing(jobs: Sequence[str]) -> Plan | None:
            enough = sum([gains_milli[job] for job in jobs]) >= lacks_milli
            return stopping(jobs) if enough else None

        found = fewest_with(
            lambda count: stopping(last_first[:count]), len(last_first), too_few, too_few + 1
        )
        return None if found is None else _sparing(last_first[: found[0]], found[1], sparing)

    def first_start(
        self, ask: PlacementRequest, not_before_s: float = -math.inf
    ) -> Reservation | None:
        """Where and when the gang is expected to start first, from a known bound on."""
        ends = ends_of(self.state.allocations, self.profile.default_duration_s, self.now)
        if len(self.holds):  # what is held for a moment is not in the version of the books
            return self._first_start(ask, ends, self.now, not_before_s)
        version, known = self.state.version, self.first_starts.get(ask)
        if known is None or known[:2] != (version, ends):
            if len(self.first_starts) >= FIRST_STARTS_KEPT:
                self.first_starts.clear()
            found = self._first_start(ask, ends, self.now, not_before_s)
            known = self.first_starts[ask] = version, ends, found
        return known[2]

    def expected_start(self, ask: PlacementRequest, now: float) -> Reservation | None:
        """The same for people: nothing is remembered."""
        ends = ends_of(self.state.allocations, self.profile.default_duration_s, now)
        return self._first_start(ask, ends, now)

    def _first_start(
        self, ask: PlacementRequest, ends: Ends, now: float, not_before_s: float = -math.inf
    ) -> Reservation | None:
        search = self.search(now, ask)
        free = msgspec.structs.replace(ask, mode=Free())

        def find(columns: Columns) -> Plan | None:
            search.columns = columns
            return search.best(free)

        held = self.state.allocations
        return first_start(ask, self.region, search.columns, held, ends, find, not_before_s)


def _sparing(
    last_first: list[str], plan: Plan, stopping: Callable[[Sequence[str]], Plan | None]
) -> Plan:
    """The plan that stops only the needed of these: the first in rank is spared first.

    A plan that stops all of them cannot spare any: it is the cheapest. O(these) plans.
    """
    gone = last_first
    for job in reversed(last_first):
        if len(plan.victims) == len(gone):
            break
        fewer = [other for other in gone if other != job]
        without = stopping(fewer)
        if without is not None:
            gone, plan = fewer, without
    return plan
