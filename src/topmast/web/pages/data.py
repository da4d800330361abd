"""Data: datasets by region, copies under way, and the plan of where data should be."""

from __future__ import annotations

from typing import Any

from topmast.model.access import Permission
from topmast.model.errors import Unavailable
from topmast.model.plan_views import DataPlanView
from topmast.web.page import Ask, Page, matches_nothing
from topmast.web.series import PERIODS, USUAL, supply_and_demand


async def view(ask: Ask) -> dict[str, Any]:
    """Datasets, with what the URL asks for, and the plan."""
    given = ask.filters("name", "region", "period", "within", "dataset")
    period = given["period"] if given["period"] in PERIODS else USUAL
    over = ask.service.history(ask.caller, period)
    service, caller = ask.service, ask.caller
    every = await service.list(caller, "datasets")
    regions = await service.list(caller, "regions")
    gpus = await service.list(caller, "gpus")
    tenants = await service.list(caller, "tenants")
    found = [
        one
        for one in every
        if given["name"] in one.name
        and (not given["region"] or any(r.region == given["region"] for r in one.replicas))
    ]
    copies = [copy for one in every for copy in one.copies]
    return {
        "given": given,
        "no_match": matches_nothing(
            given,
            {
                "period": ("period", PERIODS),
                "region": ("region", [r.name for r in regions]),
            },
        ),
        "regions": regions,
        "datasets": ask.part(found),
        "copies": ask.part(copies, "copies"),
        "left": sum(copy.bytes - copy.done_bytes for copy in copies),
        "count": len(every),
        "nowhere": {
            one.name for one in every if not any(r.state == "complete" for r in one.replicas)
        },
        "stored": sum(one.stored_bytes for one in regions),
        "dataset": await service.dataset(caller, given["dataset"]) if given["dataset"] else None,
        "plan": await _plan(ask),
        "supply": _supply(gpus),
        "waiting": _waiting(tenants),
        "period": period,
        "periods": PERIODS,
        "over": over,
        "charts": supply_and_demand(over, given["within"]) if over.times else [],
    }


async def _plan(ask: Ask) -> DataPlanView | None:
    try:
        return await ask.service.data_plan(ask.caller)
    except Unavailable:
        return None


def _supply(gpus: Any) -> dict[tuple[str, str], list[float]]:
    """GPUs present, held and free by region and model."""
    sums: dict[tuple[str, str], list[float]] = {}
    for one in gpus:
        row = sums.setdefault((one.region, one.gpu_model), [0.0, 0.0, 0.0])
        for at, amount in enumerate((one.total, one.held, one.free)):
            row[at] += amount
    return sums


def _waiting(tenants: Any) -> dict[str, float]:
    """GPUs that waiting jobs ask for, by model."""
    sums: dict[str, float] = {}
    for one in tenants:
        if one.parent is None and one.pending:
            sums[one.gpu_model] = sums.get(one.gpu_model, 0.0) + one.pending
    return sums


PAGE = Page("/data", "Data", Permission.DATA_VIEW, "data.html", view, place=40, follows="all")
