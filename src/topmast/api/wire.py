"""Reading requests and writing answers: msgspec on both sides, schemas for OpenAPI from the types."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import Request
from fastapi.responses import Response

from topmast.model import views
from topmast.model.errors import InvalidInput, TopmastError

MAX_BODY_BYTES = 128 * 1024 * 1024
REF = "#/components/schemas/{name}"

SHOWN = (
    views.JobPage,
    views.JobView,
    views.JobStory,
    views.Receipt,
    views.BulkReceipt,
    views.Explanation,
    views.RegionView,
    views.ClusterView,
    views.HostView,
    views.GpuView,
    views.TenantView,
    views.DatasetView,
    views.UsageRow,
    views.Health,
    views.EventView,
    views.Problem,
)


def answer(value: Any, status: int = 200) -> Response:
    """A value as JSON."""
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


async def read_bytes(request: Request, limit_bytes: int = MAX_BODY_BYTES) -> bytes:
    """The body, refused as soon as it grows over the limit."""
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit_bytes:
            raise InvalidInput(f"the body is larger than {limit_bytes} bytes", field="body")
        chunks.append(chunk)
    return b"".join(chunks)


async def read_object(request: Request) -> dict[str, Any]:
    """The body as a JSON object; an empty body is an empty object."""
    data = await read_bytes(request)
    if not data:
        return {}
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(f"not JSON: {error}", field="body") from None
    if not isinstance(document, dict):
        raise InvalidInput("must be a JSON object", field="body")
    return document


def text(document: dict[str, Any], field: str, default: str = "") -> str:
    """A text field of a request."""
    value = document.get(field, default)
    if not isinstance(value, str) or len(value) > 10_000 or "\x00" in value:
        raise InvalidInput("must be a text", field=field)
    return value


def idempotency_key(request: Request) -> str:
    """The Idempotency-Key of a request, empty without one."""
    key = request.headers.get("idempotency-key", "")
    if len(key) > 200 or not key.isprintable():
        raise InvalidInput("longer than 200 characters, or not printable", field="Idempotency-Key")
    return key


def returns(kind: type | None, status: int = 200, listed: str = "") -> dict[str, Any]:
    """OpenAPI fields for a route that answers with ``kind``, or with a list of it under a key."""
    if kind is None:
        schema: dict[str, Any] = {"type": "object"}
    else:
        schema = {"$ref": REF.format(name=kind.__name__)}
    if listed:
        items = {"type": "array", "items": schema}
        schema = {"type": "object", "properties": {listed: items}, "required": [listed]}
    error = {"$ref": REF.format(name="Problem")}
    return {
        "responses": {
            str(status): {
                "description": "Done",
                "content": {"application/json": {"schema": schema}},
            },
            "4XX": {
                "description": "Refused",
                "content": {"application/problem+json": {"schema": error}},
            },
        }
    }


def takes(properties: dict[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    """OpenAPI fields for a route that takes a JSON object."""
    schema = {"type": "object", "properties": properties, "required": list(required)}
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": bool(required), "content": content}}


def components() -> dict[str, Any]:
    """JSON Schemas of everything shown, for OpenAPI."""
    _, found = msgspec.json.schema_components(SHOWN, ref_template=REF)
    return found


__all__ = ["TopmastError", "answer", "components", "idempotency_key", "read_object", "text"]
