"""Contents of pages that all readers share that may see the same.

An open page asks for its content alone when something has happened. It is drawn once for all such
readers, and serves for so long that drawing and answering cost the decisions a few percent at most.
An answer says when the next content is there, and whether something has happened meanwhile: then
the page asks again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from msgspec import Struct

from topmast.model.access import Caller, Permission
from topmast.service.service import Service
from topmast.web.shared import REST, Answers

LEAST_S = 0.25
"""A content serves for so long at least."""
ANSWER_S = 0.001
"""What it takes to answer a reader with a content that is there."""
MOST_KEPT = 64
REST_HEADER = "Topmast-Rest"
"""Of an answer: the milliseconds after which there will be a newer content."""
BEHIND_HEADER = "Topmast-Behind"
"""Of an answer: something has happened since it was drawn."""

Draw = Callable[[], Awaitable[Response]]


class _Frame(Struct, frozen=True):
    response: Response
    seq: int
    """The number of the newest event before it was drawn."""


class Frames:
    """Contents by page and sight."""

    def __init__(self, service: Service) -> None:
        self._access, self._events = service.access, service.event_stream
        self._answers = Answers(self._rest_s, MOST_KEPT)

    def _rest_s(self, answers: Answers) -> float:
        return max(LEAST_S, REST * (answers.cost_s() + self._events.readers * ANSWER_S))

    async def show(self, request: Request, caller: Caller, draw: Draw) -> Response:
        """The content of a page for a caller. A reload of its reader is drawn anew."""

        async def frame() -> _Frame:
            seq = self._events.last_seq
            return _Frame(await draw(), seq)

        anew = request.headers.get("cache-control") == "no-cache"
        found, rest_s = await self._answers.get(self._key(request, caller), frame, anew=anew)
        drawn = found.response
        if not isinstance(drawn, HTMLResponse):
            return drawn
        answer = HTMLResponse(bytes(drawn.body), drawn.status_code)
        answer.raw_headers = list(drawn.raw_headers)  # what is on the way out adds to its own
        answer.headers[REST_HEADER] = str(round(1_000 * rest_s))
        if found.seq < self._events.last_seq:
            answer.headers[BEHIND_HEADER] = "1"
        return answer

    def _key(self, request: Request, caller: Caller) -> Hashable:
        """All that a content depends on: the address, and what the caller may see and do."""
        sight = caller.principal
        seen = self._access.tenants(caller, Permission.JOBS_VIEW)
        address = request.url.path, request.url.query
        return *address, sight.grants, sight.scopes, sight.trusted, seen
