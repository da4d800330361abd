"""Reading requests and writing answers by msgspec; schemas for OpenAPI from the types."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from itertools import pairwise
from types import ModuleType
from typing import Any

import msgspec
from fastapi import Request
from fastapi.responses import Response

from topmast.model import (
    account_views,
    act_views,
    budget,
    decided,
    exec_views,
    history_views,
    map_views,
    plan_views,
    reason,
    sweep_views,
    system_views,
    views,
    webhooks,
    whatif_views,
)
from topmast.model.errors import InvalidInput

LONGEST_NUMBER = 18
REF = "#/components/schemas/{name}"

SHOWN = (
    views.JobPage,
    views.JobView,
    views.HostStory,
    views.JobStory,
    views.Receipt,
    sweep_views.SweepView,
    views.BulkReceipt,
    views.Explanation,
    views.RegionView,
    views.ClusterView,
    views.HostView,
    views.DrainView,
    plan_views.CapacityPlanView,
    plan_views.DataPlanView,
    views.GpuView,
    views.TenantView,
    views.DatasetView,
    views.UsageRow,
    views.Health,
    views.EventView,
    views.Problem,
    account_views.WhoAmI,
    account_views.TokenView,
    account_views.NewToken,
    account_views.DeviceLogin,
    account_views.ServiceAccountView,
    account_views.RoleView,
    account_views.ActPage,
    act_views.JobsActed,
    act_views.TenantPause,
    act_views.JobFileView,
    exec_views.ExecStarted,
    exec_views.ExecPage,
    exec_views.ExecInput,
    act_views.HostsActed,
    act_views.ClusterActed,
    act_views.ReservationView,
    act_views.QuotaActed,
    budget.BudgetView,
    act_views.FleetView,
    act_views.FleetDiff,
    webhooks.WebhookView,
    history_views.FleetHistory,
    map_views.FleetMap,
    system_views.SystemView,
    whatif_views.WhatIfView,
)

DOCUMENTED = (
    views, plan_views, account_views, act_views, history_views, map_views, system_views,
    whatif_views, reason, decided, budget, exec_views,
)  # fmt: skip
"""Where the fields of these types are documented."""


def answer(value: Any, status: int = 200) -> Response:
    """A value as JSON."""
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


def text(document: dict[str, Any], field: str, default: str = "") -> str:
    """A text field of a request."""
    value = document.get(field, default)
    if not isinstance(value, str) or len(value) > 10_000 or "\x00" in value:
        raise InvalidInput("must be a text", field=field)
    return value


def truth(document: dict[str, Any], field: str) -> bool:
    """A field that is true or false; false if it is absent. Raises InvalidInput."""
    value = document.get(field, False)
    if not isinstance(value, bool):
        raise InvalidInput("must be true or false", field=field)
    return value


def number(document: dict[str, Any], field: str) -> float | None:
    """A field that is a number, if it is there. Raises InvalidInput."""
    value = document.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e15:
        raise InvalidInput("must be a number", field=field)
    return float(value)


def whole(document: dict[str, Any], field: str, default: int) -> int:
    """A field that is a whole number, or what it is if absent. Raises InvalidInput."""
    value = document.get(field, default)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 1e15:
        raise InvalidInput("must be a whole number", field=field)
    return value


def texts(document: dict[str, Any], field: str) -> tuple[str, ...]:
    """A list of texts; empty if it is absent. Raises InvalidInput."""
    value = document.get(field, [])
    if not isinstance(value, list):
        raise InvalidInput("must be a list of texts", field=field)
    return tuple(text({field: item}, field) for item in value)


def whole_number(digits: str, field: str) -> int:
    """A number that the server once gave out, as text; it never gave out a longer one."""
    if not (digits.isascii() and digits.isdigit() and len(digits) <= LONGEST_NUMBER):
        raise InvalidInput("not a number of this server", field=field)
    return int(digits)


def idempotency_key(request: Request) -> str:
    """The Idempotency-Key of a request, empty without one."""
    key = request.headers.get("idempotency-key", "")
    if len(key) > 200 or not key.isprintable():
        raise InvalidInput("longer than 200 characters, or not printable", field="Idempotency-Key")
    return key


def returns(
    kind: type | None,
    status: int = 200,
    listed: str = "",
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Arguments of a route that answers with ``kind``, or with a list of it under a key.

    ``more`` are the schemas of fields beside that list; ``kind`` None answers without a body.
    """
    schema: dict[str, Any] = {} if kind is None else {"$ref": REF.format(name=kind.__name__)}
    if listed:
        fields = {listed: {"type": "array", "items": schema}, **(more or {})}
        schema = {"type": "object", "properties": fields, "required": list(fields)}
    return replies(status, {"application/json": {"schema": schema}} if schema else {})


def replies(status: int, content: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a route that answers with ``content`` by media type, or with a problem."""
    error = {"application/problem+json": {"schema": {"$ref": REF.format(name="Problem")}}}
    return {
        "status_code": status,
        "response_class": Bare,
        "responses": {
            status: {"description": "Done", **({"content": content} if content else {})},
            "4XX": {"description": "Refused", "content": error},
        },
    }


class Bare(Response):
    """An answer with the media types that its route names, and no default type."""

    media_type = None


def takes(properties: dict[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    """Arguments of a route that takes a JSON object."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "required": list(required),
    }
    schema["additionalProperties"] = False
    return accepts({"application/json": {"schema": schema}}, required=bool(required))


def accepts(content: dict[str, Any], *, required: bool) -> dict[str, Any]:
    """Arguments of a route that takes ``content`` by media type."""
    return {"openapi_extra": {"requestBody": {"required": required, "content": content}}}


def components() -> dict[str, Any]:
    """JSON Schemas of everything shown, for OpenAPI."""
    _, found = msgspec.json.schema_components(SHOWN, ref_template=REF)
    more = (
        account_views,
        act_views,
        history_views,
        map_views,
        plan_views,
        system_views,
        webhooks,
        whatif_views,
        reason,
        decided,
    )
    for module in (views, *more):
        for name, texts_of in documented(module).items():
            for field, description in texts_of.items():
                shown = found.get(name, {}).get("properties", {})
                if field in shown:
                    shown[field]["description"] = description
    return found


def documented(module: ModuleType) -> dict[str, dict[str, str]]:
    """The texts below the fields of a module's classes, by class and field.

    They exist in the source alone: Python keeps the docstrings of classes, not those of fields.
    """
    found: dict[str, dict[str, str]] = {}
    for kind in ast.parse(inspect.getsource(module)).body:
        if not isinstance(kind, ast.ClassDef):
            continue
        for field, below in pairwise(kind.body):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(description))),
                ):
                    found.setdefault(kind.name, {})[name] = inspect.cleandoc(description)
    return found
