"""Packing: two gangs on the same GPUs at the same time, on trial, and kept together if that is measured to be better.

Gandiva (OSDI '18): introspective mode. How fast a gang is the engine tells on request, as the step it has come to; two such
answers make a rate. Both rates alone are known before a trial, both beside the other when it is over. The policy `pack`
says who is tried, the policy `rebalance` who stays together; nothing else is known of them here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from msgspec import UNSET, Struct, UnsetType

from topmast.fast.cluster.attempt import Attempt, AttemptPhase, Turn
from topmast.fast.cluster.facts import Closed, Measured, Packed, PackKept, Unpacked
from topmast.fast.cluster.machine import RECONCILE_S
from topmast.fast.cluster.room import slots_of
from topmast.fast.cluster.turns import SlicingManager
from topmast.fast.machine import Fact
from topmast.fast.packing_speedups import Kind, PackingSpeedups, kind_of
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.fleet import HostSpec
from topmast.model.job import MILLI
from topmast.policies.base import PackPolicy, PackView, PairsView, RebalancePolicy
from topmast.policies.options import SliceOptions

SHORTEST = 0.4
"""A rate is taken over at least so much of a quantum."""
SEASONED = 1.0
"""A gang is tried beside another once it had its GPUs for so many quanta: its start does not count then."""


NOTABLE = 0.05
"""A rate has changed if it did by more than this part."""


LOOKS = 8
"""For so many quanta after its start a gang's rate is looked for, though nobody waits for its GPUs."""


class Window(Struct, gc=False):
    """Since when, and from which step on, a gang's pace is measured, and beside whom."""

    step: int
    at_s: float
    partner: str | None


class Packing(Struct, frozen=True):
    """The policies, and how long a trial is. Without ``pack`` gangs are measured, and not tried."""

    pack: PackPolicy | None
    rebalance: RebalancePolicy
    trial_s: float
    retry_s: float


class PackingManager(SlicingManager):
    """A cluster manager that tries gangs beside one another; without ``packing`` it does not."""

    def __init__(
        self,
        name: str,
        reconcile_s: float | None = RECONCILE_S,
        slices: SliceOptions | None = None,
        packing: Packing | None = None,
    ) -> None:
        super().__init__(name, reconcile_s, slices)
        self.packing = packing
        self._windows: dict[str, Window] = {}
        """What is being measured; lost with the process, and measured again."""
        self._pairs = 0
        self._told: dict[str, float] = {}
        """The rates that the placer was told."""
        self._looks: dict[str, int] = {}
        """Whose rate it is to be told, and for how many more quanta that is looked for."""
        self._gains = PackingSpeedups()
        self._models: dict[str, str] = {}
        self._models_of: tuple[HostSpec, ...] = ()

    # --- measuring ------------------------------------------------------------------------------

    def _measure(self, attempt: Attempt) -> None:
        """Ask how far a gang has come: one window ends, and the next begins."""
        if self.packing is not None and attempt.phase is AttemptPhase.RUNNING:
            self.send(ids.engine(self.name), m.ReadProgress(attempt.job, attempt.epoch))

    def _stand_still(self, attempt: Attempt) -> None:
        self._measure(attempt)
        super()._stand_still(attempt)

    def _go_on(self, attempt: Attempt) -> None:
        if self.packing is not None and attempt.held:
            self._looks[attempt.job] = LOOKS
        self._windows.pop(attempt.job, None)
        super()._go_on(attempt)
        self._measure(attempt)

    def _paced(self, event: m.ProgressReport) -> None:
        attempt = self._attempt(event.job, event.epoch)
        turns = None if attempt is None else attempt.turns
        if attempt is None or turns is None or attempt.phase is not AttemptPhase.RUNNING:
            return
        window = self._windows.pop(event.job, None)
        if not attempt.still:
            self._windows[event.job] = Window(event.step, event.at_s, turns.partner)
        if window is None or event.at_s - window.at_s < SHORTEST * self.slices.quantum_s:
            return
        rate = max(0, event.step - window.step) / (event.at_s - window.at_s)
        beside = window.partner is not None
        if (rate > 0 or beside) and window.partner == turns.partner:
            self.decide(Measured(event.job, event.epoch, rate, beside))
            if beside:
                self._judge(attempt)
        elif rate > 0 and not beside:
            self.decide(Measured(event.job, event.epoch, rate, beside=False))
        if rate > 0 and not beside and self._is_seasoned(attempt, window.at_s):
            self._tell_rate(attempt, rate)

    def _is_seasoned(self, attempt: Attempt, at_s: float) -> bool:
        """Whether it had had its GPUs for a while by then: its start does not count any more."""
        had_s = at_s - attempt.opened_s - turns_of(attempt).paused_until_s(at_s)
        return had_s >= SEASONED * self.slices.quantum_s

    def _tell_rate(self, attempt: Attempt, rate: float) -> None:
        """Tell the placer how fast a gang is, the first time and whenever that has changed."""
        known = self._told.get(attempt.job)
        if known is None or abs(rate - known) > NOTABLE * known:
            self._told[attempt.job] = rate
            self._looks.pop(attempt.job, None)
            self._tell(m.AttemptPaced(attempt.job, attempt.epoch, rate))

    # --- trials ---------------------------------------------------------------------------------

    def _wake(self, event: m.Wake) -> None:
        turn_s = self._next_turn_s()
        if self.packing is not None and turn_s is not None and turn_s <= self.now:
            for attempt in self.state.attempts.values():
                if attempt.turns is not None and not attempt.still:
                    self._measure(attempt)
            self._looks = {job: left - 1 for job, left in self._looks.items() if left > 1}
            self._end_trials(self.packing)
            self._try_pairs(self.packing)
        super()._wake(event)

    def _next_turn_s(self) -> float | None:
        """Who is beside another, or was never measured, is looked at in each quantum, whether or not anybody waits."""
        turn_s = super()._next_turn_s()
        if turn_s is None and (self._pairs or self._looks):
            return (self._turn_s or 0.0) + self.slices.quantum_s
        return turn_s

    def _end_trials(self, packing: Packing) -> None:
        """Part those of whom nothing was measured."""
        for attempt in list(self.state.attempts.values()):
            turns = attempt.turns
            if turns is None or turns.partner is None or turns.trial_s is None:
                continue
            if turns.trial_s + 2 * self.slices.quantum_s < self.now:
                self._part(attempt.job, turns.partner, "nothing was measured", packing)

    def _try_pairs(self, packing: Packing) -> None:
        """Put on trial whom the policy suggests, if nothing speaks against it."""
        if packing.pack is None:
            return
        able = [a for a in self.state.attempts.values() if self._may_be_tried(a)]
        if len(able) < 2:
            return
        view = self._view(able)
        taken: dict[int, bool] = {}
        for first, second in packing.pack.pairs(view):
            valid = view.may_join[first, second] and first != second
            if valid and first not in taken and second not in taken:
                taken[first] = taken[second] = True
                self._put_together(able[first], able[second], packing)

    def _may_be_tried(self, attempt: Attempt) -> bool:
        turns = attempt.turns
        if turns is None or attempt.phase is not AttemptPhase.RUNNING or turns.partner is not None:
            return False
        return (
            turns.rate is not None
            and self._is_seasoned(attempt, self.now)
            and all(t.seat.slot_milli == MILLI and t.seat.slots for t in attempt.tasks)
        )

    def _view(self, able: Sequence[Attempt]) -> PackView:
        """Columns over those who may be tried. O(n^2) within a place, O(n) beyond."""
        places: dict[object, int] = {}
        place = [places.setdefault(slots_of(a), len(places)) for a in able]
        used = [self._memory_used(a) for a in able]
        joins = np.zeros((len(able), len(able)), np.bool_)
        expected = np.full((len(able), len(able)), np.nan)
        rows: dict[int, list[int]] = {}
        for row, number in enumerate(place):
            for other in rows.setdefault(number, []):
                fits = used[row] + used[other] <= 1.0
                joins[row, other] = joins[other, row] = fits and self._untried(
                    able[row], able[other]
                )
                gain = self._gain_expected(able[row], able[other])
                expected[row, other] = expected[other, row] = np.nan if gain is None else gain
            rows[number].append(row)
        turns = [turns_of(a) for a in able]
        return PackView(
            place=np.array(place, np.int64),
            gpus=np.array([len(slots_of(a)) for a in able], np.float64),
            memory=np.array(used, np.float64),
            rate=np.array([t.rate or 0.0 for t in turns], np.float64),
            failures=np.array([len(t.refused) for t in turns], np.int64),
            may_join=joins,
            expected=expected,
        )

    def _untried(self, one: Attempt, two: Attempt) -> bool:
        """Either may have begun anew since they were tried."""
        until_s = turns_of(one).refused.get(two.job, 0.0), turns_of(two).refused.get(one.job, 0.0)
        return max(until_s) <= self.now

    def _gain_expected(self, one: Attempt, two: Attempt) -> float | None:
        return self._gains.expected(_kind(one), _kind(two), self._model(one))

    def _model(self, attempt: Attempt) -> str:
        """The GPU model that a gang runs on."""
        hosts = self.state.cluster.hosts if self.state.cluster is not None else ()
        if self._models_of is not hosts:
            self._models, self._models_of = {host.name: host.model for host in hosts}, hosts
        return self._models.get(attempt.tasks[0].seat.host, "")

    def _memory_used(self, attempt: Attempt) -> float:
        """Of the memory of a GPU, the fullest; 0 where the fleet file or the job does not say."""
        hosts = {h.name: h for h in self.state.cluster.hosts} if self.state.cluster else {}
        asked = {g.name: g.resources.gpu_memory_bytes for g in attempt.spec.groups}
        parts = [0.0]
        for seat in (task.seat for task in attempt.tasks):
            host = hosts.get(seat.host)
            if host is not None and host.gpu_memory_bytes:
                parts.append(asked[seat.group] / host.gpu_memory_bytes)
        return max(parts)

    def _put_together(self, first: Attempt, second: Attempt, packing: Packing) -> None:
        self.decide(Packed(first.job, second.job, self.now + packing.trial_s))
        for attempt, other in ((first, second), (second, first)):
            self._tell(m.AttemptPacked(attempt.job, attempt.epoch, other.job, "on trial"))

    def _judge(self, attempt: Attempt) -> None:
        """Both were measured beside the other: do they stay together?"""
        turns, packing = turns_of(attempt), self.packing
        other = self.state.attempts.get(turns.partner or "")
        if other is None or packing is None:
            return
        its = turns_of(other)
        if turns.beside is None or its.beside is None or not turns.rate or not its.rate:
            return
        if turns.trial_s is not None and self.now < turns.trial_s - SHORTEST:
            return
        columns = [np.array([x]) for x in (turns.rate, turns.beside, its.rate, its.beside)]
        first, second = turns.beside / turns.rate, its.beside / its.rate
        told = f"{first:.2f} and {second:.2f} of their speeds alone"
        gain = first + second
        self._gains.note(_kind(attempt), _kind(other), self._model(attempt), gain)
        if packing.rebalance.keep(PairsView(*columns))[0]:
            if turns.trial_s is not None:
                self.decide(PackKept(attempt.job, other.job))
                for one, two in ((attempt, other), (other, attempt)):
                    why = f"kept, {told}"
                    self._tell(m.AttemptPacked(one.job, one.epoch, two.job, why, gain))
        else:
            self._part(attempt.job, other.job, f"taken back, {told}", packing, gain)
            self._give_turns()

    def _part(
        self, job: str, other: str, why: str, packing: Packing, gain: float | UnsetType = UNSET
    ) -> None:
        self.decide(Unpacked(job, other, self.now + packing.retry_s))
        for name in (job, other):
            attempt = self.state.attempts[name]
            self._tell(m.AttemptPacked(name, attempt.epoch, "", why, gain))
            self._windows.pop(name, None)
            self._measure(attempt)

    def _close(self, attempt: Attempt) -> None:
        turns = attempt.turns
        partner = self.state.attempts.get((turns.partner or "") if turns is not None else "")
        super()._close(attempt)
        self._windows.pop(attempt.job, None)
        self._told.pop(attempt.job, None)
        self._looks.pop(attempt.job, None)
        if partner is not None:
            self._tell(m.AttemptPacked(partner.job, partner.epoch, "", "the other is over"))
            self._windows.pop(partner.job, None)
            self._measure(partner)

    def _in_turn(self, anew: bool) -> Callable[[Attempt], tuple[Any, ...]]:
        """Who is on trial goes first, so that both can be measured."""
        usual = super()._in_turn(anew)

        def key(attempt: Attempt) -> tuple[Any, ...]:
            turns = attempt.turns
            return (turns is None or turns.trial_s is None, *usual(attempt))

        return key

    # --- facts ----------------------------------------------------------------------------------

    def _apply_measured(self, fact: Measured, event: m.Message) -> None:
        turns = turns_of(self.state.attempts[fact.job])
        if fact.beside:
            turns.beside = fact.rate
        else:
            turns.rate = fact.rate

    def _apply_packed(self, fact: Packed, event: m.Message) -> None:
        for job, other in ((fact.job, fact.other), (fact.other, fact.job)):
            turns_of(self.state.attempts[job]).pair(other, fact.until_s, self.now)
        self._pairs += 1

    def _apply_kept(self, fact: PackKept, event: m.Message) -> None:
        for job in (fact.job, fact.other):
            turns_of(self.state.attempts[job]).trial_s = None

    def _apply_unpacked(self, fact: Unpacked, event: m.Message) -> None:
        for job, other in ((fact.job, fact.other), (fact.other, fact.job)):
            turns = turns_of(self.state.attempts[job])
            turns.part(self.now)
            turns.refused = {j: s for j, s in turns.refused.items() if s > self.now}
            turns.refused[other] = fact.not_before_s
        self._pairs -= 1

    def _apply_closed(self, fact: Closed, event: m.Message) -> None:
        turns = self.state.attempts[fact.job].turns
        other = self.state.attempts.get((turns.partner or "") if turns is not None else "")
        if other is not None:
            turns_of(other).part(self.now)
            self._pairs -= 1
        super()._apply_closed(fact, event)

    def restore(self, blob: bytes) -> None:
        """Take up a state written by ``snapshot``."""
        super().restore(blob)
        self._windows = {}
        turns = [attempt.turns for attempt in self.state.attempts.values()]
        self._pairs = sum(t is not None and t.partner is not None for t in turns) // 2

    handlers: ClassVar[dict[type[m.Message], Callable[..., Any]]] = {
        **SlicingManager.handlers,
        m.Wake: _wake,
        m.ProgressReport: _paced,
    }
    appliers: ClassVar[dict[type[Fact], Callable[..., None]]] = {
        **SlicingManager.appliers,
        Closed: _apply_closed,
        Measured: _apply_measured,
        Packed: _apply_packed,
        PackKept: _apply_kept,
        Unpacked: _apply_unpacked,
    }


def turns_of(attempt: Attempt) -> Turn:
    """The turns of a gang that takes turns."""
    turns = attempt.turns
    assert turns is not None, attempt.job
    return turns


def _kind(attempt: Attempt) -> Kind | None:
    return kind_of(attempt.spec, len(slots_of(attempt)))
