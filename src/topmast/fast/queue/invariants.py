"""What must hold of the queue's jobs and of its tenants' books."""

from __future__ import annotations

from collections.abc import Iterable

from topmast.fast.invariants import require
from topmast.fast.queue.cycle.state import QueueState
from topmast.fast.queue.jobs.record import JobRecord
from topmast.fast.queue.tenancy.ledger import Holding, Ledger
from topmast.model.states import TERMINAL, WAITING


def check_quotas(queue: QueueState) -> None:
    """The books of tenants equal a recount of the attempts held; no limit is exceeded.

    A limit that was lowered stops nothing that runs: what was held then may stay, not grow.

    O(attempts x depth + tenants x models).
    """
    ledger = queue.tenancy.ledger
    fresh = Ledger(ledger.tenants.values())
    fresh.set_tenants(ledger.tenants.values(), queue.fleet.gpus())
    for record in queue.jobs.placed.values():
        if record.plan is not None:
            for model, milli in record.plan.held().items():
                tenant, region = record.spec.tenant, record.plan.region
                fresh.take(tenant, region, model, milli, record.over_quota)
    require(ledger.held == fresh.held, "what tenants held is not what their attempts hold")
    require(ledger.totals == fresh.totals, "what branches held is not what their attempts hold")
    for name in {**ledger.by_region, **fresh.by_region}:
        same = ledger.by_region.get(name, 0) == fresh.by_region.get(name, 0)
        require(same, f"what is held in region {name} is not what attempts hold there")
    for model in {**ledger.by_model, **fresh.by_model}:
        same = ledger.by_model.get(model, 0) == fresh.by_model.get(model, 0)
        require(same, f"what is held of {model} is not what attempts hold of it")
    for (tenant, model), holding in fresh.held.items():
        if model:
            _check_limits(ledger, tenant, model, holding)


def _check_limits(ledger: Ledger, tenant: str, model: str, holding: Holding) -> None:
    """No more than the limits, or than what was held when they were set below that."""
    most, kept = ledger.most(tenant, model), ledger.outgrown.get((tenant, model), Holding())
    within = holding.guaranteed <= max(most.guaranteed, kept.guaranteed)
    require(within, f"tenant {tenant} holds more {model} than its quota")
    within = holding.borrowed <= max(most.borrowed, kept.borrowed)
    require(within, f"tenant {tenant} borrows more {model} than its limit")


def check_jobs(queue: QueueState, records: Iterable[JobRecord]) -> None:
    """A job that is over or waits in line has no plan; those with a plan are known. O(records)."""
    placed = queue.jobs.placed
    for record in records:
        job, plan = record.id, record.plan
        same = (plan is not None) == (job in placed)
        require(same, f"{job} has a plan that is not counted, or the other way round")
        if record.state in TERMINAL:
            require(plan is None, f"{job} is over and holds a plan")
        elif plan is None:
            require(record.state in WAITING, f"{job} is {record.state} and holds nothing")
