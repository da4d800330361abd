"""What is tried again after an event, and what stays blocked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.support.build import job, profile
from topmast.fast.queue.backlog.backlog import Backlog
from topmast.fast.queue.backlog.blocked import (
    Anything,
    CopyDone,
    Event,
    JobMayMore,
    QuotaFreed,
    ReservationFree,
    RoomFreed,
    TimeUp,
)
from topmast.fast.queue.backlog.durations import Durations
from topmast.fast.queue.backlog.ordered_index import PLACEMENT
from topmast.fast.queue.backlog.placement_class import Verdict
from topmast.fast.queue.jobs.record import JobRecord
from topmast.model.job import JobSpec
from topmast.model.reason import PendingReason
from topmast.policies.registry import policies_of

FULL = Verdict(PendingReason.INSUFFICIENT_CAPACITY)
ALL = ("a", "b", "reader")

JOBS: dict[str, JobSpec] = {
    "a": job(gpus=8, tenant="a"),
    "b": job(gpus=8, tenant="b"),
    "reader": job(gpus=2, datasets=("d",)),
}
"""The first two are of one placement class and of two gates."""


def _blocked() -> Backlog:
    """A backlog whose jobs all wait for room, with a verdict for their classes."""
    backlog = Backlog(policies_of(profile()).order, lambda tenant: 1.0, Durations(3_600.0))
    for number, (name, spec) in enumerate(JOBS.items()):
        backlog.add(JobRecord(name, number, spec, float(number)), now=0.0)
        one = backlog.job_class(name)
        for over_quota in (False, True):
            backlog.block(one, over_quota, choices=(0,), for_room=True)
            one.placement[over_quota].verdicts[False] = FULL
            backlog.block_class(one.placement[over_quota], float("-inf"), exempt=None)
    backlog.block(backlog.job_class("b"), False, retry_at_s=50.0, choices=(0,), for_room=True)
    assert backlog.next() is None
    return backlog


def _tried(backlog: Backlog) -> tuple[str, ...]:
    """The jobs that are not passed over, within quota or over it."""
    return tuple(name for name in JOBS if not backlog.ranking.is_passed_over(name))


def _known(backlog: Backlog) -> tuple[str, ...]:
    """The jobs whose classes have a verdict within quota."""
    classes = {name: backlog.job_class(name).placement[False] for name in JOBS}
    return tuple(name for name, placement in classes.items() if placement.verdicts)


@dataclass
class Case:
    """An event, the jobs that it lets be tried again, and those of which the verdict holds on."""

    story: str
    event: Callable[[Backlog], Event]
    want: tuple[str, ...]
    want_known: tuple[str, ...] = ALL


def _class_of(name: str) -> Callable[[Backlog], Event]:
    return lambda backlog: RoomFreed([backlog.job_class(name).placement[False].number])


def _quota(branch: str, *choices: int) -> Callable[[Backlog], Event]:
    """Something was booked in a branch, and every class may use these accelerators within quota."""
    return lambda _: QuotaFreed(
        lambda tenant: tenant == branch, lambda _: {False: choices, True: ()}
    )


CASES = [
    Case("anything may have changed", lambda _: Anything(), ALL, ()),
    Case("room for a class of two tenants", _class_of("a"), ("a", "b"), ("reader",)),
    Case("room for another class", _class_of("reader"), ("reader",), ("a", "b")),
    Case("room for a class that is gone", lambda _: RoomFreed([99]), ()),
    Case("a reservation is free, and the verdicts hold", lambda _: ReservationFree(), ALL),
    Case("a copy that a job waits for", lambda _: CopyDone("d"), ("reader",), ("a", "b")),
    Case("a copy that no job waits for", lambda _: CopyDone("other"), ()),
    Case("a job may do more, and no other of its class", lambda b: JobMayMore(b.job_class("a")), ("a",)),
    Case("its time to retry is not there yet", lambda _: TimeUp(49.9), ()),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_an_event_unblocks_what_it_may_help(case: Case) -> None:
    """These jobs and no others are tried again; verdicts are forgotten only where they may be false."""
    backlog = _blocked()
    assert backlog.unblock(case.event(backlog)) is bool(case.want)
    assert _tried(backlog) == case.want
    assert _known(backlog) == case.want_known
    assert (backlog.next() is not None) is bool(case.want)


def test_time_and_quota_unblock_job_classes_one_by_one() -> None:
    """A placement class that is blocked as a whole stays so: there is no more room than before."""
    backlog = _blocked()
    assert backlog.unblock(TimeUp(50.0))
    assert _tried(backlog) == ()
    backlog = _blocked()
    for placement in backlog.blocked.classes:
        backlog.ranking.unblock(PLACEMENT, placement.number, placement.over_quota)
    assert _tried(backlog) == ()
    assert not backlog.unblock(_quota("a", 0)(backlog)), "it had this one before"
    assert not backlog.unblock(_quota("c", 0, 1)(backlog)), "another branch"
    assert backlog.unblock(_quota("a", 0, 1)(backlog))
    assert _tried(backlog) == ("a",)
    assert backlog.unblock(TimeUp(50.0))
    assert _tried(backlog) == ("a", "b")
    assert not backlog.unblock(TimeUp(99.0)), "a time to retry counts once"
