"""Regions apart are asked in bulk, and what they answer is given to the next jobs (see `bulk`)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from topmast.fast.queue.cycle.auction import PendingDecision
from topmast.fast.queue.cycle.behind import are_common, is_plain, kind_of, kinds_behind
from topmast.fast.queue.cycle.bulk import Wanted, enough, fits, shared_out, spare_of
from topmast.fast.queue.cycle.bulk_choice import choose
from topmast.fast.queue.cycle.foreseen import PER_REQUEST, Asked, Kind
from topmast.fast.queue.cycle.views import QueueViews
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.job import Band
from topmast.model.plan import PlacementRequest


def ask_in_bulk(queue: QueueViews, decision: PendingDecision) -> bool:
    """Ask all regions for places for a candidate and the jobs behind it; whether that was done.

    O(jobs asked about).
    """
    bulk, reach = queue.cycle.bulk, queue.cycle.reach
    bulk.close()
    bulk.follows = False
    count = min(PER_REQUEST * queue.cycle.budget, bulk.most)
    if (
        queue.cycle.prefetch.most_jobs == 1
        or not reach.make_columns(decision.awaited)
        or not are_common(queue)
        or not is_plain(queue, decision)
    ):
        return False
    first = _kind_of_first(queue, decision)
    if first is None or not fits(first.job_class.spec):
        return False
    behind = enough(kinds_behind(queue, decision.candidate, count))
    if behind is None:
        return False
    asked = (first, *[behind.kinds[number] for number in dict.fromkeys(behind.kind)])
    if not any(may_have_room(queue, kind) for kind in asked):
        return False
    if bulk.pause:
        bulk.pause -= 1
        bulk.follows = not bulk.pause
        return False
    bulk.batch, bulk.count = decision.batch, count
    bulk.wanted = _wanted(queue, decision.candidate.job, first, behind)
    for region, leases in queue.cycle.prefetch.release():
        queue.send(ids.placer(region), m.DropLeases(leases=leases))
    _send(queue, decision.awaited)
    return True


def may_have_room(queue: QueueViews, kind: Kind) -> bool:
    """Whether the fleet has GPUs enough that no attempt holds, wherever they are. O(choices)."""
    ledger, wanted = queue.tenancy.ledger, kind.job_class.gate.wanted
    return any(
        choice >= len(wanted)
        or all(ledger.may_be_free(model, milli) for model, milli in wanted[choice].items())
        for choice in kind.choices
    )


def _kind_of_first(queue: QueueViews, decision: PendingDecision) -> Kind | None:
    candidate = decision.candidate
    job_class = queue.backlog.job_class(candidate.job)
    return kind_of(queue, candidate.job, job_class, candidate.over_quota)


def _wanted(queue: QueueViews, job: str, first: Kind, behind: Asked) -> Wanted:
    """What these jobs ask for; those of several tenants and bands ask for the same. O(jobs)."""
    example = {0: job}
    for name, kind in zip(behind.jobs, behind.kind, strict=True):
        example.setdefault(kind + 1, name)
    kinds: dict[PlacementRequest, int] = {}
    numbers: dict[tuple[int, bool], tuple[Kind, int]] = {}
    of_kind: list[int] = []
    for at, one in enumerate((first, *behind.kinds)):
        if at not in example:
            of_kind.append(-1)  # it is beyond the last of them
            continue
        record = queue.jobs.records[example[at]]
        request = queue.request(record.spec, one.over_quota, one.choices, record=record).kind()
        request = replace(request, band=Band.NORMAL)  # no job is stopped for it
        number = kinds.setdefault(request, len(kinds))
        numbers[one.job_class.number, one.over_quota] = one, number
        of_kind.append(number)
    order = (of_kind[0], *[of_kind[kind + 1] for kind in behind.kind])
    return Wanted(tuple(kinds), numbers, order, tuple([spare_of(kind) for kind in kinds]))


def _send(queue: QueueViews, regions: Sequence[str]) -> None:
    """Ask each region for its share. O(places)."""
    bulk = queue.cycle.bulk
    shares = bulk.shares(regions, queue.tenancy.gpus_by_region)
    by_share: dict[float, tuple[tuple[int, ...], tuple[int, ...]]] = {}
    bulk.asked = {}
    for region in regions:
        share = shares[region]
        if share not in by_share:
            order = shared_out(bulk.wanted.order, share, bulk.wanted.spare)
            counts = [0] * len(bulk.wanted.kinds)
            for kind in order:
                counts[kind] += 1
            by_share[share] = order, tuple(counts)
        order, bulk.asked[region] = by_share[share]
        question = m.RequestRegionPlans(bulk.batch, bulk.wanted.kinds, order)
        queue.send(ids.placer(region), question)


def take_answers(queue: QueueViews, decision: PendingDecision) -> bool:
    """All answers are in: plans for the candidate and the jobs behind it; whether there are any.

    The jobs are those that are next now: others may have come or gone since regions were asked.
    O(jobs).
    """
    bulk, foreseen, candidate = queue.cycle.bulk, queue.cycle.foreseen, decision.candidate
    behind = kinds_behind(queue, candidate, bulk.count)
    first = _kind_of_first(queue, decision)
    order = [] if first is None else [_number(bulk.wanted, first)]
    order += _numbers(bulk.wanted, behind)
    chosen = choose(
        bulk, order, queue.tenancy.ledger.by_region, queue.tenancy.gpus_by_region,
        queue.profile.score.balance,
    )  # fmt: skip
    bulk.close()
    bulk.heard(len(chosen.rows), len(order), is_full=chosen.is_full)
    if first is None or not chosen.rows:
        return False
    foreseen.ask(behind, candidate.job)
    jobs = (candidate.job, *behind.jobs)[: len(chosen.rows)]
    plans = chosen.plans(jobs)
    plan = plans.plans[0]
    decision.bids = {plan.region: m.Bid(plan.job, plan)}
    foreseen.hear(plans, are_chosen=True)
    return True


def _numbers(wanted: Wanted, asked: Asked) -> list[int]:
    """By job, which of the requests is its own; -1 if regions were not asked for its kind."""
    of_kind = [_number(wanted, kind) for kind in asked.kinds]
    return [of_kind[kind] for kind in asked.kind]


def _number(wanted: Wanted, kind: Kind) -> int:
    known = wanted.number.get((kind.job_class.number, kind.over_quota))
    if known is None or known[0].job_class is not kind.job_class:
        return -1
    return known[1] if known[0].choices == kind.choices else -1
