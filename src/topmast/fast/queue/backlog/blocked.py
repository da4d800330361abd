"""What is blocked, and what unblocks it: the negative cache of the queue.

A job class that found no place is blocked: none of its jobs is tried until an event that may help
it. Each event names what is tried again. A false alarm costs a request to the regions; a missing
one is a job that waits for ever.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct

from topmast.fast.queue.backlog.ordered_index import JOB_CLASS, PLACEMENT, Key
from topmast.fast.queue.backlog.placement_class import (
    NOT_TRIED,
    JobClass,
    PlacementClass,
    PlacementClasses,
)
from topmast.fast.queue.backlog.ranking import Ranking
from topmast.fast.timers import Timers
from topmast.model.job import JobSpec

WITHIN, BOTH = (False,), (False, True)
"""The modes: within quota alone; within quota, and over it."""


class Candidate(Struct, frozen=True, gc=False):
    """The next job to be tried: within its tenant's quota, or over it."""

    job: str
    key: Key
    over_quota: bool


class Scope(Struct):
    """What an event may help."""

    job_classes: Iterable[JobClass] = ()
    modes: tuple[bool, ...] = BOTH
    """In which modes the job classes are tried again."""
    classes: Iterable[PlacementClass] = ()
    """Placement classes that are not blocked as a whole any more."""
    members: bool = True
    """Whether also those of their job classes are tried again that wait for room each by itself."""
    forgets: bool = False
    """Whether the verdicts of the placement classes do not hold any more."""


class Event(Struct, frozen=True):
    """Something changed that may help blocked jobs."""

    def helps(self, blocked: Blocked) -> Iterator[Scope]:
        """What is tried again."""
        raise NotImplementedError


class Anything(Event, frozen=True):
    """It may help any job: the fleet, the data or the order changed."""


class RoomFreed(Event, frozen=True):
    """A region has more room, and these placement classes may fit."""

    classes: Iterable[int]

    def helps(self, blocked: Blocked) -> Iterator[Scope]:
        """Those of them that have jobs."""
        found = (blocked.classes.get(number) for number in self.classes)
        yield Scope(classes=[one for one in found if one and one.members], forgets=True)


class ReservationFree(Event, frozen=True):
    """No job has a reservation: the first in order that finds no room may get one."""

    def helps(self, blocked: Blocked) -> Iterator[Scope]:
        """All, but verdicts hold on: so none but the first needs a request."""
        yield Scope(classes=[one for one in blocked.classes if one.members])


class QuotaFreed(Event, frozen=True):
    """Something was booked or given back in the branches of some tenants."""

    is_touched: Callable[[str], bool]
    """Whether that may change what a tenant may use."""
    choices_of: Callable[[JobClass], Mapping[bool, tuple[int, ...]]]
    """By mode, the accelerators that a job class may use now."""

    def helps(self, blocked: Blocked) -> Iterator[Scope]:
        """Those that may use more than when they were blocked. O(tenants + their classes)."""
        for tenant in [tenant for tenant in blocked.limited if self.is_touched(tenant)]:
            for one in list(blocked.limited[tenant].values()):
                now = self.choices_of(one)
                for over_quota, had in list(one.had.items()):
                    if now[over_quota] and not had.issuperset(now[over_quota]):
                        yield Scope([one], (over_quota,))


class CopyDone(Event, frozen=True):
    """A dataset can be read in one more region."""

    dataset: str

    def helps(self, blocked: Blocked) -> Iterator[Scope]:
        """Those that read it."""
        readers = [blocked.by_number[number] for number in blocked.readers.get(self.dataset, ())]
        classes = {its.number: its for one in readers for its in one.placement.values()}
        yield Scope(readers, classes=classes.values(), forgets=True)


class JobMayMore(Event, frozen=True):
    """A job may do what others of its class may not."""

    job_class: JobClass

    def helps(self, blocked: Blocked) -> Iterator[Scope]:
        """Its class alone."""
        yield Scope([self.job_class], classes=self.job_class.placement.values(), members=False)


class TimeUp(Event, frozen=True):
    """Time alone may help: the retry times until now."""

    now_s: float

    def helps(self, blocked: Blocked) -> Iterator[Scope]:
        """The scopes that may be tried again by now."""
        yield Scope([blocked.by_number[number] for number in blocked.retries.take_due(self.now_s)])


class Blocked:
    """The job classes of all waiting jobs, those that are blocked, and what may help them."""

    def __init__(self, ranking: Ranking) -> None:
        self.ranking = ranking
        self.classes = PlacementClasses()
        self.by_number: dict[int, JobClass] = {}
        self.stirred = True
        """Whether a candidate may have come up since there was none."""
        self.changes = 0
        """How often verdicts were forgotten."""
        self.stopped: Candidate | None = None
        """No job behind this one may be tried."""
        self._stopped_class: JobClass | None = None
        self.retries: Timers[int] = Timers()
        """When time alone unblocks a job class, by number."""
        self.readers: dict[str, dict[int, None]] = {}
        """By dataset, the job classes that read it, by number."""
        self.limited: dict[str, dict[int, JobClass]] = {}
        """By tenant and number, blocked job classes that quota might let use more."""

    def enter(self, one: JobClass) -> None:
        """A job class has its first job. O(datasets)."""
        number = one.number
        self.by_number[number] = one
        one.gate.members[number] = None
        one.placement[False].members[number] = one.placement[True].members[number] = None
        for dataset in one.spec.datasets:
            self.readers.setdefault(dataset, {})[one.number] = None

    def leave(self, one: JobClass) -> None:
        """A job class has lost its last job: nothing of it is blocked any more. O(datasets)."""
        number = one.number
        del self.by_number[number], one.gate.members[number]
        for dataset in one.spec.datasets:
            readers = self.readers[dataset]
            del readers[one.number]
            if not readers:
                del self.readers[dataset]
        for over_quota, placement in one.placement.items():
            self.ranking.unblock_unused(JOB_CLASS, number, over_quota)
            del placement.members[number]
            placement.blocked.pop(number, None)
            if not placement.members:
                self.ranking.unblock_unused(PLACEMENT, placement.number, over_quota)
                placement.verdicts.clear()
        one.verdict = NOT_TRIED
        if one.had:
            one.had.clear()
            self._forget_limits(one)
        self.retries.drop(number)

    # --- block ------------------------------------------------------------------------------------

    def block(
        self,
        one: JobClass,
        over_quota: bool,
        retry_at_s: float | None = None,
        from_s: float = -math.inf,
        choices: tuple[int, ...] = (),
        *,
        limited: bool = True,
        for_room: bool = False,
    ) -> None:
        """A job class found no place in one mode: it is not tried until something changes. O(1).

        With ``from_s`` those are still tried that are expected to need less. ``choices``: the
        accelerators that it might have used; ``limited``: quota may change that. ``for_room``: more
        room may help it.
        """
        self.ranking.block(JOB_CLASS, one.number, over_quota, from_s)
        if for_room:
            one.placement[over_quota].blocked[one.number] = None
        if limited:
            one.had[over_quota] = frozenset(choices)
            self.limited.setdefault(one.spec.tenant, {})[one.number] = one
        if retry_at_s is not None:
            at_s = min(retry_at_s, self.retries.at_s(one.number) or retry_at_s)
            self.retries.set(one.number, at_s, one.number)

    def block_gate(self, one: JobClass, over_quota: bool, *, limited: bool) -> None:
        """A job class may use nothing in one mode, nor may the others of its gate. O(those).

        Those that were blocked before stay as they are: they come up when something may help them.
        """
        for number in one.gate.members:
            other = self.by_number[number]
            if other is one or over_quota not in other.had:
                self.block(other, over_quota, limited=limited)

    # --- unblock ----------------------------------------------------------------------------------

    def unblock(self, event: Event) -> bool:
        """Something changed: what it may help is tried again. Whether there is any.

        O(what is tried again), and what it takes to find that.
        """
        if isinstance(event, Anything):
            return self._unblock_all()
        found = False
        for scope in event.helps(self):
            for one in scope.job_classes:
                self._open(one, scope.modes)
                found = True
            for placement in scope.classes:
                self.ranking.unblock(PLACEMENT, placement.number, placement.over_quota)
                for number in list(placement.blocked) if scope.members else ():
                    self._open(self.by_number[number], (placement.over_quota,))
                if scope.forgets:
                    placement.forget()
                    self.changes += 1
                self.stirred = found = True
        return found

    def _unblock_all(self) -> bool:
        self.ranking.unblock_all()
        for of_tenant in self.limited.values():
            for one in of_tenant.values():
                one.had.clear()
        self.limited.clear()
        self.classes.forget()
        self.changes += 1
        self.stopped = self._stopped_class = None
        self.stirred = len(self.ranking) > 0
        return self.stirred

    def _open(self, one: JobClass, modes: tuple[bool, ...]) -> None:
        for over_quota in modes:
            self.ranking.unblock(JOB_CLASS, one.number, over_quota)
            one.had.pop(over_quota, None)
            one.placement[over_quota].blocked.pop(one.number, None)
        if not one.had:
            self._forget_limits(one)
        self.stirred = True
        if self._stopped_class is one:
            self.stopped = self._stopped_class = None

    def _forget_limits(self, one: JobClass) -> None:
        of_tenant = self.limited.get(one.spec.tenant)
        if of_tenant is not None:
            of_tenant.pop(one.number, None)
            if not of_tenant:
                del self.limited[one.spec.tenant]

    def stop_at(self, candidate: Candidate, one: JobClass) -> None:
        """No job behind this one may be tried until its class is unblocked, or it is gone."""
        self.stopped, self._stopped_class = candidate, one

    # --- what waits for what ----------------------------------------------------------------------

    @property
    def wants_quota(self) -> bool:
        """Whether more quota might help a blocked job class."""
        return bool(self.limited)

    def for_room(self) -> Iterator[tuple[PlacementClass, JobSpec]]:
        """The placement classes that wait for room, and one of the jobs of each. O(classes)."""
        for placement in self.classes:
            if placement.blocked or placement.verdicts:
                yield placement, self.by_number[next(iter(placement.members))].spec
