"""Tenants: the tree with quota, what is used, borrowed, lent and waited for; pauses and budgets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from topmast.model.access import Permission
from topmast.model.budget import BudgetView
from topmast.model.files.fields import no_such
from topmast.model.views import TenantView
from topmast.web.page import MOST_ROWS, Ask, Page


class Glance(Struct, frozen=True):
    """All tenants together, in GPUs."""

    tenants: int
    paused: int
    used: float
    borrowed: float
    pending: float


async def view(ask: Ask) -> dict[str, Any]:
    """Every tenant, or one and all below it, for one GPU model or all.

    Of a tree that is too large for one page the upper levels are shown; a tenant leads to its own.
    """
    given = ask.filters("model", "tenant")
    tenants = await ask.service.list(ask.caller, "tenants")
    models = sorted({tenant.gpu_model for tenant in tenants if tenant.gpu_model})
    chosen = [given["model"]] if given["model"] in models else models
    mine = [one for one in tenants if one.name == given["tenant"]]
    if given["tenant"] and not mine:
        raise no_such("tenant", given["tenant"], [one.name for one in tenants])
    levels = _levels(tenants, given["tenant"])
    rows = [one for one in tenants if not given["model"] or one.gpu_model == given["model"]]
    shown = _upper(rows, levels, 1 if given["tenant"] else 0)
    part = ask.part(shown)
    budgets = [one for one in await _budgets(ask) if one.tenant in levels]
    return {
        "given": given,
        "models": models,
        "glance": _glance(tenants),
        "trees": [(model, [t for t in part.rows if t.gpu_model == model]) for model in chosen],
        "tenants": part,
        "hidden": _hidden(rows, levels, shown),
        "tenant": mine[0] if mine else None,
        "quotas": mine,
        "budgets": ask.part(budgets, "budgets"),
    }


def _levels(tenants: Sequence[TenantView], top: str) -> dict[str, int]:
    """How far each tenant is below the top, children after their parent; ``top`` "": of all."""
    parents = {one.name: one.parent for one in tenants}
    below: dict[str, list[str]] = {}
    for name, parent in parents.items():
        below.setdefault(parent if parent in parents else "", []).append(name)
    found: dict[str, int] = {}
    to_come = [(name, 0) for name in reversed([top] if top else below.get("", []))]
    while to_come:
        name, level = to_come.pop()
        found[name] = level
        to_come += [(child, level + 1) for child in reversed(below.get(name, []))]
    return found


def _upper(rows: Sequence[TenantView], levels: Mapping[str, int], least: int) -> list[TenantView]:
    """The rows of as many whole levels as one page has room for, but of ``least`` in any case."""
    place = {name: at for at, name in enumerate(levels)}
    rows = sorted((one for one in rows if one.name in levels), key=lambda one: place[one.name])
    count, deepest = 0, 0
    for level, size in sorted(Counter(levels[one.name] for one in rows).items()):
        count += size
        if count <= MOST_ROWS or level <= least:
            deepest = level
    return [one for one in rows if levels[one.name] <= deepest]


def _hidden(
    rows: Sequence[TenantView], levels: Mapping[str, int], shown: Sequence[TenantView]
) -> Mapping[str, int]:
    """How many tenants that are not shown each has below it, of those that are shown."""
    parents = {one.name: one.parent for one in rows if one.name in levels}
    seen = {one.name for one in shown}
    found: Counter[str] = Counter()
    for name in parents:
        at: str | None = name
        while at is not None and at not in seen:
            at = parents.get(at)
        if at is not None and at != name:
            found[at] += 1
    return found


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
