"""Tenants: the tree with quota, what is used, borrowed, lent and waited for."""

from __future__ import annotations

from typing import Any

from topmast.model.access import Permission
from topmast.web.page import Ask, Page


async def view(ask: Ask) -> dict[str, Any]:
    """Every tenant, for one GPU model or all."""
    given = ask.filters("model")
    tenants = await ask.service.list(ask.caller, "tenants")
    models = sorted({tenant.gpu_model for tenant in tenants if tenant.gpu_model})
    chosen = [given["model"]] if given["model"] in models else models
    return {
        "given": given,
        "models": models,
        "trees": [(model, [t for t in tenants if t.gpu_model == model]) for model in chosen],
        "tenants": [t for t in tenants if not given["model"] or t.gpu_model == given["model"]],
    }


PAGE = Page(
    "/tenants", "Tenants", Permission.FLEET_VIEW, "tenants.html", view, place=30, follows="all"
)
