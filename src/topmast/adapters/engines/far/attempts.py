"""What is known of the attempts of a far cluster: what was recorded, and what was seen since."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from msgspec import UNSET

from topmast.adapters.engines.far import events as e
from topmast.adapters.engines.far.launcher import Listed, State
from topmast.model.messages import (
    StartGang,
    TaskEvicted,
    TaskExited,
    TaskLost,
    TaskStarted,
    TruthTask,
)

OBEY_S = 10.0
"""How long after the grace a runner may need to end its tasks, before the scheduler is asked to."""
SAVE_S = 600.0
"""How much longer, if it brings a checkpoint to a bucket."""
TWO_LOOKS = 2
"""In a row: one alone may lack what is there."""
Key = tuple[str, int]
"""Job and epoch."""


@dataclass
class Place:
    """One host of a part."""

    host: str
    ranks: e.Ranks
    nonce: str = ""
    """Of the runner that has the claim; empty: it is unclaimed."""
    claimed_at_s: float = 0.0
    """Since the UTC epoch, as it is told."""
    claimed_s: float = math.inf
    """The same on the monotonic clock; since a restart, when that was."""
    address: str = ""
    port: int = 0
    run: str = ""
    """Of the part, in which the runner is."""
    doubled: bool = False
    """Another runner asked for it too."""
    left: int = 0
    """How many of its ranks have not ended."""
    heard_s: float = -math.inf
    """When the runner was heard last, on the monotonic clock; since a restart, when that was."""
    waits: str = ""
    """What it waits for, as was told last, and when."""
    waits_told_s: float = -math.inf
    cancelled_s: float = -math.inf
    """When the scheduler was last asked to end it, on the monotonic clock."""


@dataclass
class Part:
    """One part of an attempt: what its scheduler was asked for, and shows."""

    plan: e.PartPlan
    places: dict[str, Place]
    chosen: tuple[str, float] | None = None
    """Id and submission of what may run under its name."""
    submits: int = 0
    """How often this process submitted it."""
    ids: set[str] | None = None
    """What the scheduler called all that was submitted for it; None: of some that is not known."""
    submitting: bool = False
    since_s: float = 0.0
    """A look that began before is of no use; on the monotonic clock."""
    lives_s: float = -math.inf
    """When a look last showed that it runs."""
    shown: Listed | None = None
    """As that look showed it."""
    absent: int = 0
    """How many looks in a row did not show what they should."""
    lingering: int = 0
    """How many looks in a row showed it after it was over."""
    cancelled: bool = False
    """After a stop the scheduler was asked to end it, or a process before this one may have."""

    @property
    def name(self) -> str:
        """By which the scheduler knows it."""
        return self.plan.name

    @property
    def over(self) -> bool:
        """Whether all its ranks have ended."""
        return not any(place.left for place in self.places.values())

    @property
    def claimed(self) -> bool:
        """Whether any host of it has been claimed."""
        return any(place.nonce for place in self.places.values())

    def begin(self, now_s: float) -> None:
        """It is intended for the first time: what has its name by now is no submission of it."""
        self.since_s, self.ids = now_s, set()

    def answered(self, id: str, refused: str, now_s: float) -> None:
        """A submission came to an end; only a look that begins now can show what it made."""
        self.submitting, self.since_s = False, now_s
        if self.ids is not None and id:
            self.ids.add(id)
        elif not refused:
            self.ids = None

    def split(self, listed: list[Listed]) -> tuple[list[Listed], list[Listed]]:
        """What has its name: its submissions, as they came, and what others called so."""
        listed = sorted(listed, key=lambda one: (one.submitted_s, one.id))
        if self.ids is None:
            return listed, []
        ours = [one for one in listed if one.id in self.ids]
        return ours, [one for one in listed if one not in ours]

    def waits(self, chosen: Listed) -> bool:
        """Whether the scheduler lets none of it run yet, so that it can still start elsewhere."""
        return chosen.state in (State.HELD, State.WAITING) and not self.claimed

    @property
    def unclaimed(self) -> list[Place]:
        """Its places that a runner may still claim."""
        return [place for place in self.places.values() if place.left and not place.nonce]

    def stranded(self, now_s: float, lease_s: float) -> list[Place]:
        """Those that are unclaimed a lease after another one was claimed: they start together.

        A runner may be killed before it claims, and the others wait for it.
        """
        claimed_s = [place.claimed_s for place in self.places.values() if place.nonce]
        return self.unclaimed if claimed_s and now_s > min(claimed_s) + lease_s else []

    @property
    def running(self) -> list[Place]:
        """Its places where something may live."""
        return [place for place in self.places.values() if place.left and place.nonce]

    def chosen_of(self, listed: list[Listed]) -> Listed | None:
        """What was recorded, if it is listed."""
        return next((one for one in listed if (one.id, one.submitted_s) == self.chosen), None)


@dataclass
class Attempt:
    """One attempt."""

    gang: StartGang
    parts: tuple[Part, ...]
    envs: dict[str, str]
    lease_s: float | None
    carried: e.Carried = field(default_factory=e.Carried)
    stop: e.Stopped | None = None
    stopped_s: float = math.inf
    """When it was ordered, on the monotonic clock; since a restart, when that was."""
    still: bool = False
    version: int = 0
    """Of its orders."""
    save: int = 0
    """The last round of saving: it grows over restarts too, as it is not recorded."""
    execs: tuple[e.ExecOrder, ...] = ()
    """Commands beside its ranks; a new process of ours knows of none, and they end."""
    ends: dict[int, e.Ended] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """Job and epoch."""
        return self.gang.job, self.gang.epoch

    @property
    def over(self) -> bool:
        """Whether all its ranks have ended."""
        return len(self.ends) == len(self.gang.seats)

    def is_silent(self, place: Place, now_s: float, margin_s: float) -> bool:
        """Whether its runner must have ended all there by now, unless the runner was killed."""
        return self.lease_s is not None and now_s > place.heard_s + self.lease_s + margin_s

    def lapsed(self, part: Part, now_s: float, margin_s: float) -> list[Place]:
        """Where the lease is over, half of the margin before it is told: a runner that is halted
        has ended nothing, and the scheduler has that time to do it.
        """
        return [place for place in part.running if self.is_silent(place, now_s, margin_s / 2)]

    def is_late(self, part: Part, place: Place, now_s: float, silence_s: float) -> bool:
        """Whether it should have ended after a stop, or does not hear of it; or whether it was
        evicted, and its runner cannot tell.
        """
        is_silent = now_s - place.heard_s > silence_s
        if self.stop is None:
            return is_silent and part.shown is not None and part.shown.evicted
        return is_silent or now_s > self.overdue_s

    @property
    def silence(self) -> str:
        """Why it is lost then."""
        return f"its runner was silent for {self.lease_s:g} s"

    def place_of_rank(self, rank: int) -> Place:
        """Where a rank runs."""
        return next(p for part in self.parts for p in part.places.values() if rank in p.ranks)

    @property
    def grace_s(self) -> float:
        """What its tasks have between SIGTERM and SIGKILL: as its runners have been told."""
        if self.stop is not None:
            return self.stop.grace_s
        grace_s = self.gang.spec.checkpoint.grace_s
        return grace_s if self.lease_s is None else min(grace_s, self.lease_s / 2)

    @property
    def overdue_s(self) -> float:
        """From when on the scheduler is asked to end it, if it still runs after a stop."""
        save_s = 0.0 if self.carried.checkpoint is None else SAVE_S
        grace_s = math.inf if self.stop is None else self.stop.grace_s
        return self.stopped_s + grace_s + OBEY_S + save_s

    def ask_save(self, wall_s: float) -> int:
        """Order the next round of saving; returns its number."""
        self.save = max(self.save + 1, int(1000 * wall_s))
        self.version += 1
        return self.save

    def set_execs(self, orders: tuple[e.ExecOrder, ...]) -> None:
        """Have these commands beside its ranks, and no others."""
        if orders != self.execs:
            self.execs = orders
            self.version += 1

    def orders(self) -> e.Orders:
        """What its runners are to do now."""
        first = self.place_of_rank(0)
        return e.Orders(
            self.version, None if self.stop is None else self.stop.grace_s, self.still,
            first.address, first.port, self.save, self.execs,
        )  # fmt: skip


class Attempts:
    """All attempts that are not forgotten, and of the others the newest epoch of each job."""

    def __init__(self) -> None:
        self.known: dict[Key, Attempt] = {}
        self.stopped: dict[Key, e.Stopped] = {}
        """Stops of attempts that were never started."""
        self.forgotten: dict[str, int] = {}
        self._parts: dict[str, tuple[Attempt, Part]] = {}
        self._owners: dict[tuple[str, float], str] = {}
        """The part that a submission was recorded for, by id and time."""

    def __iter__(self) -> Iterator[Attempt]:
        return iter(self.known.values())

    def part(self, name: str) -> tuple[Attempt, Part] | None:
        """The part of this name and its attempt."""
        return self._parts.get(name)

    def name_of(self, listed: Listed) -> str:
        """The part that it is. A task may give its part another's name (``scontrol update``)."""
        return self._owners.get((listed.id, listed.submitted_s), listed.name)

    def is_recorded(self, id: str, submitted_s: float) -> bool:
        """Whether that is a part, whatever it is called. Safe on any thread."""
        return (id, submitted_s) in self._owners

    def was_cancelled(self, name: str) -> bool:
        """Whether we had the scheduler end a part: then what it evicts is our own doing."""
        return self._parts[name][1].cancelled

    def parts_of(self, facts: Iterable[e.Fact]) -> list[str]:
        """The parts of the attempts that facts are about."""
        names: dict[str, None] = {}
        for fact in facts:
            attempt = None
            if isinstance(fact, e.Recorded | e.Claimed | e.Doubled):
                found = self.part(fact.part)
                attempt = None if found is None else found[0]
            elif not isinstance(fact, e.Intended):
                attempt = self.known.get((fact.job, fact.epoch))
            names.update({part.name: None for part in (attempt.parts if attempt else ())})
        return list(names)

    def is_forgotten(self, job: str, epoch: int) -> bool:
        """Whether it ran long ago."""
        return epoch <= self.forgotten.get(job, -1)

    def all_over(self, job: str, epoch: int) -> bool:
        """Whether no older epoch of the job runs: to forget one is to forget all before it."""
        return all(a.over for a in self if a.key[0] == job and a.key[1] <= epoch)

    def were_of(self, part: str) -> bool:
        """Whether a part is of an attempt that was forgotten: others' parts are left alone."""
        words = part.split("-", 2)[-1].rsplit("-", 2)
        if len(words) != 3 or not words[1].isdecimal():
            return False
        return self.is_forgotten(words[0], int(words[1]))

    def open_parts(self) -> Iterator[tuple[Attempt, Part]]:
        """Parts that are not over."""
        return ((a, part) for a in self.known.values() for part in a.parts if not part.over)

    def vanished(self, names: Collection[str], unlisted: Collection[str]) -> Iterator[Listed]:
        """Parts that are over and that two looks lack, each once: others took them away by force.

        ``names`` are those of the look; of the hosts in ``unlisted`` it told nothing.
        """
        for part in (part for a in self.known.values() for part in a.parts if part.over):
            if part.shown is None or any(host in part.places for host in unlisted):
                continue
            part.absent = 0 if part.name in names else part.absent + 1
            if part.absent >= TWO_LOOKS:
                shown, part.shown = part.shown, None
                yield shown

    def apply(self, fact: e.Fact) -> None:
        """Take up what was recorded."""
        match fact:
            case e.Intended():
                self._intend(fact)
            case e.Recorded(part=name):
                self._parts[name][1].chosen = (fact.id, fact.submitted_s)
                self._owners[fact.id, fact.submitted_s] = name
            case e.Claimed(part=name):
                attempt, part = self._parts[name]
                place = part.places[fact.host]
                place.nonce, place.claimed_at_s = fact.nonce, fact.at_s
                place.address, place.port, place.run = fact.address, fact.port, fact.run
                attempt.version += 1
            case e.Doubled(part=name):
                self._parts[name][1].places[fact.host].doubled = True
            case e.Stopped():
                self._stop(fact)
            case e.Suspended():
                attempt = self.known[fact.job, fact.epoch]
                attempt.still = fact.still
                attempt.version += 1
            case e.Ended():
                attempt = self.known[fact.job, fact.epoch]
                attempt.ends[fact.rank] = fact
                attempt.place_of_rank(fact.rank).left -= 1
            case e.Forgotten():
                self._forget(fact)

    def _intend(self, fact: e.Intended) -> None:
        parts = tuple(
            Part(plan, {h: Place(h, ranks, left=len(ranks)) for h, ranks in plan.ranks.items()})
            for plan in fact.parts
        )
        attempt = Attempt(fact.gang, parts, fact.envs, fact.lease_s, fact.carried)
        self.known[attempt.key] = attempt
        self._parts.update({part.name: (attempt, part) for part in parts})

    def _stop(self, fact: e.Stopped) -> None:
        attempt = self.known.get((fact.job, fact.epoch))
        if attempt is None:
            self.stopped[fact.job, fact.epoch] = fact
        else:
            attempt.stop = fact
            attempt.version += 1

    def _forget(self, fact: e.Forgotten) -> None:
        self.forgotten[fact.job] = max(fact.epoch, self.forgotten.get(fact.job, -1))
        for known in [k for k in self.known if k[0] == fact.job and k[1] <= fact.epoch]:
            for part in self.known.pop(known).parts:
                del self._parts[part.name]
                if part.chosen is not None:
                    del self._owners[part.chosen]
        for known in [k for k in self.stopped if k[0] == fact.job and k[1] <= fact.epoch]:
            del self.stopped[known]

    def facts(self) -> Iterator[e.Fact]:
        """Everything that was recorded and still counts, in an order in which it can be applied."""
        for job, epoch in self.forgotten.items():
            yield e.Forgotten(job, epoch)
        yield from self.stopped.values()
        for attempt in self.known.values():
            parts = tuple(part.plan for part in attempt.parts)
            yield e.Intended(attempt.gang, parts, attempt.envs, attempt.lease_s, attempt.carried)
            for part in attempt.parts:
                if part.chosen is not None:
                    yield e.Recorded(part.name, *part.chosen)
                for place in part.places.values():
                    yield from _facts_of(part.name, place)
            if attempt.stop is not None:
                yield attempt.stop
            if attempt.still:
                yield e.Suspended(*attempt.key, still=True)
            yield from attempt.ends.values()


def _facts_of(part: str, place: Place) -> Iterator[e.Fact]:
    if place.nonce:
        at = (place.claimed_at_s, place.address, place.port, place.run)
        yield e.Claimed(part, place.host, place.nonce, *at)
    if place.doubled:
        yield e.Doubled(part, place.host)


def end_of(listed: Listed) -> str:
    """How a part ended, as its scheduler says."""
    return f"the scheduler ended it: {listed.why}" if listed.why else "the scheduler ended it"


def starts_of(attempt: Attempt) -> Iterator[TaskStarted]:
    """What is told of its ranks that run."""
    for part in attempt.parts:
        for place in part.running:
            for rank in place.ranks:
                if rank not in attempt.ends:
                    yield TaskStarted(*attempt.key, rank, place.claimed_at_s)


def news_of(end: e.Ended) -> TaskEvicted | TaskLost | TaskExited:
    """What is told of the end of a rank."""
    at = (end.job, end.epoch, end.rank)
    if end.evicted:
        return TaskEvicted(*at, end.error)
    if end.code is None:
        return TaskLost(*at, end.error, end.blameless or UNSET)
    return TaskExited(*at, end.code, end.at_s, end.report, end.error, end.stopped or UNSET)


def is_live(listed: Listed) -> bool:
    """Whether the scheduler does not say that it ended."""
    return listed.state is not State.ENDED


def truth_of(attempt: Attempt) -> list[TruthTask]:
    """What runs and what ended, by rank; not what has not begun."""
    found = []
    for part in attempt.parts:
        for place in part.places.values():
            for rank in place.ranks:
                end = attempt.ends.get(rank)
                if end is not None:
                    task = TruthTask(
                        *attempt.key, rank, False, end.code, end.at_s, end.report,
                        end.error if end.evicted else UNSET, end.stopped or UNSET,
                    )  # fmt: skip
                    found.append(task)
                elif place.nonce:
                    found.append(TruthTask(*attempt.key, rank, True, at_s=place.claimed_at_s))
    return sorted(found, key=lambda task: task.rank)
