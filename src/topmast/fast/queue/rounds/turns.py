"""A round begins: jobs without a grant for what they have stop, and waiting jobs hear of theirs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.jobs.record import JobRecord
from topmast.fast.queue.rounds.candidates import Pairs, RoundCandidate, RoundCapacity
from topmast.fast.queue.rounds.kinds import Kinds
from topmast.fast.queue.rounds.pairs import pairs_of
from topmast.fast.queue.rounds.rounds import Rounds
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.job import MILLI
from topmast.model.states import JobState, Outcome
from topmast.policies.base import Ints, PairSpeeds

LEAST_LEFT_S = 60.0
"""A job that should be over is expected to need so much more work."""
CAUSE = "its turn is over"


class RoundState(Struct):
    """What rounds know of jobs, of the fleet, and of two jobs on the same GPUs."""

    rounds: Rounds
    kinds: Kinds
    pair_speeds: PairSpeeds | None
    """None: nothing is known of pairs."""


def begin_round(queue: QueueViews, own: RoundState) -> None:
    """Account for the round that is over, grant the GPUs anew, and stop jobs that make room."""
    rounds = own.rounds
    account_for(queue, own, list(queue.jobs.placed.values()))
    weights = _tenant_weights(queue)
    contenders, outside = _contenders(queue, own, list(weights))
    gpus = _gpus(queue, own)
    free_milli = _free(queue, own, contenders, gpus)
    stage = RoundCapacity(
        own.kinds.models, gpus, free_milli, np.array(list(weights.values())),
        lambda: _pairs(queue, own, contenders), _steps(own),
    )  # fmt: skip
    granted = rounds.begin(contenders, outside, stage, queue.now)
    for contender in contenders:
        job = contender.record.id
        if contender.at >= 0 and (granted.get(job) != contender.at or job in own.rounds.moving):
            _stop(queue, own, contender.record)
    waiting = [queue.jobs.records[job] for job in queue.backlog.in_order()]
    queue.backlog.take_turns(waiting, rounds.turns(), queue.now)


def account_for(queue: QueueViews, own: RoundState, records: list[JobRecord]) -> None:
    """Note what jobs have received by now."""
    for record in records:
        own.rounds.ran(record, _model_of(queue, own, record), queue.now, partner_of(queue, record))


def partner_of(queue: QueueViews, record: JobRecord) -> JobRecord | None:
    """The job that has the same GPUs now."""
    other = queue.jobs.placed.get(record.colocated_with) if record.colocated_with else None
    return other if other is not None and other.colocated_with == record.id else None


def _pairs(queue: QueueViews, own: RoundState, contenders: list[RoundCandidate]) -> Pairs | None:
    """Jobs that may have the same GPUs at the same time; None if there are none, or unknown."""
    if not own.rounds.options.pairs or own.pair_speeds is None:
        return None
    every = own.rounds.share.every_pair
    return pairs_of(contenders, own.kinds.models, own.pair_speeds, every=every)


def _steps(own: RoundState) -> Callable[[JobRecord], float] | None:
    """Steps a second of a job at speed 1, that is on the model that it lists first; 1: not known.

    None: they do not count, or there is no table of them.
    """
    table = own.pair_speeds
    if not own.rounds.options.raw or table is None:
        return None

    def steps_per_s(record: JobRecord) -> float:
        kind = own.kinds.of(record.spec)
        first = next(iter(np.flatnonzero(kind.choice == 0).tolist()), -1)
        model = own.kinds.models[first] if first >= 0 else ""
        work = (str(record.spec.work or ""), round(kind.width))
        return table.steps_per_s(work, model) or 1.0

    return steps_per_s


def _stop(queue: QueueViews, own: RoundState, record: JobRecord) -> None:
    assert record.plan is not None
    own.rounds.leaving[record.id] = None
    stop = m.StopAttempt(record.id, record.epoch, Outcome.PREEMPTED, CAUSE)
    queue.send(ids.placer(record.plan.region), stop)


def _model_of(queue: QueueViews, own: RoundState, record: JobRecord) -> int:
    """The number of the model on which a job runs, -1 if that is none or several."""
    plan, models = record.plan, own.kinds.models
    one = plan is not None and len(plan.held()) == 1 and plan.model in models
    return models.index(plan.model) if plan is not None and one else -1


def _contenders(
    queue: QueueViews, own: RoundState, tenants: list[str]
) -> tuple[list[RoundCandidate], list[JobRecord]]:
    """Jobs for this round's GPUs, and those outside: without GPUs, or of several models at once."""
    number_of = {name: number for number, name in enumerate(tenants)}
    going = [r for r in queue.jobs.placed.values() if r.state is not JobState.CANCELLING]
    waiting = [queue.jobs.records[job] for job in queue.backlog.in_order()]
    contenders: list[RoundCandidate] = []
    outside: list[JobRecord] = []
    for record in sorted((*going, *waiting), key=lambda record: record.number):
        kind = own.kinds.of(record.spec)
        at = _model_of(queue, own, record)
        if not kind.runs or (record.plan is not None and (at < 0 or not kind.speeds[at])):
            outside.append(record)
        elif record.plan is not None or _may_run(queue, record):
            contenders.append(
                RoundCandidate(
                    record, kind, _left_s(queue, own, record, at), _weight(own, record),
                    number_of[record.spec.tenant], at, at >= 0 and _stays(queue, own, record),
                    partner.id if (partner := partner_of(queue, record)) is not None else "",
                )
            )  # fmt: skip
    return contenders, outside


def _weight(own: RoundState, record: JobRecord) -> float:
    """What a job weighs, by its band."""
    weight: float = getattr(own.rounds.options.weights, record.spec.band.name.lower())
    return weight


def _may_run(queue: QueueViews, record: JobRecord) -> bool:
    """Whether neither quota nor data without a replica keep a waiting job from starting."""
    if queue.data.catalogue.unknown(record.spec.datasets):
        return False
    gate = queue.backlog.job_class(record.id).gate
    return any(queue.tenancy.choices_of(gate).values())


def _stays(queue: QueueViews, own: RoundState, record: JobRecord) -> bool:
    """Whether a running job may not be stopped by the round that begins."""
    share = own.rounds.share
    started = record.state in (JobState.STARTING, JobState.RUNNING)
    young = record.start_s is None or queue.now - record.start_s < queue.profile.min_runtime_s
    return not (share.moves and record.spec.preemptible and started) or young


def _left_s(queue: QueueViews, own: RoundState, record: JobRecord, at: int) -> float:
    """Work that is left of a job, in seconds at speed 1, as far as that is known."""
    left_s = queue.backlog.durations.remaining_s(record)
    if at >= 0 and record.start_s is not None:
        left_s -= (queue.now - record.start_s) * _speed(queue, own, record, at)
    return max(LEAST_LEFT_S, left_s)


def _speed(queue: QueueViews, own: RoundState, record: JobRecord, at: int) -> float:
    """Work per second of a running job, as if its present partner had been there from the start."""
    alone, other = own.kinds.of(record.spec).speeds.item(at), partner_of(queue, record)
    if other is None or own.pair_speeds is None:
        return alone
    one, two = ((str(r.spec.work or ""), r.spec.gpus_milli() // MILLI) for r in (record, other))
    found = own.pair_speeds.beside(one, two, own.kinds.models[at])
    return alone if found is None else alone * found[0]


def _gpus(queue: QueueViews, own: RoundState) -> Ints:
    """GPUs by model on hosts that take work. O(hosts)."""
    found = queue.fleet.gpus()
    for region in queue.fleet.regions:
        for model, gpus in own.rounds.out_of_service.get(region.name, {}).items():
            found[model] = max(0, found.get(model, 0) - gpus)
    return np.array([found[model] for model in own.kinds.models], np.int64)


def _free(queue: QueueViews, own: RoundState, contenders: list[RoundCandidate], gpus: Ints) -> Ints:
    """Thousandths of GPUs by model that contenders may have: all that others do not hold."""
    free = gpus * MILLI
    among = {contender.record.id for contender in contenders}
    for record in queue.jobs.placed.values():
        if record.id in among or record.plan is None:
            continue
        for model, milli in record.plan.held().items():
            if model in own.kinds.models:
                free[own.kinds.models.index(model)] -= milli
    return np.maximum(free, 0)


def _tenant_weights(queue: QueueViews) -> dict[str, float]:
    """Every tenant that has jobs, and its weight; 1 for one that the fleet does not know."""
    known = {tenant.name: tenant.weight for tenant in queue.fleet.tenants}
    names = sorted({r.spec.tenant for r in queue.jobs.records.values() if not r.finished})
    return {name: known.get(name, 1.0) for name in names}
