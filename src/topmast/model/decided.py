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


AS_FORESEEN = Decided(Rule.LOWEST_SCORE)
"""Of a plan that came with those of other jobs: no other was looked at."""


def why(decided: Decided, plan: Plan, *, past: bool = False) -> str:
    """Why this plan was chosen, as one sentence without a full stop.

    ``past``: the job has its place, so that the sentence tells of the moment of the decision.
    """
    text = _REASONS[decided.rule](decided, plan, past)
    if decided.bound:
        text += f"; the job was sent to {_place(decided.bound)}, so no other place was asked"
    if decided.silent:
        text += f"; {joined(decided.silent)} could not be asked"
    return text


_PAST = {
    "is": "was", "has": "had", "holds": "held", "needs": "needed", "stops": "stopped",
    "moves": "moved", "move": "moved", "gets": "got", "get": "got", "need": "have needed",
}  # fmt: skip


def _verb(present: str, past: bool) -> str:
    return _PAST[present] if past else present


def _lowest(decided: Decided, plan: Plan, past: bool) -> str:
    has = _verb("has", past)
    return f"of all free places, this one {has} the lowest score ({points(plan.score)})"


def _most_tasks(decided: Decided, plan: Plan, past: bool) -> str:
    tasks = f"{len(plan.seats)} task{'' if len(plan.seats) == 1 else 's'}"
    most = f"the most tasks ({tasks}, score {points(plan.score)})"
    return f"of all free places, this one {_verb('holds', past)} {most}"


def _has_data(decided: Decided, plan: Plan, past: bool) -> str:
    is_, has, need = (_verb(verb, past) for verb in ("is", "has", "need"))
    text = f"this place {is_} free and {has} the job's data (score {points(plan.score)})"
    if not decided.rival:
        return text
    rival = decided.rival
    score = points(rival.score)
    return f"{text}; {rival.where} {has} score {score}, but would {need} a copy of the data"


def _kept(decided: Decided, plan: Plan, past: bool) -> str:
    return "this place was kept for it while it stopped elsewhere"


def _shared(decided: Decided, plan: Plan, past: bool) -> str:
    return f"it shares the GPUs of {plan.colocated_with}"


def _stops(decided: Decided, plan: Plan, past: bool) -> str:
    stopped = [victim.job for victim in plan.victims if victim.to is None]
    text = f"{_no_room(decided, past)}, so it {_verb('stops', past)} {named(stopped)}"
    return f"{text} (score {points(plan.score)}){_against(decided, past)}"


def _moves(decided: Decided, plan: Plan, past: bool) -> str:
    moved = [victim.job for victim in plan.victims]
    verb = _verb("moves" if len(moved) == 1 else "move", past)
    text = f"{_no_room(decided, past)}, so {named(moved)} {verb} to other hosts"
    return f"{text} (score {points(plan.score)}){_against(decided, past)}"


def _shrinks(decided: Decided, plan: Plan, past: bool) -> str:
    smaller = [victim.job for victim in plan.victims]
    verb = _verb("gets" if len(smaller) == 1 else "get", past)
    text = f"{_no_room(decided, past)}, so {named(smaller)} {verb} fewer tasks"
    return f"{text} (score {points(plan.score)}){_against(decided, past)}"


def _no_room(decided: Decided, past: bool) -> str:
    """What is missing when running jobs have to go: a free place, or a free place with the data."""
    if decided.rival and decided.rival.copies:
        return "no free place was chosen"
    return f"no place {_verb('is', past)} free for it"


def _against(decided: Decided, past: bool) -> str:
    if not decided.rival:
        return ""
    rival, is_ = decided.rival, _verb("is", past)
    score = f"(score {points(rival.score)})"
    if rival.copies:
        needs = _verb("needs", past)
        return f"; {rival.where} {is_} free, but {needs} a copy of the data first {score}"
    return f"; the next best plan {is_} in {rival.where} {score}"


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
