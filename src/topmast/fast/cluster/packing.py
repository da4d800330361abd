"""Packing: two gangs on the same GPUs at the same time, on trial, then kept if that is faster.

Gandiva (OSDI '18): introspective mode. The engine tells a gang's step on request; two answers make
a rate. Both rates alone are known before a trial, both rates together after it. The policy `pack`
chooses the pairs to try, the policy `rebalance` those to keep; no more is known of them here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import UNSET, Struct, UnsetType

from topmast.fast.cluster import facts as f
from topmast.fast.cluster.attempt import Attempt, AttemptPhase, turns_of
from topmast.fast.cluster.gangs import GangLifecycle
from topmast.fast.cluster.room import slots_of
from topmast.fast.machine import Fact
from topmast.fast.packing_speedups import Kind, PackingSpeedups, kind_of
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.model.job import MILLI
from topmast.policies.base import PackPolicy, PackView, PairsView, RebalancePolicy

SHORTEST = 0.4
"""A rate is taken over at least so much of a quantum."""
SEASONED = 1.0
"""Quanta with its GPUs before a gang is tried beside another: its start does not count."""


NOTABLE = 0.05
"""A rate has changed if it did by more than this part."""


LOOKS = 8
"""Quanta after its start in which a gang's rate is looked for, even if no other wants its GPUs."""


class Window(Struct, gc=False):
    """The time and step from which on a gang's pace is measured, and its partner then."""

    step: int
    at_s: float
    partner: str | None


class Packing(Struct, frozen=True):
    """The policies, and how long a trial is. Without ``pack`` gangs are measured, and not tried."""

    pack: PackPolicy | None
    rebalance: RebalancePolicy
    trial_s: float
    retry_s: float


class PackingJudge:
    """Measures gangs that take turns, and tries pairs of them; without ``packing`` neither.

    Pairs from before a restart are judged by nothing then, and last as long as both.
    """

    def __init__(self, gangs: GangLifecycle, quantum_s: float, packing: Packing | None) -> None:
        self._gangs = gangs
        self._quantum_s = quantum_s
        self._packing = packing
        self._windows: dict[str, Window] = {}
        """What is being measured; lost with the process, and measured again."""
        self._pairs = 0
        self._told: dict[str, float] = {}
        """The rates that the placer was told."""
        self._looks: dict[str, int] = {}
        """By job to be told its rate: for how many more quanta that is looked for."""
        self._gains = PackingSpeedups()
        self._hosts: dict[str, HostSpec] = {}
        self._hosts_of: ClusterSpec | None = None

    # --- measuring ------------------------------------------------------------------------------

    def measure(self, attempt: Attempt) -> None:
        """Ask how far a gang has come: one window ends, and the next begins."""
        if self._packing is not None and attempt.phase is AttemptPhase.RUNNING:
            ask = m.ReadProgress(attempt.job, attempt.epoch)
            self._gangs.send(ids.engine(self._gangs.name), ask)

    def goes_on(self, attempt: Attempt) -> None:
        """A gang gets its GPUs, perhaps first: the measurements before are no window any more."""
        if self._packing is not None and attempt.held:
            self._looks[attempt.job] = LOOKS
        self._windows.pop(attempt.job, None)

    def progress(self, event: m.ProgressReport) -> bool:
        """A gang has come to a step. Whether a pair was parted for it."""
        attempt = self._gangs.attempt(event.job, event.epoch)
        turns = None if attempt is None else attempt.turns
        if attempt is None or turns is None or attempt.phase is not AttemptPhase.RUNNING:
            return False
        window = self._windows.pop(event.job, None)
        if not attempt.still:
            self._windows[event.job] = Window(event.step, event.at_s, turns.partner)
        if window is None or event.at_s - window.at_s < SHORTEST * self._quantum_s:
            return False
        parted = False
        rate = max(0, event.step - window.step) / (event.at_s - window.at_s)
        beside = window.partner is not None
        if (rate > 0 or beside) and window.partner == turns.partner:
            self._gangs.decide(f.Measured(event.job, event.epoch, rate, beside))
            parted = beside and self._judge(attempt)
        elif rate > 0 and not beside:
            self._gangs.decide(f.Measured(event.job, event.epoch, rate, beside=False))
        if rate > 0 and not beside and self._is_seasoned(attempt, window.at_s):
            self._tell_rate(attempt, rate)
        return parted

    def _is_seasoned(self, attempt: Attempt, at_s: float) -> bool:
        """Whether it had had its GPUs for a while by then: its start does not count any more."""
        had_s = at_s - attempt.opened_s - turns_of(attempt).paused_until_s(at_s)
        return had_s >= SEASONED * self._quantum_s

    def _tell_rate(self, attempt: Attempt, rate: float) -> None:
        """Tell the placer how fast a gang is, the first time and whenever that has changed."""
        known = self._told.get(attempt.job)
        if known is None or abs(rate - known) > NOTABLE * known:
            self._told[attempt.job] = rate
            self._looks.pop(attempt.job, None)
            self._gangs.tell(m.AttemptPaced(attempt.job, attempt.epoch, rate))

    # --- trials ---------------------------------------------------------------------------------

    @property
    def looks(self) -> bool:
        """Whether to look each quantum, though none waits: at a pair, or a gang never measured."""
        return bool(self._pairs or self._looks)

    def ends_quantum(self) -> None:
        """A quantum is over: those that ran are measured, and others tried together."""
        if self._packing is None:
            return
        for attempt in self._gangs.state.attempts.values():
            if attempt.turns is not None and not attempt.still:
                self.measure(attempt)
        self._looks = {job: left - 1 for job, left in self._looks.items() if left > 1}
        self._end_trials(self._packing)
        self._try_pairs(self._packing)

    def _end_trials(self, packing: Packing) -> None:
        """Part pairs that were not measured."""
        for attempt in list(self._gangs.state.attempts.values()):
            turns = attempt.turns
            if turns is None or turns.partner is None or turns.trial_s is None:
                continue
            if turns.trial_s + 2 * self._quantum_s < self._gangs.now:
                self._part(attempt.job, turns.partner, "nothing was measured", packing)

    def _try_pairs(self, packing: Packing) -> None:
        """Put on trial the pairs that the policy suggests, if nothing speaks against it."""
        if packing.pack is None:
            return
        able = [a for a in self._gangs.state.attempts.values() if self._may_be_tried(a)]
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
            and self._is_seasoned(attempt, self._gangs.now)
            and all(t.seat.slot_milli == MILLI and t.seat.slots for t in attempt.tasks)
        )

    def _view(self, able: Sequence[Attempt]) -> PackView:
        """Columns over gangs that may be tried. O(n^2) within a place, O(n) beyond."""
        places: dict[object, int] = {}
        place = [places.setdefault(slots_of(a), len(places)) for a in able]
        used = [self._memory_used(a) for a in able]
        joins = np.zeros((len(able), len(able)), np.bool_)
        expected = np.full((len(able), len(able)), np.nan)
        rows: dict[int, list[int]] = {}
        for row, number in enumerate(place):
            for other in rows.setdefault(number, []):
                one, two = able[row], able[other]
                may_join = used[row] + used[other] <= 1.0 and self._untried(one, two)
                joins[row, other] = joins[other, row] = may_join
                gain = self._gains.expected(_kind(one), _kind(two), self._model(one))
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
        return max(until_s) <= self._gangs.now

    def _model(self, attempt: Attempt) -> str:
        """The GPU model that a gang runs on."""
        host = self._host(attempt.tasks[0].seat.host)
        return "" if host is None else host.model

    def _host(self, name: str) -> HostSpec | None:
        """A host of the cluster."""
        cluster = self._gangs.state.cluster
        if self._hosts_of is not cluster and cluster is not None:
            self._hosts, self._hosts_of = {host.name: host for host in cluster.hosts}, cluster
        return self._hosts.get(name)

    def _memory_used(self, attempt: Attempt) -> float:
        """Of the memory of a GPU, the fullest; 0 where the fleet file or the job does not say."""
        asked = {g.name: g.resources.gpu_memory_bytes for g in attempt.spec.groups}
        parts = [0.0]
        for seat in (task.seat for task in attempt.tasks):
            host = self._host(seat.host)
            if host is not None and host.gpu_memory_bytes:
                parts.append(asked[seat.group] / host.gpu_memory_bytes)
        return max(parts)

    def _put_together(self, first: Attempt, second: Attempt, packing: Packing) -> None:
        self._gangs.decide(f.Packed(first.job, second.job, self._gangs.now + packing.trial_s))
        for attempt, other in ((first, second), (second, first)):
            self._gangs.tell(m.AttemptPacked(attempt.job, attempt.epoch, other.job, "on trial"))

    def _judge(self, attempt: Attempt) -> bool:
        """Both were measured beside the other: do they stay together? Whether they were parted."""
        turns, packing = turns_of(attempt), self._packing
        other = self._gangs.state.attempts.get(turns.partner or "")
        if other is None or packing is None:
            return False
        its = turns_of(other)
        if turns.beside is None or its.beside is None or not turns.rate or not its.rate:
            return False
        if turns.trial_s is not None and self._gangs.now < turns.trial_s - SHORTEST:
            return False
        columns = [np.array([x]) for x in (turns.rate, turns.beside, its.rate, its.beside)]
        first, second = turns.beside / turns.rate, its.beside / its.rate
        told = f"{first:.2f} and {second:.2f} of their speeds alone"
        gain = first + second
        self._gains.note(_kind(attempt), _kind(other), self._model(attempt), gain)
        if packing.rebalance.keep(PairsView(*columns))[0]:
            if turns.trial_s is not None:
                self._gangs.decide(f.PackKept(attempt.job, other.job))
                for one, two in ((attempt, other), (other, attempt)):
                    why = f"kept, {told}"
                    self._gangs.tell(m.AttemptPacked(one.job, one.epoch, two.job, why, gain))
            return False
        self._part(attempt.job, other.job, f"taken back, {told}", packing, gain)
        return True

    def _part(
        self, job: str, other: str, why: str, packing: Packing, gain: float | UnsetType = UNSET
    ) -> None:
        self._gangs.decide(f.Unpacked(job, other, self._gangs.now + packing.retry_s))
        for name in (job, other):
            attempt = self._gangs.state.attempts[name]
            self._gangs.tell(m.AttemptPacked(name, attempt.epoch, "", why, gain))
            self._windows.pop(name, None)
            self.measure(attempt)

    def closed(self, attempt: Attempt) -> None:
        """A gang is over: the other of its pair goes on alone."""
        turns = attempt.turns
        partner = self._gangs.state.attempts.get((turns.partner or "") if turns is not None else "")
        self._windows.pop(attempt.job, None)
        self._told.pop(attempt.job, None)
        self._looks.pop(attempt.job, None)
        if partner is not None:
            self._gangs.tell(m.AttemptPacked(partner.job, partner.epoch, "", "the other is over"))
            self._windows.pop(partner.job, None)
            self.measure(partner)

    # --- facts ----------------------------------------------------------------------------------

    def apply(self, fact: Fact) -> None:
        """Change the state by a fact about rates and pairs."""
        attempts, now = self._gangs.state.attempts, self._gangs.now
        match fact:
            case f.Measured(beside=True):
                turns_of(attempts[fact.job]).beside = fact.rate
            case f.Measured():
                turns_of(attempts[fact.job]).rate = fact.rate
            case f.Packed():
                for job, other in ((fact.job, fact.other), (fact.other, fact.job)):
                    turns_of(attempts[job]).pair(other, fact.until_s, now)
                self._pairs += 1
            case f.PackKept():
                for job in (fact.job, fact.other):
                    turns_of(attempts[job]).trial_s = None
            case f.Unpacked():
                self._apply_unpacked(fact)
            case _:
                raise KeyError(type(fact))

    def _apply_unpacked(self, fact: f.Unpacked) -> None:
        now = self._gangs.now
        for job, other in ((fact.job, fact.other), (fact.other, fact.job)):
            turns = turns_of(self._gangs.state.attempts[job])
            turns.part(now)
            turns.refused = {j: s for j, s in turns.refused.items() if s > now}
            turns.refused[other] = fact.not_before_s
        self._pairs -= 1

    def apply_closed(self, attempt: Attempt) -> None:
        """The other of its pair has its turns for itself."""
        turns = attempt.turns
        other = self._gangs.state.attempts.get((turns.partner or "") if turns is not None else "")
        if other is not None:
            turns_of(other).part(self._gangs.now)
            self._pairs -= 1

    def restored(self) -> None:
        """The state was read from a snapshot."""
        self._windows = {}
        turns = [attempt.turns for attempt in self._gangs.state.attempts.values()]
        self._pairs = sum(t is not None and t.partner is not None for t in turns) // 2


def _kind(attempt: Attempt) -> Kind | None:
    return kind_of(attempt.spec, len(slots_of(attempt)))
