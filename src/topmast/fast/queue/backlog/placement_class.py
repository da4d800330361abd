"""Quota gates and placement classes: what decides whether a waiting job may start, and where.

A job belongs to a quota gate (what its tenant may use) and, in each mode, to a placement class
(everything that decides whether a place exists). The mode is within quota or over it. The jobs of
one gate and one class are a job class: they differ in the order alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from topmast.fast.queue.hooks import Grant
from topmast.fast.queue.tenancy.entitlements import Key, QuotaGate, wanted_of
from topmast.model.fleet import Fleet
from topmast.model.job import Band, JobSpec, Topology, needs_of_engine
from topmast.model.plan import Binding, Reservation
from topmast.model.reason import PendingReason
from topmast.model.window import Stay


class Verdict(Struct, frozen=True, gc=False):
    """Why a job found no place, and when time alone may change that."""

    reason: PendingReason
    detail: str = ""
    retry_at_s: float | None = None
    choices: frozenset[int] = frozenset()
    """The accelerators that the job might have used."""
    held: Reservation | None = None
    """The reservation that it had to respect."""

    def covers(self, choices: tuple[int, ...], held: Reservation | None, now: float) -> bool:
        """Whether it is true of a job of the same class with these choices and reservation."""
        return (
            (self.held is None or self.held == held)
            and self.choices.issuperset(choices)
            and (self.retry_at_s is None or now < self.retry_at_s)
        )


NOT_TRIED = Verdict(PendingReason.PENDING_EVALUATION)


class Refused(Struct, frozen=True):
    """What a class is told when it finds too few GPUs."""

    fleet: Fleet
    """The fleet of which that is true."""
    batch: int
    """The request that was refused."""
    need_milli: int
    """Thousandths of GPUs that a gang of the class needs at least."""
    reasons: dict[str, PendingReason | None]
    """By region; they depend on its hosts alone."""


class PlacementClass(Struct):
    """Jobs that find a place, or none, alike, in one mode and whatever their tenants."""

    number: int
    key: Key
    members: dict[int, None] = {}
    """Its job classes with jobs, by number."""
    users: int = 0
    """How many job classes it has, with jobs or without."""
    blocked: dict[int, None] = {}
    """Those of them that are blocked for want of a place."""
    verdicts: dict[bool, Verdict] = {}
    """What one of its jobs heard, by whether it had to respect a reservation."""
    refused: dict[tuple[int, ...], Refused] = {}
    """What regions said of its jobs, by the accelerators that these might have used."""

    @property
    def over_quota(self) -> bool:
        """The mode of its jobs."""
        return bool(self.key[0])

    def refused_for(self, fleet: Fleet, choices: tuple[int, ...]) -> Refused | None:
        """What regions said of one of its jobs with these accelerators, in this fleet. O(1)."""
        known = self.refused.get(choices)
        return None if known is None or known.fleet is not fleet else known

    def forget(self) -> None:
        """Something changed: its verdicts may not hold any more."""
        self.blocked.clear()
        self.verdicts.clear()


class JobClass(Struct):
    """The jobs of one quota gate and one placement class."""

    number: int
    key: Key
    spec: JobSpec
    """Of one of its jobs."""
    gate: QuotaGate
    placement: dict[bool, PlacementClass]
    """Its placement class, by mode."""
    grant: Grant | None = None
    """What a round leaves its jobs; None without rounds."""
    size: int = 0
    """How many jobs wait."""
    stay: Stay | None = None
    """How long its jobs would stay; None while no hosts are reserved."""
    had: dict[bool, frozenset[int]] = {}
    """By mode, the accelerators that it might have used when it was blocked.

    Only where quota might let it use others."""
    verdict: Verdict = NOT_TRIED
    """Why its jobs wait, as the last of them heard."""


def placement_key(
    spec: JobSpec,
    topology: Topology,
    avoid_hosts: tuple[str, ...] = (),
    bound: Binding | None = None,
    grant: Grant | None = None,
    stay: Stay | None = None,
    *,
    over_quota: bool = False,
) -> Key:
    """All that decides whether a place exists for a job: the key of its placement class.

    What is left out here must make no difference to any search: jobs inherit the verdicts of their
    class. Over quota every band counts as opportunistic.
    """
    return (
        over_quota,
        Band.OPPORTUNISTIC if over_quota else spec.band,
        wanted_of(spec),
        needs_of_engine(spec),
        topology,
        spec.datasets,
        avoid_hosts,
        bound,
        grant,
        stay,
    )


def job_key(spec: JobSpec, placement: Key) -> Key:
    """The key of a job class: that of its class within quota, and what its gate has besides."""
    return (spec.tenant, spec.preemptible, placement)


def colocated_of(job_class: JobClass) -> str:
    """The job that shares its GPUs with a class's jobs in this round; empty: they share none."""
    return job_class.grant.colocated_with if job_class.grant is not None else ""


class PlacementClasses:
    """All placement classes, by key and by number."""

    def __init__(self) -> None:
        self._by_key: dict[Key, PlacementClass] = {}
        self._by_number: dict[int, PlacementClass] = {}
        self._free_numbers: list[int] = []

    def __iter__(self) -> Iterator[PlacementClass]:
        return iter(self._by_number.values())

    def get(self, number: int) -> PlacementClass | None:
        """The class of a number, if there is one."""
        return self._by_number.get(number)

    def of(self, key: Key) -> PlacementClass:
        """The placement class of a key; perhaps a new one. O(1)."""
        found = self._by_key.get(key)
        if found is None:
            number = self._free_numbers.pop() if self._free_numbers else len(self._by_number)
            found = self._by_key[key] = self._by_number[number] = PlacementClass(number, key)
        return found

    def drop(self, placement: PlacementClass) -> None:
        """No job class has this placement class any more. O(1)."""
        del self._by_key[placement.key], self._by_number[placement.number]
        self._free_numbers.append(placement.number)

    def forget(self) -> None:
        """Something changed that may help any job. O(classes)."""
        for placement in self._by_number.values():
            placement.forget()
