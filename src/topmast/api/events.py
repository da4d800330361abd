"""The event stream (server-sent events)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from topmast.api.wire import replies, whole_number
from topmast.service.service import Service


def routes(service: Service) -> APIRouter:
    """The route /events."""
    router = APIRouter()

    @router.get(
        "/events",
        tags=["events"],
        summary="Everything that happens, as it happens",
        description="Server-sent events; the data of each is an EventView.",
        **replies(200, {"text/event-stream": {"schema": {"type": "string"}}}),
    )
    async def events(request: Request, after: int | None = None) -> StreamingResponse:
        resumed = request.headers.get("last-event-id", "")
        first = whole_number(resumed, "Last-Event-ID") if resumed else after
        start = service.hub.last_seq if first is None else first
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(
            _lines(service, start), media_type="text/event-stream", headers=headers
        )

    return router


async def _lines(service: Service, after: int) -> AsyncIterator[bytes]:
    yield b": connected\n\n"
    async for batch in service.hub.follow(after):
        if not batch:
            yield b": still here\n\n"
        for event in batch:
            data = msgspec.json.encode(event)
            yield b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.kind.encode(), data)
