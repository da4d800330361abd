"""The pipeline: the phases between a candidate and the decision about it, as one table.

A phase that applies asks some regions for a place of its kind. When their bids are in, it accepts
a plan, and the job starts; or the next phase that applies follows. The last two phases ask nothing:
the data of the job is copied, or the job waits.

`cycle` runs the table. `explain` runs it dry: none of these functions writes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from topmast.fast.queue.backlog.backlog import effective_band
from topmast.fast.queue.cycle.auction import PendingDecision, Phase, winner
from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.data.catalogue import DataCost
from topmast.fast.queue.data.copies_on_demand import Wait, waits_since_s
from topmast.fast.queue.jobs.record import JobRecord
from topmast.model.plan import Colocate, Free, Mode, Move, PlacementRequest, Plan, Preempt, Shrink
from topmast.model.reason import PendingReason


class Step(Struct, frozen=True):
    """One row of the table: a phase, and what is done in it for one job."""

    phase: Phase
    applies: Callable[[QueueViews, JobRecord, PendingDecision], bool]
    """Whether the phase makes sense, now that those before it decided nothing."""
    request: Callable[[QueueViews, JobRecord, PendingDecision], Mode] | None = None
    """How a place may be found. None: nothing is asked, the job starts no attempt now."""
    accept: Callable[[QueueViews, JobRecord, PendingDecision], Plan | None] | None = None
    """The plan that is committed, with all bids in; None goes on."""
    near: bool = True
    """Whether only regions are asked that have all data of the job."""


def first_step(queue: QueueViews, record: JobRecord, decision: PendingDecision) -> Step:
    """The phase that a job begins with."""
    return _first_of(PIPELINE, queue, record, decision)


def _first_of(
    steps: Sequence[Step], queue: QueueViews, record: JobRecord, decision: PendingDecision
) -> Step:
    for step in steps:
        if step.applies(queue, record, decision):
            return step
    raise AssertionError("the last phase always applies")


def next_step(
    queue: QueueViews, record: JobRecord, decision: PendingDecision
) -> tuple[Step, Plan | None]:
    """All bids of a phase are in: the plan that it accepts, or the phase that follows."""
    step = STEPS[decision.phase]
    plan = None if step.accept is None else step.accept(queue, record, decision)
    if plan is not None:
        return step, plan
    decision.carry(record.spec.elastic is not None)
    later = PIPELINE[PIPELINE.index(step) + 1 :]
    return _first_of(later, queue, record, decision), None


def regions_of(queue: QueueViews, decision: PendingDecision, step: Step) -> list[str]:
    """The regions that a phase asks."""
    return with_data(queue, decision.costs) if step.near else list(decision.regions)


def request_of(
    queue: QueueViews, record: JobRecord, decision: PendingDecision, step: Step
) -> PlacementRequest:
    """What a phase asks for a job, as far as it is the same for all regions."""
    assert step.request is not None
    over_quota = decision.candidate.over_quota
    return queue.request(
        record.spec, over_quota, decision.choices, record=record,
        mode=step.request(queue, record, decision),
        held=queue.held_from(record.spec, record, over_quota),
        reserve=_asks_when(queue, record, decision, step),
        cluster=None if record.bound is None else record.bound.cluster,
    )  # fmt: skip


def _asks_when(queue: QueueViews, record: JobRecord, decision: PendingDecision, step: Step) -> bool:
    """Whether regions without room are to say when there will be some: to wait, or to reserve it.

    Room is reserved after the last request: not while jobs may still be stopped.
    """
    if step.phase is Phase.NEAR_DATA and when_matters(queue, record, decision):
        return True
    last = step.phase is Phase.PREEMPT or not _may_preempt(queue, record, decision)
    return last and queue.cycle.backfill.may_reserve(record, queue.now)


def when_matters(queue: QueueViews, record: JobRecord, decision: PendingDecision) -> bool:
    """Whether it matters when there will be room near the data.

    Not if nothing may be copied now, or if the job waited for as long as a copy takes.
    """
    best = decision.best
    if best is None or queue.data.fetches.next_s(queue.now) is not None:
        return False
    return queue.now < queue.data.fetches.waits_until_s(record, decision.costs[best.region].seconds)


def waits_near(queue: QueueViews, record: JobRecord, decision: PendingDecision) -> Wait | None:
    """Why, and until when, a job waits near its data; None: the data is copied."""
    best, nearby = decision.best, decision.nearby
    if best is None or nearby is None or not nearby.could:
        return None  # no region with its data could ever hold it
    copy_s, since_s = decision.costs[best.region].seconds, waits_since_s(record)
    return queue.data.fetches.wait(best.region, copy_s, nearby.room_s, since_s, queue.now)


# --- free GPUs ------------------------------------------------------------------------------------


def _is_alone(queue: QueueViews, record: JobRecord, decision: PendingDecision) -> bool:
    return not decision.colocated_with


def _free(queue: QueueViews, record: JobRecord, decision: PendingDecision) -> Mode:
    """Only free GPUs make an elastic gang larger: no job gives way for that."""
    more = queue.more_tasks(record, decision.candidate.over_quota, decision.choices)
    return Free(more)


def _best_with_data(queue: QueueViews, record: JobRecord, decision: PendingDecision) -> Plan | None:
    """The best plan so far, if its region has the data."""
    best = winner(decision.plans(), record.spec.elastic is not None)
    return None if best is None or decision.costs[best.region].missing else best


# --- the GPUs of the other job of a pair ----------------------------------------------------------


def _is_paired(queue: QueueViews, record: JobRecord, decision: PendingDecision) -> bool:
    return bool(decision.colocated_with)


def _beside(queue: QueueViews, record: JobRecord, decision: PendingDecision) -> Mode:
    return Colocate(decision.colocated_with)


# --- near the data --------------------------------------------------------------------------------


def _weighs_copy(queue: QueueViews, record: JobRecord, decision: PendingDecision) -> bool:
    """There is room away from the data alone, and a copy has to be worth it.

    A copy under way is paid for.
    """
    best = decision.best
    if best is None or not with_data(queue, decision.costs):
        return False
    cost = decision.costs[best.region]
    return bool(cost.missing) and not cost.copying and queue.data.fetches.weighs


def _best_bid(queue: QueueViews, record: JobRecord, decision: PendingDecision) -> Plan | None:
    """A free place near the data, though one away from it may score better."""
    bids = decision.bids.values()
    return winner((bid.plan for bid in bids), record.spec.elastic is not None)


# --- moving jobs ----------------------------------------------------------------------------------


def _may_move(queue: QueueViews, record: JobRecord, decision: PendingDecision) -> bool:
    """The job found no room for long."""
    if not record.spec.gpus_milli() or not _is_full(queue, decision):
        return False
    return queue.cycle.defragmentation.may_ask(record.id, queue.now)


def _worth(queue: QueueViews, record: JobRecord, decision: PendingDecision) -> Mode:
    band = effective_band(record.spec.band, decision.candidate.over_quota)
    return Move(queue.cycle.defragmentation.worth_gpu_s(record, band, queue.now))


def _unless_preemption_follows(
    queue: QueueViews, record: JobRecord, decision: PendingDecision
) -> Plan | None:
    """Moves wait for what preemption would cost, where that may be cheaper: the better wins."""
    plan = _best_with_data(queue, record, decision)
    waits = plan is not None and plan.victims and _may_preempt(queue, record, decision)
    return None if waits else plan


# --- shrinking elastic jobs -----------------------------------------------------------------------


def _may_shrink(queue: QueueViews, record: JobRecord, decision: PendingDecision) -> bool:
    if not _is_full(queue, decision):
        return False
    band = effective_band(record.spec.band, decision.candidate.over_quota)
    return any(hook.may_shrink(band, queue.now) for hook in queue.hooks.may_shrink)


def _shrink(queue: QueueViews, record: JobRecord, decision: PendingDecision) -> Mode:
    return Shrink()


# --- stopping jobs --------------------------------------------------------------------------------


def _may_preempt(queue: QueueViews, record: JobRecord, decision: PendingDecision) -> bool:
    over_quota = decision.candidate.over_quota
    alone = not decision.colocated_with
    return alone and may_preempt(queue, record, over_quota, decision.costs)


def _preempt(queue: QueueViews, record: JobRecord, decision: PendingDecision) -> Mode:
    by_rank = queue.preemption.by_rank
    return Preempt(queue.outranked(decision.candidate) if by_rank else None)


# --- nothing starts now ---------------------------------------------------------------------------


def _needs_copy(queue: QueueViews, record: JobRecord, decision: PendingDecision) -> bool:
    """There is room, and it is away from the data."""
    return decision.best is not None


def _always(queue: QueueViews, record: JobRecord, decision: PendingDecision) -> bool:
    return True


# --- what several phases ask ----------------------------------------------------------------------


def with_data(queue: QueueViews, costs: dict[str, DataCost]) -> list[str]:
    """Regions that can be asked and have the job's data already."""
    near = [r for r, c in costs.items() if c.barred is None and not c.missing]
    return [region for region in near if region not in queue.cycle.reach.absent]


def may_preempt(
    queue: QueueViews, record: JobRecord, over_quota: bool, costs: dict[str, DataCost]
) -> bool:
    """Whether it makes sense to ask which jobs could be stopped for a job."""
    band = effective_band(record.spec.band, over_quota)
    return queue.preemption.may_stop_for(band) and bool(with_data(queue, costs))


def _is_full(queue: QueueViews, decision: PendingDecision) -> bool:
    """Whether a region was full, and one could be asked again that has the data."""
    if decision.colocated_with or not with_data(queue, decision.costs):
        return False
    full = PendingReason.INSUFFICIENT_CAPACITY
    return any(bid.reason is full for bid in decision.bids.values())


PIPELINE: tuple[Step, ...] = (
    Step(Phase.COLOCATE, _is_paired, _beside, _best_with_data, near=False),
    Step(Phase.FREE, _is_alone, _free, _best_with_data, near=False),
    Step(Phase.NEAR_DATA, _weighs_copy, _free, _best_bid),
    Step(Phase.MOVE, _may_move, _worth, _unless_preemption_follows),
    Step(Phase.SHRINK, _may_shrink, _shrink, _best_with_data),
    Step(Phase.PREEMPT, _may_preempt, _preempt, _best_with_data),
    Step(Phase.COPY_OR_WAIT, _needs_copy),
    Step(Phase.RESERVE, _always),
)
"""All phases, in their order."""

STEPS = {step.phase: step for step in PIPELINE}
