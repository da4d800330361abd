"""Tenants: the tree with quota, what is used, borrowed, lent and waited for; pauses and budgets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from topmast.model.access import Permission
from topmast.model.budget import BudgetView
from topmast.model.files.fields import no_such
from topmast.model.views import TenantView
from topmast.web.page import Ask, Page


class Glance(Struct, frozen=True):
    """All tenants together, in GPUs."""

    tenants: int
    paused: int
    used: float
    borrowed: float
    pending: float


async def view(ask: Ask) -> dict[str, Any]:
    """Every tenant, for one GPU model or all; and one of them in particular."""
    given = ask.filters("model", "tenant")
    tenants = await ask.service.list(ask.caller, "tenants")
    models = sorted({tenant.gpu_model for tenant in tenants if tenant.gpu_model})
    chosen = [given["model"]] if given["model"] in models else models
    mine = [one for one in tenants if one.name == given["tenant"]]
    if given["tenant"] and not mine:
        raise no_such("tenant", given["tenant"], [one.name for one in tenants])
    return {
        "given": given,
        "models": models,
        "glance": _glance(tenants),
        "trees": [(model, [t for t in tenants if t.gpu_model == model]) for model in chosen],
        "tenants": [t for t in tenants if not given["model"] or t.gpu_model == given["model"]],
        "tenant": mine[0] if mine else None,
        "quotas": mine,
        "budgets": await _budgets(ask),
    }


def _glance(tenants: Sequence[TenantView]) -> Glance:
    """What a tenant has includes all below it, so that those at the top are added up."""
    names = {one.name for one in tenants}
    top = [one for one in tenants if one.parent not in names]
    return Glance(
        len(names), len({one.name for one in tenants if one.paused}),
        sum(one.used for one in top), sum(one.borrowed for one in top),
        sum(one.pending for one in top),
    )  # fmt: skip


async def _budgets(ask: Ask) -> tuple[BudgetView, ...]:
    if not ask.caller.principal.may_somewhere(Permission.USAGE_VIEW):
        return ()
    return await ask.service.list_budgets(ask.caller)


PAGE = Page(
    "/tenants", "Tenants", Permission.FLEET_VIEW, "tenants.html", view, place=30, follows="all"
)
