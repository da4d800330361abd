"""Gangs of varying size: as many tasks as there is room for, and bookings cut down to the limit.

A question about an elastic gang asks for the fewest tasks with which it runs, so that all that is
remembered of it (no room, why, what would help) is of these. `PlacementRequest.more` has the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from topmast.model.absent import given
from topmast.model.bisection import most_with
from topmast.model.plan import Free, More, PlacementRequest, Plan

Found = TypeVar("Found")


def with_tasks(ask: PlacementRequest, tasks: int) -> PlacementRequest:
    """The question about so many tasks and no more, on the GPU models allowed for so many."""
    more = ask.more
    assert more is not None
    groups = list(ask.groups)
    least = groups[more.group].count
    groups[more.group] = replace(groups[more.group], count=tasks)
    models = ask.models
    if tasks > least:
        models = tuple(choice for choice, most in more.tasks if most >= tasks)
    return replace(ask, groups=tuple(groups), models=models, mode=Free())


def least_of(ask: PlacementRequest) -> int:
    """The fewest tasks with which the elastic group of a question runs."""
    assert ask.more is not None
    return ask.groups[ask.more.group].count


def largest(
    ask: PlacementRequest,
    find: Callable[[PlacementRequest], Found | None],
    all_failed: bool = False,
) -> Found | None:
    """What ``find`` finds for the most tasks; None if it finds nothing even for the fewest.

    A gang that fits with some tasks fits with fewer: all that it would like are tried first, then
    the fewest, then between the two by halves. O(log tasks) searches, and one where there is room
    for all. ``all_failed``: it is known that all find nothing.
    """
    more = ask.more
    if more is None:
        return find(ask)
    low, high = least_of(ask), more.most
    if high > low and not all_failed:
        found = find(with_tasks(ask, high))
        if found is not None:
            return found
    smallest = find(with_tasks(ask, low))
    if smallest is None:
        return None
    larger = most_with(lambda tasks: find(with_tasks(ask, tasks)), low, high)
    return smallest if larger is None else larger[1]


def anywhere(ask: PlacementRequest) -> PlacementRequest:
    """The question of a gang without a booking: about as many tasks as it may have anywhere."""
    more = ask.more
    most = None if more is None else given(more.anywhere, None)
    if more is None or most is None:
        return ask
    fewer = tuple((choice, min(tasks, most)) for choice, tasks in more.tasks)
    return replace(ask, mode=Free(More(more.group, fewer)))


def cut(plan: Plan, ask: PlacementRequest) -> Plan | None:
    """A booking of an elastic gang without the tasks beyond its limit; None if too few are left.

    Ranks are counted anew, in the order that they had. O(seats).
    """
    more = ask.more
    if more is None:
        return plan
    group = ask.groups[more.group]
    allowed = _allowed(more, ask, plan.model)
    kept = plan.tasks_of(group.name)
    if kept <= allowed:
        return plan
    if allowed < group.count:
        return None
    spare, seats = kept - allowed, []
    for seat in reversed(plan.seats):
        if seat.group == group.name and spare:
            spare -= 1
        else:
            seats.append(seat)
    ranked = tuple(replace(seat, rank=rank) for rank, seat in enumerate(reversed(seats)))
    held_milli = sum(len(seat.slots) * seat.slot_milli for seat in ranked)
    return replace(plan, seats=ranked, gpus_milli=held_milli)


def _allowed(more: More, ask: PlacementRequest, model: str) -> int:
    """The most tasks that the gang may have on a GPU model."""
    listed = ask.groups[more.group].resources.accelerators
    if not listed:
        return more.most
    fitting = [t for c, t in more.tasks if c < len(listed) and listed[c].model in (None, model)]
    return max(fitting, default=0)
