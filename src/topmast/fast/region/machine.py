"""The regional placer: answers where a gang would best run, and books what attempts hold (RMS).

It searches only when asked, and changes its books only by commits, releases and host states.
Victims are stopped first; the preemptor is launched when the last of them has let go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from msgspec import UNSET

from topmast.fast.machine import Fact
from topmast.fast.region import attempts, commits, hosts, questions
from topmast.fast.region import facts as f
from topmast.fast.region.answers import RegionAnswers
from topmast.fast.region.applying import APPLIERS
from topmast.fast.region.hooks import SharingHooks
from topmast.fast.region.timesharing.rebalancer import SharingRebalancer
from topmast.model import messages as m
from topmast.model.absent import given
from topmast.model.states import HostState


class RegionalPlacer(RegionAnswers):
    """The machine of one region. Each event has a function, each fact another.

    It alone knows what lets gangs share GPUs, in turns or in pairs.
    """

    def _hooks(self) -> SharingHooks:
        shared = self.profile.slices.layers > 1 or self.profile.shares.pairs
        return SharingRebalancer(self) if shared else SharingHooks()

    def _recovered(self, event: m.Recovered) -> None:
        """Nothing to say again: clusters repeat their orders, and the queue asks anew."""

    def _alarms(self) -> list[tuple[float, Fact]]:
        """What time alone changes: hosts take work again, closures end, places are given up."""
        state, closures = self.state, given(self.state.closures, {})
        alarms: list[tuple[float, Fact]] = []
        alarms += [(at_s, f.SuspicionOver(host)) for host, at_s in state.suspect.items()]
        healthy = HostState.HEALTHY
        alarms += [(s, f.HostSet(host, healthy)) for host, s in given(state.until, {}).items()]
        ends = [(name, closure.until_s) for name, closure in closures.items()]
        alarms += [(at_s, f.ClosureSet(name)) for name, at_s in ends if at_s is not UNSET]
        places = state.places.items()
        return alarms + [(p.until_s, f.PlaceGivenUp(job, used=False)) for job, p in places]

    def next_wakeup_s(self) -> float | None:
        """When the first of these is due, or a lease expires."""
        state, held_s = self.state, self.holds.next_expiry_s()
        if not (state.suspect or state.places or state.until or state.closures):
            return held_s
        return min(
            [at_s for at_s, _ in self._alarms()] + [s for s in (held_s,) if s is not None],
            default=None,
        )

    def _wake(self, event: m.Wake) -> None:
        for at_s, fact in self._alarms():
            if at_s <= self.now:
                self.decide(fact)
        self.holds.drop_due(self.columns, self.now)
        attempts.announce(self)

    handlers: ClassVar[dict[type[m.Message], Callable[..., Any]]] = {
        m.ConfigureRegion: hosts.configure,
        m.Recovered: _recovered,
        m.Wake: _wake,
        m.RequestRegionBids: questions.ask,
        m.RequestRegionPlans: questions.plan_each,
        m.CommitPlan: commits.commit,
        m.CommitPlans: commits.commit_each,
        m.StopAttempt: attempts.stop_attempt,
        m.ScaleUpAttempt: attempts.enlarge,
        m.DropLeases: questions.drop_leases,
        m.SetHost: hosts.set_host,
        m.SetClosure: hosts.set_closure,
        m.AssignHosts: hosts.assign,
        m.HostChanged: hosts.host_changed,
        m.HostClosed: hosts.host_closed,
        m.HostOpened: hosts.host_closed,
        m.ClosedHosts: hosts.closed_hosts,
        m.AttemptRunning: attempts.passed_on,
        m.AttemptSuspended: attempts.turned,
        m.AttemptContinued: attempts.turned,
        m.AttemptPacked: attempts.packed,
        m.AttemptPaced: attempts.paced,
        m.AttemptCheckpointed: attempts.passed_on,
        m.AttemptResumed: attempts.passed_on,
        m.AttemptStopping: attempts.passed_on,
        m.AttemptEnded: attempts.ended,
    }
    appliers: ClassVar[dict[type[Fact], Callable[..., None]]] = APPLIERS
