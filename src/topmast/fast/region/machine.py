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

    def next_wakeup_s(self) -> float | None:
        """When the first host takes work again by itself, or the first place or hold expires."""
        until, closures = given(self.state.until, {}), given(self.state.closures, {})
        if not (self.state.suspect or self.state.places or until or closures or len(self.holds)):
            return None
        times = [*self.state.suspect.values(), *until.values()]
        times += [c.until_s for c in closures.values() if c.until_s is not UNSET]
        times += [place.until_s for place in self.state.places.values()]
        held_s = self.holds.next_expiry_s()
        return min(times if held_s is None else [*times, held_s], default=None)

    def _wake(self, event: m.Wake) -> None:
        for host, until_s in list(self.state.suspect.items()):
            if until_s <= self.now:
                self.decide(f.SuspicionOver(host))
        for host, until_s in list(given(self.state.until, {}).items()):
            if until_s <= self.now:
                self.decide(f.HostSet(host, HostState.HEALTHY))
        for name, closure in list(given(self.state.closures, {}).items()):
            if closure.until_s is not UNSET and closure.until_s <= self.now:
                self.decide(f.ClosureSet(name))
        for job, place in list(self.state.places.items()):
            if place.until_s <= self.now:
                self.decide(f.PlaceGivenUp(job, used=False))
        self.holds.drop_due(self.columns, self.now)
        attempts.announce(self)

    handlers: ClassVar[dict[type[m.Message], Callable[..., Any]]] = {
        m.ConfigureRegion: hosts.configure,
        m.Recovered: _recovered,
        m.Wake: _wake,
        m.RequestRegionBids: questions.ask,
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
