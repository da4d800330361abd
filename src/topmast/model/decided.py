"""Why a plan was chosen: the rule that decided, and the sentence that says it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import UNSET, Struct, UnsetType

from topmast.model.plan import Binding, Plan

JOBS_NAMED = 3


class Rule(StrEnum):
    """What decided between the plans for a job."""

    LOWEST_SCORE = "LowestScore"
    MOST_TASKS = "MostTasks"
    HAS_DATA = "HasData"
    KEPT_PLACE = "KeptPlace"
    SHARED_GPUS = "SharedGpus"
    MOVES_JOBS = "MovesJobs"
    SHRINKS_JOBS = "ShrinksJobs"
    STOPS_JOBS = "StopsJobs"


class Rival(Struct, frozen=True, gc=False):
    """The best plan that was not chosen."""

    region: str
    cluster: str
    score: float
    copies: bool = False
    """Its region lacks data of the job."""
    stops: bool = False
    """It stops or moves running jobs."""

    @property
    def where(self) -> str:
        """The region and the cluster, for people."""
        return f"{self.region}/{self.cluster}"


class Decided(Struct, frozen=True, gc=False):
    """Why a plan was chosen."""

    rule: Rule
    rival: Rival | UnsetType = UNSET
    """The best of the other plans that were compared."""
    bound: Binding | UnsetType = UNSET
    """The only place that was asked, because the job was bound to it."""
    silent: tuple[str, ...] | UnsetType = UNSET
    """Regions that could not be asked."""


def why(decided: Decided, plan: Plan) -> str:
    """Why this plan was chosen, as one sentence without a full stop."""
    text = _REASONS[decided.rule](decided, plan)
    if decided.bound:
        text += f"; the job was sent to {_place(decided.bound)}, so no other place was asked"
    if decided.silent:
        text += f"; {joined(decided.silent)} could not be asked"
    return text


def _lowest(decided: Decided, plan: Plan) -> str:
    return f"of all free places, this one has the lowest score ({points(plan.score)})"


def _most_tasks(decided: Decided, plan: Plan) -> str:
    tasks = f"{len(plan.seats)} task{'' if len(plan.seats) == 1 else 's'}"
    return (
        f"of all free places, this one holds the most tasks ({tasks}, score {points(plan.score)})"
    )


def _has_data(decided: Decided, plan: Plan) -> str:
    text = f"this place is free and has the job's data (score {points(plan.score)})"
    if not decided.rival:
        return text
    rival = decided.rival
    return (
        f"{text}; {rival.where} has score {points(rival.score)}, but would need a copy of the data"
    )


def _kept(decided: Decided, plan: Plan) -> str:
    return "this place was kept for it while it stopped elsewhere"


def _shared(decided: Decided, plan: Plan) -> str:
    return f"it shares the GPUs of {plan.colocated_with}"


def _stops(decided: Decided, plan: Plan) -> str:
    stopped = [victim.job for victim in plan.victims if victim.to is None]
    text = f"{_no_room(decided)}, so it stops {named(stopped)}"
    return f"{text} (score {points(plan.score)}){_against(decided)}"


def _moves(decided: Decided, plan: Plan) -> str:
    moved = [victim.job for victim in plan.victims]
    verb = "moves" if len(moved) == 1 else "move"
    text = f"{_no_room(decided)}, so {named(moved)} {verb} to other hosts"
    return f"{text} (score {points(plan.score)}){_against(decided)}"


def _shrinks(decided: Decided, plan: Plan) -> str:
    smaller = [victim.job for victim in plan.victims]
    verb = "gets" if len(smaller) == 1 else "get"
    text = f"{_no_room(decided)}, so {named(smaller)} {verb} fewer tasks"
    return f"{text} (score {points(plan.score)}){_against(decided)}"


def _no_room(decided: Decided) -> str:
    """What is missing when running jobs have to go: a free place, or a free place with the data."""
    copies = decided.rival and decided.rival.copies
    return "no free place was chosen" if copies else "no place is free for it"


def _against(decided: Decided) -> str:
    if not decided.rival:
        return ""
    rival = decided.rival
    score = f"(score {points(rival.score)})"
    if rival.copies:
        return f"; {rival.where} is free, but needs a copy of the data first {score}"
    return f"; the next best plan is in {rival.where} {score}"


_REASONS = {
    Rule.LOWEST_SCORE: _lowest,
    Rule.MOST_TASKS: _most_tasks,
    Rule.HAS_DATA: _has_data,
    Rule.KEPT_PLACE: _kept,
    Rule.SHARED_GPUS: _shared,
    Rule.MOVES_JOBS: _moves,
    Rule.SHRINKS_JOBS: _shrinks,
    Rule.STOPS_JOBS: _stops,
}


def points(score: float) -> str:
    """A score for people: three digits, and 0 where it is next to nothing."""
    return "0" if abs(score) < 0.0005 else f"{score:.3g}"


def _place(place: Binding) -> str:
    return place.region if place.cluster is None else f"{place.region}/{place.cluster}"


def named(jobs: Sequence[str]) -> str:
    """The ids of jobs, the first few by name."""
    if len(jobs) <= JOBS_NAMED:
        return joined(jobs)
    return f"{', '.join(jobs[: JOBS_NAMED - 1])} and {len(jobs) - JOBS_NAMED + 1} more"


def joined(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
