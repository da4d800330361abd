"""Reading requests and writing answers by msgspec; schemas for OpenAPI from the types."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from types import ModuleType
from typing import Annotated, Any

import msgspec
from fastapi import Query, Request
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
from topmast.model.units import show
from topmast.service.access import Why
from topmast.service.usage import NAMELESS

LONGEST_NUMBER = 18
WHY: dict[str, Any] = {"reason": {"type": "string"}, "dry_run": {"type": "boolean"}}
"""The schemas of what `why` reads."""
LONGEST_TEXT = 10_000
LONGEST_REASON = 1_000
"""It is kept with each job that the act is about."""
LONGEST_USER = 200
LARGEST = 1e15
Natural = Annotated[int, Query(ge=0, le=int(LARGEST))]
"""A parameter that counts something."""
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
    system_views.ProfileAct,
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


def text(document: Mapping[str, Any], field: str, most: int = LONGEST_TEXT) -> str:
    """A text field of a request, of at most so many characters; empty if it is absent."""
    value = document.get(field, "")
    if not isinstance(value, str):
        raise InvalidInput("must be a text", field=field)
    most = min(most, LONGEST_REASON) if field == "reason" else most
    if len(value) > most:
        raise InvalidInput(f"must have at most {most:,} characters", field=field)
    if "\x00" in value:
        raise InvalidInput("has a NUL character", field=field)
    return value


def user(document: Mapping[str, Any]) -> str:
    """The user that a request names: it stands in pages, logs and on terminals."""
    value = text(document, "user", LONGEST_USER)
    if not value.isprintable():
        message = "has characters that control a terminal or turn the direction of writing"
        raise InvalidInput(message, field="user", remedy="printable characters only")
    if value != value.strip() or value == NAMELESS:
        remedy = "a name, or leave it out for the own one"
        raise InvalidInput(f"{show(value)} is no name of a user", field="user", remedy=remedy)
    return value


def truth(document: Mapping[str, Any], field: str) -> bool:
    """A field that is true or false; false if it is absent. Raises InvalidInput."""
    value = document.get(field, False)
    if not isinstance(value, bool):
        raise InvalidInput("must be true or false", field=field)
    return value


def why(document: Mapping[str, Any]) -> Why:
    """Why a request wants something, and whether it only asks what that would do."""
    return Why(text(document, "reason"), truth(document, "dry_run"))


def number(document: Mapping[str, Any], field: str) -> float | None:
    """A field that is a number, if it is there. Raises InvalidInput."""
    value = document.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput("must be a number", field=field)
    _refuse_beyond(value, field)
    return float(value)


def ends(document: Mapping[str, Any], remedy: str = "when it ends") -> float:
    """The field ``until_s``, which must be there. Raises InvalidInput."""
    until_s = number(document, "until_s")
    if until_s is None:
        raise InvalidInput("missing", field="until_s", remedy=remedy)
    return until_s


def whole(document: Mapping[str, Any], field: str, default: int = 0) -> int:
    """A field that is a whole number, or what it is if absent. Raises InvalidInput."""
    value = document.get(field, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput("must be a whole number", field=field)
    _refuse_beyond(value, field)
    return value


def _refuse_beyond(value: float, field: str) -> None:
    if abs(value) > LARGEST:
        message = f"must be from {-LARGEST:g} to {LARGEST:g}"
        raise InvalidInput(message, field=field)


def texts(document: Mapping[str, Any], field: str, most: int = LONGEST_TEXT) -> tuple[str, ...]:
    """A list of texts, each of at most so many characters; empty if it is absent.

    Raises InvalidInput.
    """
    value = document.get(field, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidInput("must be a list of texts", field=field)
    return tuple(text({field: item}, field, most) for item in value)


def faults(document: Mapping[str, Any], fields: Mapping[str, Any]) -> Iterator[InvalidInput]:
    """What is wrong with fields of a request by their schemas: of texts, numbers, true and false.

    What is in objects, and in lists of anything but texts, the caller checks.
    """
    for name, schema in fields.items():
        if name in document and (error := _fault(document, name, schema)) is not None:
            yield error


def _fault(
    document: Mapping[str, Any], name: str, schema: Mapping[str, Any]
) -> InvalidInput | None:
    items = schema.get("items", {})
    try:
        if name == "user":
            user(document)
        elif (read := _READERS.get(schema.get("type", ""))) is not None:
            read(document, name)
        elif items.get("type") == "string":
            texts(document, name, items.get("maxLength", LONGEST_TEXT))
    except InvalidInput as error:
        return error
    return None


_READERS: Mapping[str, Callable[[Mapping[str, Any], str], object]] = {
    "string": text, "boolean": truth, "number": number, "integer": whole,
}  # fmt: skip
"""Fields of one value, by the type that their schemas give."""


def whole_number(digits: str, field: str) -> int:
    """A number that the server once gave out, as text; it never gave out a longer one."""
    if not (digits.isascii() and digits.isdigit() and len(digits) <= LONGEST_NUMBER):
        raise InvalidInput("not a number of this server", field=field)
    return int(digits)


def idempotency_key(request: Request) -> str:
    """The Idempotency-Key of a request, empty without one. Raises InvalidInput."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return ""
    if not key.strip():  # a client that made none would have its job twice after a repetition
        raise InvalidInput("empty", field="Idempotency-Key", remedy="give a key, or no header")
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
