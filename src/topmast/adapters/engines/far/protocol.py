"""How an attempt starts once, and what may say that it ended, over schedulers that promise neither.

A pure machine: events in, facts and actions out. What drives it records the facts of an outcome
durably before it carries out the actions or gives the answer. docs/internals/far-engines.md tells
the protocol as a whole, and which step guards against which fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET, Struct

from topmast.adapters.engines.far import events as e
from topmast.adapters.engines.far.attempts import (
    TWO_LOOKS,
    Attempt,
    Attempts,
    Part,
    Place,
    end_of,
    is_live,
    news_of,
    starts_of,
    truth_of,
)
from topmast.adapters.engines.far.events import Terms as Terms
from topmast.adapters.engines.far.hosts import Hosts
from topmast.adapters.engines.far.launcher import Listed, State
from topmast.model import messages as m

STOPPED_EARLY = "stopped before it started"
NEVER_CLAIMED = "its runner did not start with the others"
HOST_TAKEN = "the scheduler took a host from it before it started"
CANCEL_AGAIN_S = 30.0
TELL_AGAIN_S = 30.0
"""What a start waits for is told again only so often, as long as it is the same."""
_OfRunner = e.Claim | e.Beat | e.RankEnded
LINGER_LOOKS = 5
"""How often a part may be seen running after its end before the scheduler is asked to end it."""


@dataclass
class _Draft:
    """An outcome in the making."""

    facts: list[e.Fact]
    actions: list[e.Action]
    answer: Any = None


class Protocol:
    """Decides for all attempts of one cluster."""

    def __init__(self, terms: Terms, hosts: tuple[str, ...]) -> None:
        self.terms = terms
        self.attempts = Attempts()
        self.hosts = Hosts(hosts)
        self._draft = _Draft([], [])
        self._now = e.Moment(0.0, 0.0)
        self._asked_s: list[float] = []
        """When the truth was asked for."""
        self._shown: frozenset[str] | None = None
        """The parts that the last complete look showed; None: there was none yet."""
        self._unlisted: frozenset[str] = frozenset()
        """The hosts of which it showed nothing."""
        self.urgent = True
        """Whether something waits for the next look."""
        self._handlers: dict[type[Struct], Callable[[Any], None]] = {
            e.Start: self._start,
            e.Stop: self._stop,
            e.Suspend: self._suspend,
            e.ListTasks: lambda event: self._ask_truth(),
            e.SetHosts: lambda event: self._say(*self.hosts.set_names(event.names)),
            e.Submitted: self._submitted,
            e.Looked: self._looked,
            e.LookFailed: self._look_failed,
            e.Claim: self._claim,
            e.Beat: self._beat,
            e.RankEnded: self._rank_ended,
            e.Tick: lambda event: self._tick(),
        }

    def recover(self, now: e.Moment) -> e.Outcome:
        """Begin after all recorded facts were applied: every lease counts anew, news is told anew.

        What was answered just before the last process ended is not known: no lease ends earlier.
        """
        self._begin(now)
        for attempt in self.attempts:
            if attempt.stop is not None:
                attempt.stopped_s = now.s
            for part in attempt.parts:
                part.since_s = now.s
                part.cancelled = attempt.stop is not None  # perhaps
                for place in part.places.values():
                    if place.nonce:
                        place.heard_s = place.claimed_s = now.s
            self._tell(attempt)
        return self._end()

    def handle(self, event: Struct, now: e.Moment) -> e.Outcome:
        """Take one event."""
        self._begin(now)
        self._handlers[type(event)](event)
        return self._end()

    @property
    def busy(self) -> bool:
        """Whether anything is there that a look could tell of, or end: distrust."""
        return bool(self._asked_s or self.hosts.failure) or any(
            True for _ in self.attempts.open_parts()
        )

    # --- outcomes -------------------------------------------------------------------------------

    def _begin(self, now: e.Moment) -> None:
        self._draft, self._now = _Draft([], []), now

    def _end(self) -> e.Outcome:
        return e.Outcome(tuple(self._draft.facts), tuple(self._draft.actions), self._draft.answer)

    def _note(self, fact: e.Fact) -> None:
        self._draft.facts.append(fact)
        self.attempts.apply(fact)

    def _do(self, action: e.Action) -> None:
        self._draft.actions.append(action)

    def _say(self, *messages: m.Message) -> None:
        self._draft.actions += [e.Post(message) for message in messages]

    # --- orders ---------------------------------------------------------------------------------

    def _start(self, event: e.Start) -> None:
        gang = event.gang
        key = (gang.job, gang.epoch)
        if key in self.attempts.known:
            self._tell(self.attempts.known[key])
            return
        unfit = event.cannot or self.hosts.unfit(seat.host for seat in gang.seats)
        if self.attempts.is_forgotten(*key):
            self._refuse(gang, "it ran long ago, and is not run twice", blameless=True)
        elif key in self.attempts.stopped:
            self._refuse(gang, self.attempts.stopped[key].why or STOPPED_EARLY, blameless=True)
        elif unfit:
            # Recorded: what was told to be lost must not start when it is ordered again.
            self._note(e.Stopped(*key, 0.0, unfit))
            self._refuse(gang, unfit, blameless=bool(event.cannot))
        else:
            carried = event.carried
            self._note(e.Intended(gang, event.parts, event.envs, self.terms.lease_s, carried))
            attempt = self.attempts.known[key]
            for part in attempt.parts:
                part.begin(self._now.s)
                if self._is_new(part):
                    self._submit(attempt, part, hold=False)
                else:
                    self.urgent = True

    def _is_new(self, part: Part) -> bool:
        """Whether the scheduler cannot have a part that only this process could submit."""
        if self._shown is None or not self._unlisted.isdisjoint(part.places):
            return False
        return part.name not in self._shown

    def _submit(self, attempt: Attempt, part: Part, *, hold: bool) -> None:
        part.submits, part.submitting, part.absent = part.submits + 1, True, 0
        self._do(e.Submit(attempt.gang, part.plan, attempt.lease_s, hold))

    def _refuse(self, gang: m.StartGang, why: str, *, blameless: bool) -> None:
        for seat in gang.seats:
            self._say(m.TaskLost(gang.job, gang.epoch, seat.rank, why, blameless or UNSET))

    def _stop(self, event: e.Stop) -> None:
        key = (event.job, event.epoch)
        if self.attempts.is_forgotten(*key):
            return
        attempt = self.attempts.known.get(key)
        before = self.attempts.stopped.get(key) if attempt is None else attempt.stop
        grace_s = max(0.0, event.grace_s)
        if before is None or grace_s < before.grace_s:
            self._note(e.Stopped(*key, grace_s))
            if attempt is not None:
                attempt.stopped_s = self._now.s
        if attempt is None:
            return
        for part in attempt.parts:
            for place in part.unclaimed:
                self._lose(attempt, place, STOPPED_EARLY, blameless=True)
        self._tell_ends(attempt)
        self.urgent = True

    def _suspend(self, event: e.Suspend) -> None:
        attempt = self.attempts.known.get((event.job, event.epoch))
        if attempt is not None and not attempt.over and attempt.still != event.still:
            self._note(e.Suspended(event.job, event.epoch, event.still))

    def forget(self, keep: int, now: e.Moment) -> e.Outcome:
        """Forget the oldest attempts that are over, beyond a number."""
        self._begin(now)
        over = [attempt for attempt in self.attempts if attempt.over]
        over.sort(key=lambda attempt: max(end.at_s for end in attempt.ends.values()))
        for attempt in over[: max(0, len(over) - keep)]:
            if self.attempts.all_over(*attempt.key):
                self._note(e.Forgotten(*attempt.key))
                self._do(e.Delete(*attempt.key))
        stopped = list(self.attempts.stopped)
        for key in stopped[: max(0, len(stopped) - keep)]:
            if self.attempts.all_over(*key):
                self._note(e.Forgotten(*key))
        return self._end()

    # --- runners --------------------------------------------------------------------------------

    def _claim(self, event: e.Claim) -> None:
        attempt, place, status = self._find(event)
        if status == e.GRANTED and attempt is not None and place is not None and not place.nonce:
            at = (self._now.wall_s, event.address, event.port, event.run)
            self._note(e.Claimed(event.part, event.host, event.nonce, *at))
            place.claimed_s = self._now.s
            for rank in place.ranks:
                self._say(m.TaskStarted(*attempt.key, rank, place.claimed_at_s))
        self._answer(attempt, place, status)

    def _beat(self, event: e.Beat) -> None:
        attempt, place, status = self._find(event)
        if place is not None and not place.nonce:
            status = e.OVER
        if event.preparing is not None and status == e.GRANTED and attempt and place:
            for rank in place.ranks:
                self._say(m.TaskPreparing(*attempt.key, rank, event.preparing, begun=True))
        if event.prepared and status == e.GRANTED and place:
            self.hosts.prepared(event.host, place.claimed_s)
        self._answer(attempt, place, status)

    def _find(self, event: _OfRunner) -> tuple[Attempt | None, Place | None, int]:
        """What a runner speaks of, and whether it may."""
        found = self.attempts.part(event.part)
        place = found[1].places.get(event.host) if found else None
        if found is None or place is None:
            return None, None, e.OVER
        if place.nonce and place.nonce != event.nonce:
            if not place.doubled and place.left:
                self._note(e.Doubled(event.part, event.host))
            return found[0], place, e.TAKEN
        return found[0], place, e.GRANTED if place.left else e.OVER

    def _answer(self, attempt: Attempt | None, place: Place | None, status: int) -> None:
        if status != e.GRANTED or attempt is None or place is None:
            self._draft.answer = e.Answer(status)
            return
        # The runner counts its lease from before it asked, so it ends before ours: that begins now.
        place.heard_s = self._now.s
        self._draft.answer = e.Answer(status, attempt.orders())

    def _rank_ended(self, event: e.RankEnded) -> None:
        attempt, place, status = self._find(event)
        if attempt is None or place is None or status == e.TAKEN or not place.nonce:
            self._draft.answer = e.Answer(status)
            return
        place.heard_s = self._now.s
        if event.rank in place.ranks and event.rank not in attempt.ends:
            if event.host_fault and not attempt.gang.spec.image:
                self._say(*self.hosts.unprepared(event.host, event.error, self._now.s))
            elif event.code is not None:
                self.hosts.prepared(event.host, place.claimed_s)
            self._over(
                attempt,
                e.Ended(
                    *attempt.key, event.rank, event.code, event.at_s, event.error,
                    event.evicted and not self.attempts.was_cancelled(event.part),
                    event.code is None, event.report, attempt.stop is not None,
                ),
            )  # fmt: skip
        self._draft.answer = e.Answer(e.GRANTED, attempt.orders())

    # --- looks ----------------------------------------------------------------------------------

    def _submitted(self, event: e.Submitted) -> None:
        if (found := self.attempts.part(event.part)) is None:
            return
        attempt, part = found
        part.answered(event.id, event.refused, self._now.s)
        if event.refused:
            for place in part.unclaimed:
                self._lose(attempt, place, event.refused, blameless=True)
        if event.everyone:
            self._say(*self.hosts.refuse(event.refused, self._now.s))
        if event.unsure:
            self._prepare(attempt, part.unclaimed, event.unsure)
            self.hosts.unsure(event.unsure)
        self.urgent = True

    def _look_failed(self, event: e.LookFailed) -> None:
        self.hosts.look_failed(event.why)
        self._say(*self.hosts.trust(self._now.s, self.terms.distrust_s))

    def _looked(self, event: e.Looked) -> None:
        self.urgent = False
        by_name: dict[str, list[Listed]] = {}
        for one in event.listed:
            by_name.setdefault(self.attempts.name_of(one), []).append(one)
        self._shown, self._unlisted = frozenset(by_name), frozenset(event.unlisted)
        self._say(*self.hosts.look(event.hosts, self._now.s))
        for attempt, part in list(self.attempts.open_parts()):
            if any(host in part.places for host in event.unlisted):
                continue
            if event.began_s >= part.since_s and not part.submitting:
                self._look_at(attempt, part, by_name.get(part.name, []))
            else:
                self.urgent = True
        for name, listed in by_name.items():
            self._clear(name, listed)
        self._draft.actions += map(e.Forget, self.attempts.vanished(by_name, event.unlisted))
        self._down_hosts()
        self._tell_truth(event.began_s)

    def _look_at(self, attempt: Attempt, part: Part, listed: list[Listed]) -> None:
        listed, others = part.split(listed)
        if any(map(is_live, others)) and not part.submits:  # what has its name already goes first
            self._draft.actions += [e.Cancel(one, 0.0) for one in others if is_live(one)]
            return
        live = [one for one in listed if is_live(one)]
        if part.chosen is None and live:
            self._note(e.Recorded(part.name, live[0].id, live[0].submitted_s))
        if part.chosen is None:
            self._unknown(attempt, part, listed)
            return
        chosen = part.chosen_of(listed)
        for other in live:
            if other is not chosen and other.state in (State.HELD, State.WAITING):
                self._do(e.Cancel(other, 0.0))
        part.absent = 0 if chosen is not None else part.absent + 1
        if chosen is not None and is_live(chosen):
            self._alive(attempt, part, chosen)
        elif chosen is not None or part.absent >= TWO_LOOKS:
            self._gone(attempt, part, chosen, alone=not live)

    def _unknown(self, attempt: Attempt, part: Part, listed: list[Listed]) -> None:
        """The scheduler shows nothing of it that lives, and nothing was recorded."""
        if listed and part.unclaimed:
            last = listed[-1]
            for place in part.unclaimed:
                self._lose(attempt, place, end_of(last), evicted=last.evicted, blameless=True)
            return
        part.absent += 1
        if part.claimed:  # something runs that is not shown: of what it is, only runners tell
            if part.absent >= TWO_LOOKS:
                for place in part.unclaimed:
                    self._lose(attempt, place, "the scheduler does not know it", blameless=True)
        elif not part.submits or part.absent >= TWO_LOOKS:
            # If what vanished arrives after all, one is recorded and the other is cancelled.
            self._submit(attempt, part, hold=True)
        else:
            self.urgent = True

    def _alive(self, attempt: Attempt, part: Part, chosen: Listed) -> None:
        held = chosen.state is State.HELD
        lost = chosen.why if chosen.never and not part.claimed else ""
        others = chosen.everyone_but
        if lost and others is not None and attempt.gang.spec.tenant not in others:
            self._say(*self.hosts.refuse(lost, self._now.s))
        elif not lost and (chosen.state is State.RUNNING or (chosen.why and not held)):
            self.hosts.accept(part.since_s)
        if 0 < chosen.hosts < len(part.places):
            lost = HOST_TAKEN  # nothing starts without it: what claimed would wait for ever
        lost = lost or self.hosts.shut(part.places if part.waits(chosen) else ())
        if lost:
            for place in part.unclaimed:
                self._lose(attempt, place, lost, blameless=True)
        elif part.unclaimed:
            self._prepare(attempt, part.unclaimed, chosen.why)
            if held:
                self._do(e.Release(chosen))
        elif held:
            self._do(e.Cancel(chosen, 0.0))  # what runs is another one of that name
        if chosen.state is State.RUNNING:
            part.lives_s = self._now.s
        part.shown = chosen
        self._see_to_its_end(attempt, part)

    def _see_to_its_end(self, attempt: Attempt, part: Part) -> None:
        """Have the scheduler end what its runner should have ended, and has not."""
        dead = attempt.lapsed(part, self._now.s, self.terms.margin_s)
        grace_s = attempt.grace_s if len(dead) < len(part.running) else 0.0
        for place in part.running:
            late = place in dead or attempt.is_late(part, place, self._now.s, self.terms.silence_s)
            if part.shown and late and self._now.s - place.cancelled_s > CANCEL_AGAIN_S:
                place.cancelled_s = self._now.s
                part.cancelled = part.cancelled or not part.shown.evicted
                self._do(e.Cancel(part.shown, grace_s))

    def _gone(self, attempt: Attempt, part: Part, chosen: Listed | None, *, alone: bool) -> None:
        """What was recorded has ended, as the scheduler says, or is not known to it any more."""
        why = "the scheduler does not know it any more" if chosen is None else end_of(chosen)
        evicted = chosen is not None and chosen.evicted and not part.cancelled
        code = None if chosen is None or evicted else chosen.code
        for place in part.unclaimed:
            self._lose(attempt, place, why, evicted=evicted, blameless=True)
        patience_s = self._now.s - self.terms.silence_s
        lapsed = attempt.lapsed(part, self._now.s, self.terms.margin_s)
        for place in part.running:
            if place.heard_s >= patience_s:
                continue  # the runner lives, or has the time to tell more
            own = chosen is not None and chosen.run == place.run and not place.doubled
            truth = own and alone and self.hosts.answered_since(place.host, patience_s)
            if attempt.lease_s is None or truth:
                said = attempt.silence if place in lapsed and code is None else why
                self._lose(attempt, place, said, evicted=evicted, blameless=truth, code=code)

    def _clear(self, name: str, listed: list[Listed]) -> None:
        """End what the scheduler still has, or has again, of a part that is over."""
        found = self.attempts.part(name)
        part = None if found is None else found[1]
        if not part.over if part is not None else not self.attempts.were_of(name):
            return
        live = [one for one in listed if is_live(one)]
        self._draft.actions += [e.Forget(one) for one in listed if not is_live(one)]
        if part is not None:
            part.lingering, part.shown = (part.lingering + 1, part.shown) if live else (0, None)
        for one in live:
            waits = one.state in (State.HELD, State.WAITING)
            if waits or part is None or part.lingering % LINGER_LOOKS == 0:
                self._do(e.Cancel(one, 0.0))

    # --- ends -----------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._say(*self.hosts.trust(self._now.s, self.terms.distrust_s))
        for attempt, part in list(self.attempts.open_parts()):
            if attempt.lease_s is None:
                continue
            self._see_to_its_end(attempt, part)
            lives = self.terms.first_hand and self._now.s - part.lives_s <= self.terms.distrust_s
            for place in part.running:
                if not lives and attempt.is_silent(place, self._now.s, self.terms.margin_s):
                    self._lose(attempt, place, attempt.silence)
            for place in part.stranded(self._now.s, attempt.lease_s):
                self._lose(attempt, place, NEVER_CLAIMED, blameless=True)

    def _down_hosts(self) -> None:
        """Tell that a host is down when nothing can live there, nor start."""
        for host in self.hosts.gone():
            there = [(a, p.places[host]) for a, p in self.attempts.open_parts() if host in p.places]
            if any(place.left and place.nonce for _, place in there):
                continue  # until its runner speaks, or its lease ends
            for attempt, place in there:
                self._lose(attempt, place, self.hosts.DOWN)
            self._say(self.hosts.down(host))

    def _lose(
        self, attempt: Attempt, place: Place, why: str, *, evicted: bool = False,
        blameless: bool = False, code: int | None = None,
    ) -> None:  # fmt: skip
        """End the ranks of a place that tells nothing. An unclaimed place starts no more."""
        for rank in place.ranks:
            if rank not in attempt.ends:
                at = (*attempt.key, rank, code, self._now.wall_s, why)
                stopped = attempt.stop is not None
                self._over(attempt, e.Ended(*at, evicted, blameless, stopped=stopped))

    def _over(self, attempt: Attempt, end: e.Ended) -> None:
        self._note(end)
        self._say(news_of(end))
        if attempt.over:
            self.urgent = True

    # --- news -----------------------------------------------------------------------------------

    def _tell(self, attempt: Attempt) -> None:
        """Everything that the cluster manager may have missed; a repetition is harmless."""
        self._say(*starts_of(attempt))
        self._tell_ends(attempt)

    def _tell_ends(self, attempt: Attempt) -> None:
        self._say(*(news_of(end) for _, end in sorted(attempt.ends.items())))

    def _prepare(self, attempt: Attempt, places: list[Place], why: str) -> None:
        for place in places if why else ():
            if why == place.waits and self._now.s - place.waits_told_s < TELL_AGAIN_S:
                continue
            place.waits, place.waits_told_s = why, self._now.s
            for rank in place.ranks:
                self._say(m.TaskPreparing(*attempt.key, rank, why))

    def _ask_truth(self) -> None:
        self._asked_s.append(self._now.s)
        self.urgent = True

    def _tell_truth(self, began_s: float) -> None:
        """One answer to all questions of before the look: only a complete look can tell."""
        asked = [at_s for at_s in self._asked_s if at_s <= began_s]
        self._asked_s = [at_s for at_s in self._asked_s if at_s > began_s]
        self.urgent = self.urgent or bool(self._asked_s)
        if asked:
            tasks = tuple(t for _, a in sorted(self.attempts.known.items()) for t in truth_of(a))
            self._say(m.TaskList(tasks, self.hosts.down_names(), self.hosts.closed() or UNSET))
