"""Commits: a plan is validated against the books, its victims are stopped, its gang is launched."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from topmast.fast.region import facts as f
from topmast.fast.region.answers import RegionAnswers
from topmast.fast.region.attempts import announce, launch, launch_each, stop
from topmast.fast.region.inventory.allocation import Allocation, AllocationPhase, to_internal
from topmast.fast.region.inventory.overlay import Overlay
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.plan import Plan, Victim, needs_of
from topmast.model.states import Outcome

NEVER = -1
"""No version of the books."""


def commit(placer: RegionAnswers, event: m.CommitPlan) -> None:
    """Take the slots, if the plan still fits, and stop the victims or launch at once."""
    plan = to_internal(event.plan)
    kept = placer.holds.drop(placer.columns, event.hold)
    is_kept = kept is not None and kept.seats == plan.seats and not plan.victims
    why = _no_longer_fits(placer, plan, event, is_kept=is_kept)
    if why and event.hold and kept is None:
        why = f"{why}, and its hold had expired"
    if why:
        placer.send(ids.QUEUE, m.PlanRefused(plan.job, event.epoch, why))
        return
    held = placer.state.allocations
    victims = [v for v in plan.victims if v.job in held] if plan.victims else []
    place = placer.state.places.get(plan.job)
    if place is not None:
        placer.decide(f.PlaceGivenUp(plan.job, used=place.plan.seats == plan.seats))
    placer.decide(f.SlotsTaken(tuple([v.job for v in victims]) if victims else ()))
    if victims:  # else the start says so
        placer.send(ids.QUEUE, m.PlanCommitted(plan.job, event.epoch, waiting=True))
    for victim in victims:
        cause = _cause(plan.job, held[victim.job], victim.to)
        stop(placer, held[victim.job], Outcome.PREEMPTED, cause, victim.to)
    if not victims:
        launch(placer, held[plan.job])
    if place is not None:
        announce(placer)


def commit_each(placer: RegionAnswers, event: m.CommitPlans) -> None:
    """Take the slots of several plans and launch them all; one by one if not all of them fit."""
    state, plans = placer.state, event.plans
    unchanged = not len(placer.holds) and plans.versions[placer.region] == state.version
    fits = (
        state.places.keys().isdisjoint(plans.jobs)
        and state.allocations.keys().isdisjoint(plans.jobs)
        and (unchanged or placer.columns.have_room(plans.seats))
    )
    if not fits:
        for one in event.one_by_one():
            # Each is looked at: a plan that is refused leaves a version for which none was made.
            plan = replace(one.plan, region_version=NEVER)
            placer.send(ids.placer(placer.region), replace(one, plan=plan))
        return
    placer.decide(f.AllTaken())
    launch_each(placer, event)


def _cause(preemptor: str, held: Allocation, to: Plan | None) -> str:
    """Why an attempt has to stop, in words."""
    if to is None:
        return f"preempted by {preemptor}"
    before, after = len(held.plan.seats), len(to.seats)
    if after < before:
        return f"shrinks from {before} to {after} tasks for {preemptor}"
    return f"migrated for {preemptor}"


def _no_longer_fits(
    placer: RegionAnswers, plan: Plan, event: m.CommitPlan, *, is_kept: bool
) -> str:
    """Re-validate a plan against the books as they are; empty when it fits.

    ``is_kept``: its seats were kept for it until now.
    """
    if plan.job in placer.state.allocations:
        return "the job holds slots already"
    if why := placer.sharing.why_not(plan):
        return why
    unchanged = plan.region_version == placer.state.version and not len(placer.holds)
    if unchanged and not plan.victims:
        return ""  # nothing has happened here since it was made
    if is_kept and plan.job not in placer.state.places:
        return _takes_no_work(placer, plan)
    trial = Overlay(placer.columns)
    place = placer.state.places.get(plan.job)
    if place is not None:
        trial.give_back(place.plan.seats, place.needs, place.plan.in_slice)
    for victim in plan.victims:
        held = placer.state.allocations.get(victim.job)
        if held is None:
            continue  # gone by itself: its slots are free
        if held.epoch != victim.epoch or held.hold is AllocationPhase.STOPPING:
            return f"victim {victim.job} is another attempt or being stopped"
        trial.release([held])
    if why := _takes_no_work(placer, plan):
        return why
    needs = needs_of(event.spec.groups)
    trial.take(plan.seats, needs, plan.in_slice)
    for seat in plan.seats:
        if trial.overdrawn(seat, needs[seat.group], plan.in_slice):
            return f"host {seat.host} has not enough free"
    return _no_place_is_left(placer, plan.victims, trial)


def _takes_no_work(placer: RegionAnswers, plan: Plan) -> str:
    """The first host of a plan that takes no work; empty if all do."""
    lost = (h for h in plan.hosts if not placer.columns.take_work((h,), plan.in_slice))
    return next((f"host {host} takes no work" for host in lost), "")


def _no_place_is_left(placer: RegionAnswers, victims: Iterable[Victim], trial: Overlay) -> str:
    """The first of the attempts to move that has lost its place; empty if none has."""
    for victim in victims:
        held = placer.state.allocations.get(victim.job)
        if held is None or victim.to is None:
            continue
        needs, to = held.needs(), victim.to
        trial.take(to.seats, needs, to.in_slice)
        there = placer.columns.take_work(to.hosts, to.in_slice)
        if not there or trial.is_overdrawn(to.seats, needs, to.in_slice):
            return f"the place for {victim.job} is not free"
    return ""
