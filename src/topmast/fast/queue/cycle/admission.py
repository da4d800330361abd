"""Admission: whether a candidate may start at all, before any region is asked."""

from __future__ import annotations

from topmast.fast.queue.backlog.blocked import Candidate
from topmast.fast.queue.backlog.placement_class import colocated_of
from topmast.fast.queue.cycle.auction import PendingDecision, Phase
from topmast.fast.queue.cycle.checks import CHECKS, OTHER_MODE, no_room_for_class
from topmast.fast.queue.cycle.deciding import found_no_place
from topmast.fast.queue.cycle.outright import refused_outright
from topmast.fast.queue.cycle.pipeline import first_step
from topmast.fast.queue.cycle.requests import put
from topmast.fast.queue.cycle.verdicts import block, block_gate, refuse
from topmast.fast.queue.cycle.views import QueueViews


def try_admit(queue: QueueViews, candidate: Candidate) -> None:
    """Ask the regions about a candidate if it passes all checks; else block its class.

    So it is if it is refused without a request.
    """
    record, job_class = queue.jobs.records[candidate.job], queue.backlog.job_class(candidate.job)
    decision = PendingDecision(candidate, queue.choices_of(job_class), colocated_of(job_class))
    for check in CHECKS:
        verdict = check(queue, record, decision)
        if verdict is None:
            continue
        if verdict is OTHER_MODE:
            block_gate(queue, candidate)
        elif check is no_room_for_class:
            refuse(queue, candidate, verdict)
        else:
            block(queue, candidate, verdict)
        return
    step = first_step(queue, record, decision)
    bids = refused_outright(queue, record, decision) if step.phase is Phase.FREE else None
    if bids is None:
        put(queue, record, decision, step)
        return
    decision.phase, decision.bids, decision.changes = (
        step.phase,
        bids,
        queue.backlog.blocked.changes,
    )
    found_no_place(queue, record, decision)
