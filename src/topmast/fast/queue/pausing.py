"""Tenants with jobs that do not start for a while: a whole branch is held, and what comes to it."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET

from topmast.fast.queue import facts as f
from topmast.fast.queue.cycle.requests import release_place
from topmast.fast.queue.cycle.views import QueueViews
from topmast.fast.queue.jobs.record import JobRecord
from topmast.fast.queue.verbs import stop_attempt
from topmast.model import messages as m
from topmast.model.errors import NotFound


def pause(queue: QueueViews, event: m.PauseTenant) -> NotFound | None:
    """Let no job of a branch start; ``drain`` stops those that run and may be preempted."""
    if event.tenant not in queue.tenancy.ledger.tenants:
        return NotFound(f"no tenant '{event.tenant}'")
    reason = "" if event.reason is UNSET else f": {event.reason}"
    why = f"tenant {event.tenant} is paused by {event.by or 'an unknown user'}{reason}"
    if event.tenant not in queue.tenancy.paused:
        for record in in_branch(queue, event.tenant):
            if record.plan is None:
                release_place(queue, record)
        queue.decide(f.TenantPaused(event.tenant, why))
    for record in drained(queue, event.tenant) if event.drain else ():
        stop_attempt(queue, record, why)
    return None


def resume(queue: QueueViews, event: m.ResumeTenant) -> NotFound | None:
    """Let the jobs of a branch start again, unless a tenant above is paused, too."""
    if event.tenant not in queue.tenancy.ledger.tenants:
        return NotFound(f"no tenant '{event.tenant}'")
    if event.tenant in queue.tenancy.paused:
        queue.decide(f.TenantPaused(event.tenant, ""))
    return None


def note_budget(queue: QueueViews, event: m.NoteBudget) -> None:
    """Tell people of a threshold of a budget, once a month."""
    month, percent = queue.tenancy.budgets_noted.get(event.tenant, ("", 0))
    is_new = month != event.month or percent < event.percent
    if is_new and event.tenant in queue.tenancy.ledger.tenants:
        queue.decide(f.BudgetNoted(event.tenant, event.month, event.percent))


def in_branch(queue: QueueViews, tenant: str) -> Iterator[JobRecord]:
    """The jobs of a tenant and of those below it that are not over. O(jobs)."""
    tree = queue.tenancy.ledger.tree
    within: dict[str, bool] = {}
    for record in list(queue.jobs.records.values()):
        name = record.spec.tenant
        if name not in within:
            within[name] = any(node.name == tenant for node in tree.node(name).up())
        if within[name] and not record.finished:
            yield record


def drained(queue: QueueViews, tenant: str) -> list[JobRecord]:
    """Those that a drain of a tenant stops. O(jobs)."""
    branch = in_branch(queue, tenant)
    return [record for record in branch if record.plan is not None and record.spec.preemptible]
