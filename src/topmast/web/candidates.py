"""An explanation as a table of candidates and as a time axis: what the template draws."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from topmast.model.reason import (
    BACK_OFF,
    ClusterVerdict,
    Count,
    PendingReason,
    Rejection,
    ruled_out,
)
from topmast.model.views import Explanation, PlanView, RegionVerdict

WIDTH = 220.0
"""Of a bar, in units of its picture."""
AXIS = 900.0
"""Of the time axis."""
SOON_S = 60.0
"""The axis shows at least so much."""
MOST_TICKS = 6
"""Of an axis, beside the one where it begins."""
_MINUTE_S, _HOUR_S, _DAY_S = 60.0, 3600.0, 86400.0
_EXPECTED = re.compile(r", expected in [0-9.dhms]+")
"""The axis says when it is, and the page what it means for the expected start."""
ROUND_STEPS_S = (
    1.0, 2.0, 5.0, 10.0, 15.0, 30.0,
    *(count * _MINUTE_S for count in (1, 2, 5, 10, 15, 30)),
    *(count * _HOUR_S for count in (1, 2, 3, 6, 12)),
    *(count * _DAY_S for count in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)),
)  # fmt: skip
"""What may lie between two ticks; the largest ones do for ten years, the longest duration."""

MEANING: dict[Rejection, str] = {
    Rejection.RESIDENCY: "the dataset may not be there",
    Rejection.DATA_UNREACHABLE: (
        "no complete replica with a link to it, or a copy has just failed"
    ),
    Rejection.DATA_ELSEWHERE: (
        "a copy would take longer than `copy_limit_s`, or copies are switched off"
    ),
    Rejection.STORAGE_FULL: "its store has no room for the dataset",
    Rejection.UNREACHABLE: "its placer runs in another process, and does not answer",
    Rejection.BOUND_ELSEWHERE: "the profile sent the job to another place, and asks no other",
    Rejection.NOT_SUPPORTED: (
        "the engine of its cluster gives no part of a GPU, runs no container images, or gives "
        "tasks no variables of their hosts, and the job needs that"
    ),
    Rejection.NO_MATCHING_HARDWARE: "another GPU model, or too few GPUs even when empty",
    Rejection.QUOTA: (
        "its GPU model is one the job lists, but the tenant's quota does not allow so many of it "
        "now"
    ),
    Rejection.HOST_UNAVAILABLE: "cordoned, draining, closed, suspect or down",
    Rejection.HOST_RESERVED: "reserved, and the job would not have ended before",
    Rejection.HOST_AVOIDED: "the job lost an attempt there, and looks elsewhere first",
    Rejection.TOO_FEW_GPUS: "too few GPUs free",
    Rejection.TOO_FEW_CPUS: "too few CPUs free",
    Rejection.TOO_LITTLE_MEMORY: "too little memory free",
    Rejection.TOGETHER: (
        "it takes a task, but its rack (or what the topology requires) has not room for all now"
    ),
    Rejection.TOPOLOGY: (
        "it takes a task, but its rack (or what the topology requires) is too small for all, even "
        "empty"
    ),
    Rejection.STOPPING: "being stopped, or not begun yet",
    Rejection.BAND_NOT_LOWER: "of the same band or a higher one",
    Rejection.NOT_PREEMPTIBLE: "said that it may not be preempted",
    Rejection.VICTIMS_TOO_YOUNG: "too young: what is preempted has run for `min_runtime_s`",
}
"""Of each reason, as the reference of states says it."""


KEPT_BY: dict[str | None, str] = {
    PendingReason.HELD: "the job is held",
    PendingReason.TENANT_PAUSED: "its tenant is paused",
    PendingReason.WAITING_FOR_JOBS: "the job waits for others to end",
    PendingReason.UNKNOWN_DATASET: "the catalogue does not have its data",
    PendingReason.EXCEEDS_MAX_QUOTA: "the quota of its tenant never allows it",
    PendingReason.WAITING_FOR_QUOTA: "the quota of its tenant is used up",
    PendingReason.WAITING_FOR_DATA: "its data is not there yet",
    PendingReason.INSUFFICIENT_CAPACITY: "the queue does not start it there yet (see above)",
    BACK_OFF: "the job waits out a delay",
}
"""What keeps a job from a place with room, by the reason why it waits."""


class Bar(Struct, frozen=True):
    """A term of a score, drawn."""

    term: str
    value: float
    x: float
    width: float
    kind: int
    """Which of the colours."""


class Turned(Struct, frozen=True):
    """Hosts or jobs that were rejected for one reason."""

    reason: str
    count: int
    why: str


class Candidate(Struct, frozen=True):
    """A cluster, and what the search found there."""

    region: str
    cluster: str
    verdict: str
    fits: bool
    chosen: bool
    free_gpus: float
    total_gpus: float
    score: float | None
    bars: tuple[Bar, ...]
    turned: tuple[Turned, ...]
    """Its hosts that were rejected, by reason."""
    spared: tuple[Turned, ...]
    """Its running jobs that may not be stopped, by reason."""
    victims: tuple[str, ...]


class Tick(Struct, frozen=True):
    """A place on the time axis."""

    x: float
    at_s: float


class Axis(Struct, frozen=True):
    """The expected start on an axis of time from now on."""

    at: Tick
    early_x: float
    late_x: float
    ticks: tuple[Tick, ...]
    events: tuple[tuple[Tick, str], ...]
    """What happens by itself until then, in words."""


def terms_of(explanation: Explanation) -> tuple[str, ...]:
    """All terms that scores have, in their order."""
    of_plans = [term for plan in explanation.plans for term in plan.terms]
    verdicts = [verdict for region in explanation.regions for verdict in region.clusters]
    return tuple(dict.fromkeys([*of_plans, *(t for verdict in verdicts for t in verdict.terms)]))


def candidates(explanation: Explanation) -> tuple[Candidate, ...]:
    """Every cluster, those that fit first, by score."""
    terms = terms_of(explanation)
    verdicts = [verdict for region in explanation.regions for verdict in region.clusters]
    scale = _scale([verdict.terms for verdict in verdicts])
    first = explanation.plans[0] if explanation.plans and explanation.reason is None else None
    found = [
        _candidate(region, verdict, terms, scale, first, KEPT_BY.get(explanation.reason, ""))
        for region in explanation.regions
        for verdict in region.clusters
    ]
    found += [_silent(region) for region in explanation.regions if not region.clusters]
    return tuple(
        sorted(found, key=lambda one: (not one.chosen, one.score is None, one.score or 0.0,
                                       one.region, one.cluster))
    )  # fmt: skip


def plan_bars(plan: PlanView, terms: Sequence[str]) -> tuple[Bar, ...]:
    """The terms of one plan."""
    return _bars(plan.terms, terms, _scale([plan.terms]))


def _candidate(
    region: RegionVerdict,
    verdict: ClusterVerdict,
    terms: Sequence[str],
    scale: tuple[float, float],
    first: PlanView | None,
    kept_by: str,
) -> Candidate:
    place = (region.region, verdict.cluster)
    has_room = verdict.score is not None and region.barred is None
    return Candidate(
        *place, _words(region, verdict, kept_by), has_room and not kept_by,
        first is not None and (first.region, first.cluster) == place,
        verdict.free_gpus, verdict.total_gpus, verdict.score,
        _bars(verdict.terms, terms, scale), _turned(verdict.rejections), _turned(verdict.spared),
        verdict.victims,
    )  # fmt: skip


def _silent(region: RegionVerdict) -> Candidate:
    why = _barred(region.barred) if region.barred else "it has no cluster"
    return Candidate(region.region, "", why, False, False, 0.0, 0.0, None, (), (), (), ())


def _words(region: RegionVerdict, verdict: ClusterVerdict, kept_by: str) -> str:
    if region.barred:
        return f"ruled out: {_barred(region.barred)}"
    if verdict.score is not None:
        stops = len(verdict.victims)
        room = f"if {stops} running job{'' if stops == 1 else 's'} would stop"
        if kept_by:
            return f"has room{' ' + room if stops else ''}, but {kept_by}"
        return f"fits {room if stops else 'now'}"
    by_quota = any(count.reason is Rejection.QUOTA for count in verdict.rejections)
    if not verdict.ever and not by_quota:
        most = verdict.largest_gpus
        return "can never fit" + (f": at most {most:g} GPUs together" if most else "")
    return "no room now"


def _barred(told: str) -> str:
    """Why a region is ruled out, as a sentence: it is told as ``Token (detail)``."""
    token, _, detail = told.partition(" (")
    found = next((known for known in Rejection if known.value == token), None)
    return told if found is None else ruled_out(found, detail.removesuffix(")"))


def _turned(counts: Sequence[Count]) -> tuple[Turned, ...]:
    return tuple(
        Turned(
            count.reason.value, count.count,
            MEANING[count.reason] + (f" ({count.detail})" if count.detail else ""),
        )
        for count in counts
    )  # fmt: skip


def _scale(every: Sequence[dict[str, float]]) -> tuple[float, float]:
    """The lowest and the highest point of any bar."""
    low = min((sum(v for v in terms.values() if v < 0) for terms in every), default=0.0)
    high = max((sum(v for v in terms.values() if v > 0) for terms in every), default=0.0)
    return low, max(high, low + 1e-9)


def _bars(
    values: dict[str, float], terms: Sequence[str], scale: tuple[float, float]
) -> tuple[Bar, ...]:
    """One after another from zero: what costs to the right, what gains to the left."""
    low, high = scale
    unit = WIDTH / (high - low)
    left, right, found = -low * unit, -low * unit, []
    for kind, term in enumerate(terms):
        value = values.get(term, 0.0)
        width = abs(value) * unit
        if value < 0:
            left -= width
            found.append(Bar(term, value, left, width, kind % 8))
        elif value > 0:
            found.append(Bar(term, value, right, width, kind % 8))
            right += width
    return tuple(found)


def axis_of(explanation: Explanation, now_s: float) -> Axis | None:
    """The time axis of a job that is expected to start; None for any other."""
    start = explanation.expected_start
    if start is None or start.at_s is None:
        return None
    early_s, late_s = start.early_s or start.at_s, start.late_s or start.at_s
    known = [(change.at_s, change.text) for change in explanation.changes if change.at_s]
    known = [(at_s, text) for at_s, text in known if now_s < at_s <= late_s + SOON_S]
    end_s = now_s + 1.08 * max(
        SOON_S, late_s - now_s, *(at_s - now_s for at_s, _ in known[:3]), 0.0
    )

    def x(at_s: float) -> float:
        return AXIS * max(0.0, min(1.0, (at_s - now_s) / (end_s - now_s)))

    ticks = [now_s + after_s for after_s in round_ticks_s(end_s - now_s)]
    return Axis(
        Tick(x(start.at_s), start.at_s), x(early_s), x(late_s),
        tuple(Tick(x(at_s), at_s) for at_s in ticks),
        tuple((Tick(x(at_s), at_s), without_time(text)) for at_s, text in known[:3]),
    )  # fmt: skip


def without_time(text: str) -> str:
    """The text of a change without the time at which it is expected."""
    return _EXPECTED.sub("", text)


def round_ticks_s(span_s: float) -> tuple[float, ...]:
    """Where an axis of elapsed time has its ticks: round amounts from 0 on."""
    fitting = (step_s for step_s in ROUND_STEPS_S if span_s <= MOST_TICKS * step_s)
    step_s = next(fitting, span_s)
    return tuple(count * step_s for count in range(int(span_s / step_s) + 1))
