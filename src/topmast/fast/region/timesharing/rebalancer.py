"""Crowded and slow GPUs: gangs move to idle GPUs, or to a gang with which they may go well.

Gandiva (OSDI '18): introspective mode. When jobs end, idle GPUs stand beside GPUs with several
gangs; and gangs lie on GPUs beside others with which they cannot be packed. Slices alone do not
mend that. The policy `rebalance` chooses the gangs to move, and judges moves; a move is that of any
attempt with a booked place (see moving).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec
import numpy as np

from topmast.fast.packing_speedups import Kind, PackingSpeedups, kind_of
from topmast.fast.region.hooks import Going
from topmast.fast.region.inventory.allocation import Allocation, AllocationPhase
from topmast.fast.region.inventory.columns import Columns, Ints
from topmast.fast.region.preemption.moving import as_it_runs
from topmast.fast.region.search.search import Search
from topmast.fast.region.state import RegionState
from topmast.fast.region.timesharing.grow_shrink import (
    Resize,
    idle_only,
    keeps_size,
    larger,
    smaller,
    view_of,
    why_resized,
)
from topmast.fast.region.timesharing.packing_candidates import (
    Join,
    SharingSnapshot,
    joins,
    place_on_gpus_of,
    slots_of,
)
from topmast.fast.region.timesharing.pairs import PairHooks
from topmast.fast.region.timesharing.slot_affinity import SlotAffinity
from topmast.fast.region.timesharing.trial_moves import TrialMoves
from topmast.model import messages as m
from topmast.model.job import MILLI, needs_of_engine
from topmast.model.plan import GroupRequest, PlacementRequest, Plan
from topmast.policies.base import JoinView, SharingView

TRIED_AT_ONCE = 16
"""For so many gangs a place is looked for after one event."""
FORGOTTEN = 4
"""When a region remembers so many times more than it has attempts, it forgets the oldest."""
TO_IDLE = "moved to idle GPUs, because other jobs share its GPUs"
TO_FASTER = "moved to idle GPUs of a model on which it is faster"


class SharingRebalancer(PairHooks):
    """The gangs of a region that share GPUs: when each was moved, and the pairs tried in vain.

    Working memory: after a restart a job may be moved, or two may be brought together, once more.
    """

    def __init__(self, placer: RegionState) -> None:
        super().__init__(placer)
        self.in_turns = placer.profile.slices.layers > 1
        self.affinity = SlotAffinity() if self.in_turns else None
        self._moved_s: dict[str, float] = {}
        self._refused: dict[tuple[str, str], float] = {}
        """By two jobs, until when they are not to be tried together."""
        self._failures: dict[str, int] = {}
        self._moves = TrialMoves()
        self._gains = PackingSpeedups()
        self._looked_s = -np.inf
        """When a gang to join was looked for last."""
        self._sizes_s = -np.inf
        """When the gangs that had better have fewer tasks were looked for last."""

    # --- what is told ---------------------------------------------------------------------------

    def note_gain(self, one: Allocation, two: Allocation, gain: float) -> None:
        """What two were measured to do together, as a sum; turns make 1."""
        self._gains.note(_kind(one), _kind(two), one.plan.model, gain)

    def note_parted(self, job: str, other: str) -> None:
        """Two that both go on were tried together in vain, or go well together no more."""
        placer = self._placer
        one, two = sorted((job, other))
        if self._refused.get((one, two), 0.0) > placer.now:
            return  # the other of the two was told before
        self._refused.pop((one, two), None)
        self._refused[one, two] = placer.now + placer.profile.rebalancing.retry_s
        for name in (one, two):
            self._failures[name] = self._failures.get(name, 0) + 1
        most = FORGOTTEN * (16 + len(placer.state.allocations))
        while len(self._refused) > most:
            del self._refused[next(iter(self._refused))]
        while len(self._failures) > most:
            del self._failures[next(iter(self._failures))]

    def note_rate(self, event: m.AttemptPaced) -> Going | None:
        """A gang's speed; the way back of a moved gang that does less than before, if any."""
        placer = self._placer
        rebalance, allocation = placer.rebalance, placer.held(event.job, event.epoch)
        if rebalance is None or allocation is None:
            return None
        view = self._moves.note_rate(event.job, event.epoch, event.rate)
        self._moves.forget(len(placer.state.allocations))
        if view is None:
            return None
        good = bool(rebalance.good(view)[0])
        move = self._moves.judged(event.job, allocation.plan, good=good)
        if move is None or not _may_move(allocation) or allocation.paired:
            return None
        scene = self._scene()
        back = msgspec.structs.replace(allocation, plan=move.plan)
        there = max([scene.sharing.get(slot, 0) for slot in slots_of(back)]) + 1
        to = place_on_gpus_of(placer.columns, allocation, back) if there <= move.sharing else None
        if to is None:
            return None
        part = float(view.after[0] / view.before[0])
        self._note(allocation, scene.crowd(allocation), there, back=True)
        return Going(allocation, to, f"moved back: it does {part:.2f} of what it did before")

    # --- moves ----------------------------------------------------------------------------------

    def moves(self) -> list[Going]:
        """The gangs to move, and where to. O(attempts x slots), and a search for each tried."""
        placer = self._placer
        if placer.rebalance is None or placer.columns.slices == 1:
            return []
        scene = self._scene()
        found = self._to_idle(scene) if placer.profile.rebalancing.migrate else []
        if placer.profile.rebalancing.join and self.is_due():
            self._looked_s = placer.now
            gone = {going.allocation.job: True for going in found}
            found += self._to_join(scene, gone)
        return found

    def is_due(self) -> bool:
        """Whether to look for gangs to join now: once a quantum, as little changes within."""
        placer = self._placer
        joins = placer.profile.rebalancing.join and placer.rebalance is not None
        return joins and placer.now >= self._looked_s + placer.profile.slices.quantum_s

    # --- other sizes ----------------------------------------------------------------------------

    def grows(self, allocation: Allocation, most: int) -> Going | None:
        """Where a gang with GPUs of its own goes on with up to ``most`` tasks, if worth it.

        Idle GPUs are left to gangs that would be faster there. O(attempts x slots), and a search
        for each of those.
        """
        placer = self._placer
        if placer.rebalance is None or not self._may_resize(allocation):
            return None
        scene = self._scene()
        if scene.crowd(allocation) > 1:
            return None
        left = self._left_to_movers(scene)
        idle = idle_only(placer.columns, allocation)
        for mover, to in left:
            idle.take(to.seats, mover.needs(), to.in_slice)
        slow = self._moves.slow_hosts(allocation.job)
        resize = larger(_search(placer, idle), allocation, most, slow)
        found = self._resized([] if resize is None else [resize])
        return found[0] if found else None

    def gives_way(self) -> list[Going]:
        """Elastic gangs that go on with fewer tasks, so that all have GPUs of their own.

        Looked at every `elastic.every_s`. O(attempts x slots), and log tasks searches for each gang
        that shares.
        """
        placer = self._placer
        options = placer.profile.elastic
        due = placer.now >= self._sizes_s + options.every_s
        if not (due and options.shrink) or placer.rebalance is None or placer.columns.slices == 1:
            return []
        settled_s = placer.now - options.settle_s
        held = placer.state.allocations.values()
        old = [a for a in held if a.spec.elastic is not None and a.start_s <= settled_s]
        if not old:
            return []
        self._sizes_s = placer.now
        scene, found = self._scene(), list[Resize]()
        for allocation in old:
            if self._may_resize(allocation) and scene.crowd(allocation) > 1:
                search = _search(placer, idle_only(placer.columns, allocation))
                slow = self._moves.slow_hosts(allocation.job)
                resize = smaller(scene, search, allocation, held, slow)
                found += [] if resize is None else [resize]
        return self._resized(found)

    def may_resize(self, allocation: Allocation) -> bool:
        """Whether nothing that is being measured of a gang would be lost by another size."""
        return not allocation.paired and not self._moves.is_unjudged(
            allocation.job, allocation.epoch
        )

    def _may_resize(self, allocation: Allocation) -> bool:
        is_able = allocation.spec.elastic is not None and _may_move(allocation)
        return is_able and self.may_resize(allocation)

    def _left_to_movers(self, scene: SharingSnapshot) -> list[tuple[Allocation, Plan]]:
        """Idle GPUs for gangs that may move now or soon, and be faster there; most gain first."""
        placer = self._placer
        if placer.rebalance is None or not placer.profile.rebalancing.migrate:
            return []
        idle = idle_only(placer.columns)
        view = self._view(scene, idle)
        # A gang too young to be worth a move now will be old enough.
        grown_old = msgspec.structs.replace(view, age_s=np.full(len(scene.able), np.inf))
        return list(self._faster_on(scene, idle, placer.rebalance.moves(grown_old)))

    def _faster_on(
        self, scene: SharingSnapshot, idle: Columns, rows: Ints
    ) -> Iterator[tuple[Allocation, Plan]]:
        """Of gangs (rows), those that would be faster on idle GPUs, which they take; and where."""
        for mover in [scene.able[row] for row in rows[:TRIED_AT_ONCE].tolist()]:
            slow = self._moves.slow_hosts(mover.job)
            to = _place(self._placer, idle, mover, scene.crowd(mover), slow)
            if to is not None:
                idle.take(to.seats, mover.needs(), to.in_slice)
                yield mover, to

    def _resized(self, found: list[Resize]) -> list[Going]:
        """Worthwhile sizes, at most one for each gang concerned, on GPUs that no other goes to."""
        placer = self._placer
        if placer.rebalance is None or not found:
            return []
        chosen, concerned = list[Going](), dict[str, bool]()
        taken: dict[tuple[str, int], int] = {}
        for row in placer.rebalance.sizes(view_of(found, placer.profile)).tolist():
            resize = found[row]
            names = (resize.allocation.job, *resize.others)
            there: dict[tuple[str, int], int] = {}
            _count(resize.to, there)
            if any(name in concerned for name in names) or any(slot in taken for slot in there):
                continue
            concerned.update(dict.fromkeys(names, True))
            taken.update(there)
            if keeps_size(resize):
                self._note(resize.allocation, resize.crowd, 1)
            else:
                self._moves.note_size(resize.allocation.job, resize.allocation.epoch)
            chosen.append(Going(resize.allocation, resize.to, why_resized(resize)))
        return chosen

    def _to_idle(self, scene: SharingSnapshot) -> list[Going]:
        placer = self._placer
        idle = idle_only(placer.columns)
        if placer.rebalance is None or not int(idle.free_milli.sum()):
            return []
        rows = placer.rebalance.moves(self._view(scene, idle))
        found = []
        for mover, to in self._faster_on(scene, idle, rows):
            sharing = scene.crowd(mover)
            self._note(mover, sharing, 1)
            found.append(Going(mover, to, TO_IDLE if sharing > 1 else TO_FASTER))
        return found

    def _to_join(self, scene: SharingSnapshot, gone: dict[str, bool]) -> list[Going]:
        now, options = self._placer.now, self._placer.profile.rebalancing
        lately_s, oldest_s = now - options.join_retry_s, now - options.migrate_after_s
        movers = [
            a
            for a in scene.able
            if a.job not in gone
            and a.start_s <= oldest_s
            and self._moved_s.get(a.job, -np.inf) <= lately_s
            and scene.crowd(a) > 1
        ]
        movers.sort(key=lambda a: (scene.failures(a.job), -scene.crowd(a), a.job))
        found = [join for join in joins(scene, movers) if join.other.job not in gone]
        return [self._joins(scene, join) for join in self._worth(found)]

    def _worth(self, found: list[Join]) -> list[Join]:
        placer = self._placer
        if placer.rebalance is None or not found:
            return []
        view = JoinView(
            gpus=np.array([j.mover.plan.gpus_milli / MILLI for j in found], np.float64),
            age_s=np.array(
                [placer.now - max(j.mover.start_s, j.other.start_s) for j in found], np.float64
            ),
            cost_s=np.full(len(found), placer.profile.restart_cost_s),
            expected=np.array([np.nan if j.expected is None else j.expected for j in found]),
        )
        return [found[row] for row in placer.rebalance.joins(view)[:TRIED_AT_ONCE].tolist()]

    def _joins(self, scene: SharingSnapshot, join: Join) -> Going:
        self._note(join.mover, join.sharing, scene.crowd(join.other) + 1)
        why = f"moved to the GPUs of {join.other.job}, to be tried beside it"
        return Going(join.mover, join.to, why)

    def _note(
        self, allocation: Allocation, sharing: int, there: int, *, back: bool = False
    ) -> None:
        job, placer = allocation.job, self._placer
        self._moves.note_move(job, allocation.epoch, allocation.plan, sharing, there, back=back)
        self._moved_s.pop(job, None)
        self._moved_s[job] = placer.now
        if len(self._moved_s) > FORGOTTEN * (16 + len(placer.state.allocations)):
            del self._moved_s[next(iter(self._moved_s))]

    def _scene(self) -> SharingSnapshot:
        """Gangs that may move, and how many were placed on each GPU, and will be. O(slots held)."""
        sharing: dict[tuple[str, int], int] = {}
        awaited: dict[tuple[str, int], bool] = {}
        placer, state = self._placer, self._placer.state
        for allocation in state.allocations.values():
            _count(allocation.plan, sharing)
        for place in state.places.values():
            _count(place.plan, sharing)
            for seat in place.plan.seats:
                awaited.update(dict.fromkeys([(seat.host, s) for s in seat.slots], True))
        able = [a for a in state.allocations.values() if _may_move(a)]

        def expected(one: Allocation, two: Allocation) -> float | None:
            return self._gains.expected(_kind(one), _kind(two), two.plan.model)

        def may_try(one: Allocation, two: Allocation) -> bool:
            pair = (one.job, two.job) if one.job < two.job else (two.job, one.job)
            gain = expected(one, two)
            worth = gain is None or gain >= placer.profile.rebalancing.gain
            return worth and self._refused.get(pair, 0.0) <= placer.now

        return SharingSnapshot(
            placer.columns, able, sharing, awaited, may_try,
            lambda job: self._failures.get(job, 0), self._moves.slow_hosts, expected,
        )  # fmt: skip

    def _view(self, scene: SharingSnapshot, idle: Columns) -> SharingView:
        now, profile, able = self._placer.now, self._placer.profile, scene.able
        there = _idle_by_model(idle)
        lately_s = now - profile.rebalancing.retry_s
        moved_s = [self._moved_s.get(a.job, -np.inf) for a in able]
        return SharingView(
            gpus=np.array([a.plan.gpus_milli / MILLI for a in able], np.float64),
            sharing=np.array([scene.crowd(a) for a in able], np.int64),
            idle_speed=np.array([_idle_speed(a, there) for a in able], np.float64),
            paired=np.array([bool(a.paired) for a in able], np.bool_),
            age_s=np.array([now - a.start_s for a in able], np.float64),
            cost_s=np.full(len(able), profile.restart_cost_s),
            moved_lately=np.array(moved_s, np.float64) > lately_s,
        )


def _kind(allocation: Allocation) -> Kind | None:
    return kind_of(allocation.spec, allocation.plan.gpus_milli // MILLI)


def _count(plan: Plan, sharing: dict[tuple[str, int], int]) -> None:
    for seat in plan.seats:
        for slot in seat.slots:
            key = (seat.host, slot)
            sharing[key] = sharing.get(key, 0) + 1


def _idle_by_model(idle: Columns) -> dict[str, int]:
    """How many GPUs of each model are free in the first time slice. O(slots)."""
    free = idle.free_milli.reshape(idle.slices, -1)[0] == MILLI
    models = np.repeat(idle.models[: idle.places], idle.gpus[: idle.places])[free]
    names, counts = np.unique(models.astype(np.str_), return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))


def _idle_speed(allocation: Allocation, there: Mapping[str, int]) -> float:
    """A gang's speed on the fastest model with enough GPUs, over its speed now. O(models)."""
    spec, plan = allocation.spec, allocation.plan
    speeds = [
        spec.speed_on(model)
        for model, gpus in there.items()
        if gpus * MILLI >= plan.gpus_milli and _takes(allocation, model)
    ]
    return max(speeds, default=0.0) / spec.speed_on(plan.model)


def _takes(allocation: Allocation, model: str) -> bool:
    """Whether all groups of a gang that have GPUs may have those of a model."""
    listed = [g.resources.accelerators for g in allocation.spec.groups]
    return all(any(a.model in (model, None) for a in each) for each in listed if each)


def _may_move(allocation: Allocation) -> bool:
    whole = all(seat.slots and seat.slot_milli == MILLI for seat in allocation.plan.seats)
    return whole and allocation.spec.preemptible and allocation.hold is AllocationPhase.RUNNING


def _search(placer: RegionState, columns: Columns) -> Search:
    """A search over empty columns, as the policies price it."""
    state = placer.state
    return Search(placer.region, columns, {}, placer.profile, state.version, placer.now)


def _place(
    placer: RegionState, idle: Columns, allocation: Allocation, sharing: int, slow: Iterable[str]
) -> Plan | None:
    """The best place on idle GPUs, if the gang is faster there than by its turns now."""
    spec = allocation.spec
    sizes = {g.name: g.count for g in as_it_runs(placer.columns, allocation).groups}
    groups = tuple(GroupRequest(g.name, sizes[g.name], g.resources) for g in spec.groups)
    ask = PlacementRequest(
        allocation.job, groups, spec.topology, allocation.band, avoid_hosts=tuple(slow),
        needs=needs_of_engine(spec),
    )  # fmt: skip
    search = _search(placer, idle)
    to = search.best(ask)
    if to is None:
        return None
    here = spec.speed_on(allocation.plan.model) / sharing
    return to if spec.speed_on(to.model) > here else None
