"""The event stream (server-sent events)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from topmast.api.problems import problem
from topmast.api.wire import Natural, replies, whole_number
from topmast.model.access import Caller, Permission
from topmast.model.errors import TooMany
from topmast.model.views import EventView
from topmast.routing import asks_for_head, caller_of, guarded_router, needs
from topmast.service.service import Service

MOST_OF_ALL = 8
"""One principal may have this part of all streams."""
RETRY_S = 10.0


def routes(service: Service, most_streams: int) -> APIRouter:
    """The route /events, for so many readers at a time."""
    router = guarded_router()
    streams: dict[int, str] = {}

    @router.get(
        "/events",
        tags=["events"],
        summary="All events, as they happen",
        description="Server-sent events; the data of each is an EventView.",
        **replies(200, {"text/event-stream": {"schema": {"type": "string"}}}),
    )
    @needs(Permission.JOBS_VIEW)
    async def events(request: Request, after: Natural | None = None) -> Response:
        if len(streams) >= most_streams:
            detail = f"{most_streams} clients follow the events already"
            refusal = problem(503, "Unavailable", detail)
            refusal.headers["Connection"] = "close"
            return refusal
        caller = caller_of(request)
        subject = caller.principal.subject
        own = sum(of == subject for of in streams.values())
        if not caller.principal.trusted and own >= max(1, most_streams // MOST_OF_ALL):
            raise TooMany(f"{subject} follows the events {own} times already", RETRY_S)
        resumed = request.headers.get("last-event-id", "")
        first = whole_number(resumed, "Last-Event-ID") if resumed else after
        start = service.event_stream.last_seq if first is None else first
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        if asks_for_head(request):
            return Response(media_type="text/event-stream", headers=headers)
        return _Stream(_lines(service, caller, start), streams, subject, headers)

    return router


class _Stream(StreamingResponse):
    """One stream; it counts from the moment that it is promised, not from its first event."""

    def __init__(
        self,
        lines: AsyncIterator[bytes],
        streams: dict[int, str],
        subject: str,
        headers: dict[str, str],
    ) -> None:
        super().__init__(lines, media_type="text/event-stream", headers=headers)
        self._streams = streams
        streams[id(self)] = subject

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the reader or the server goes."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            del self._streams[id(self)]


async def _lines(service: Service, caller: Caller, after: int) -> AsyncIterator[bytes]:
    yield b": connected\n\n"
    async for frame in service.events(caller, after, _frame):
        yield frame or b": still here\n\n"


def _frame(events: Sequence[EventView]) -> bytes:
    """Events as they stand in a stream; empty for none."""
    return b"".join(
        b"id: %d\nevent: %s\ndata: %s\n\n"
        % (event.seq, event.kind.encode(), msgspec.json.encode(event))
        for event in events
    )
