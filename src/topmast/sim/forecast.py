"""When jobs will start: a copy of the system run ahead, and how sure that is.

The copy runs once, with the durations that are expected. If all that is under way and ahead took
f times as long, the whole schedule would be drawn out f times, for the same jobs would come free
in the same order; so the range of a start is the wait times the range of the work that ended
before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from topmast.fast.queue import facts as f
from topmast.model import messages as m
from topmast.model.job import MILLI, JobSpec
from topmast.model.states import TERMINAL
from topmast.model.units import format_duration
from topmast.model.views import ExpectedStart
from topmast.policies.options import Profile
from topmast.sim.estimate import Basis, Estimate
from topmast.sim.list_scheduling import list_scheduled_start
from topmast.sim.loop import Hear
from topmast.sim.settings import Settings
from topmast.sim.whatif import LIVE, StateSnapshot, WhatIf

HORIZON_S = 90 * 86_400.0
"""How far a forecast looks at most."""
STEPS = 400_000
"""What one question may cost."""
ROUGHLY = (0.5, 2.0)
"""The range of a start that was reckoned from GPU counts."""
SOON_S = 1.0
"""A start within this is at once."""
GROUPS_NAMED = 2
ENDS_NAMED = 3
NEARLY_ALL = 0.995
WORDS = {
    Basis.GIVEN: "given durations",
    Basis.LIMIT: "time limits",
    Basis.DEFAULT: "the profile's default duration",
    Basis.OVERRUN: "jobs that run longer than was expected",
}


class Ended(Struct, frozen=True):
    """A job that ended: the GPU-seconds from the snapshot on, early, as expected, late."""

    early: float
    expected: float
    late: float
    estimate: Estimate
    job: str = ""
    at_s: float = 0.0


class Forecast:
    """The starts of all jobs of one snapshot, found as far as they were asked for."""

    def __init__(self, state: StateSnapshot, profile: Profile, settings: Settings = LIVE) -> None:
        self.seq = state.seq
        self.from_s = state.at_s
        self.starts: dict[str, tuple[float, int]] = {}
        """When each job started, and how many others had ended by then."""
        self.ends: list[Ended] = []
        self.ended_s: dict[str, float] = {}
        """When each job was over, of those that the copy has seen end."""
        hears: dict[type[m.Message], Hear] = {
            m.LaunchGang: self._launched,
            m.AttemptEnded: self._ended,
        }
        self.whatif: WhatIf
        # News on its way is heard before the copy is complete.
        WhatIf(state, profile, settings, hears, self._take)
        self._delayed = {one.id for one in self.whatif.machines.queue.backlog.delayed()}
        """Jobs that waited out a delay when the copy was made."""

    def _take(self, whatif: WhatIf) -> None:
        self.whatif = whatif

    def _launched(self, to: str, event: Any, facts: Sequence[Struct], now: float) -> None:
        if facts and event.job not in self.starts:
            self.starts[event.job] = (now, len(self.ends))

    def _ended(self, to: str, event: Any, facts: Sequence[Struct], now: float) -> None:
        """A job is over: so much sooner or later it might have been."""
        for fact in facts:
            if isinstance(fact, f.Ended) and fact.to in TERMINAL:
                found = self.whatif.left[event.job]
                gpus = self.whatif.machines.queue.jobs.records[event.job].spec.gpus_milli() / MILLI
                left_s = now - max(event.start_s, self.from_s)
                early_s = max(0.0, left_s - (found.run_s - found.early_s))
                late_s = left_s + found.late_s - found.run_s
                work = (gpus * early_s, gpus * left_s, gpus * late_s)
                self.ends.append(Ended(*work, found, event.job, now))
                self.ended_s[event.job] = now

    def sees_none(self, job: str) -> bool:
        """Whether nothing is to come any more that might let a job start that it knows."""
        known = self.whatif.machines.queue.jobs.records
        return not len(self.whatif.heap) and job in known and job not in self.starts

    def submit(self, spec: JobSpec) -> str:
        """Add a job that was not submitted; to be called before the first question."""
        return self.whatif.submit(spec)

    def start_of(self, job: str, give_up: Callable[[], bool] = lambda: False) -> ExpectedStart:
        """When a waiting job will start; run on only as far as needed.

        O(asks and ends until then); ``give_up`` ends it early, and the rest is reckoned roughly.
        """
        whatif, until_s = self.whatif, self.from_s + HORIZON_S
        whatif.run(until_s, lambda: job in self.starts, STEPS, give_up)
        found = self.starts.get(job)
        if found is None:
            return self._roughly(job, until_s)
        at_s, ended = found
        wait_s, ahead = at_s - self.from_s, self.ends[:ended]
        if wait_s < SOON_S:
            return ExpectedStart(at_s, at_s, at_s, "there is room for it now")
        work = sum(end.expected for end in ahead)
        if not work:
            why = "waits out a delay" if job in self._delayed else "waits for no other job to end"
            return ExpectedStart(at_s, at_s, at_s, f"it {why}")
        before = sum(starts_s < at_s for starts_s, _ in self.starts.values())
        early_s = self.from_s + wait_s * min(1.0, sum(end.early for end in ahead) / work)
        late_s = self.from_s + wait_s * max(1.0, sum(end.late for end in ahead) / work)
        return ExpectedStart(at_s, early_s, late_s, basis_of(ahead), _awaited(ahead, at_s, before))

    def _roughly(self, job: str, until_s: float) -> ExpectedStart:
        """What is left to wait is reckoned from GPU counts, if anything is still to come."""
        whatif = self.whatif
        could = len(whatif.heap) and whatif.heap.next_s() <= until_s
        found = list_scheduled_start(whatif, job) if could else None
        if found is None or found[0] > until_s:
            return ExpectedStart(None, None, None, self._never(until_s))
        at_s, before = found
        wait_s = at_s - self.from_s
        early_s, late_s = (self.from_s + wait_s * factor for factor in ROUGHLY)
        looked = format_duration(whatif.clock.now_s - self.from_s)
        basis = (
            f"simulated for {looked}, then estimated from GPU counts, with {before} jobs before it"
        )
        return ExpectedStart(at_s, early_s, late_s, basis, "GPUs that jobs before it have or get")

    def _never(self, until_s: float) -> str:
        if not len(self.whatif.heap):
            return "no expected event would let it start"
        reached_s = min(self.whatif.heap.next_s(), until_s) - self.from_s
        return f"the forecast ends after {format_duration(reached_s)}, before the job starts"


def _awaited(ahead: Sequence[Ended], at_s: float, before: int) -> str:
    """What lets a job start: the jobs that end just then, and those that start before it."""
    last = [end.job for end in ahead if at_s - end.at_s < SOON_S]
    named = f"the end of {', '.join(last[-ENDS_NAMED:])}" if last else "its turn"
    if not before:
        return named
    others = "1 other job that waits starts" if before == 1 else f"{before} others that wait start"
    return f"{named}; before that, {others}"


def basis_of(ahead: Sequence[Ended]) -> str:
    """What a forecast rests on, in words: the greatest part of the work first. O(jobs ahead)."""
    total = sum(end.expected for end in ahead)
    by_basis: dict[Basis, float] = {}
    for end in ahead:
        basis = end.estimate.basis
        by_basis[basis] = by_basis.get(basis, 0.0) + end.expected / total
    shares = sorted(by_basis.items(), key=lambda part: (-part[1], part[0]))
    words = {**WORDS, Basis.HISTORY: _histories(ahead), Basis.LIKE: _alike(ahead)}
    if any(end.estimate.basis is Basis.DEFAULT and not end.estimate.source for end in ahead):
        words[Basis.DEFAULT] += (
            " (give jobs that recur a `group`, or each job an `expected_duration`)"
        )
    if shares[0][1] > NEARLY_ALL:
        return words[shares[0][0]]
    return "; ".join(
        f"{words[basis]} for {share:.0%} of the work ahead"
        for basis, share in shares
        if share > 1 - NEARLY_ALL
    )


def _histories(ahead: Sequence[Ended]) -> str:
    """The groups with the histories that were used, and how many runs those hold."""
    named = _named(ahead, Basis.HISTORY)
    groups = "group" if len(named) == 1 else "groups"
    return f"historical durations of {groups} {_few(named)}"


def _alike(ahead: Sequence[Ended]) -> str:
    """The names of earlier jobs with the same script or name."""
    return f"durations of earlier jobs like {_few(_named(ahead, Basis.LIKE))}"


def _named(ahead: Sequence[Ended], basis: Basis) -> list[str]:
    """The histories that were used, and how many runs each holds."""
    runs = {e.estimate.source: e.estimate.runs for e in ahead if e.estimate.basis is basis}
    return [f"{name} ({count} run{'s' * (count != 1)})" for name, count in sorted(runs.items())]


def _few(named: Sequence[str]) -> str:
    more = f" and {len(named) - GROUPS_NAMED} more" if len(named) > GROUPS_NAMED else ""
    return ", ".join(named[:GROUPS_NAMED]) + more


def forecast_start(
    state: StateSnapshot,
    profile: Profile,
    spec: JobSpec,
    settings: Settings = LIVE,
    give_up: Callable[[], bool] = lambda: False,
) -> ExpectedStart:
    """When a job would start if it were submitted at the time of the snapshot."""
    forecast = Forecast(state, profile, settings)
    return forecast.start_of(forecast.submit(spec), give_up)
