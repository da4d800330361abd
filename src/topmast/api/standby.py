"""What a process answers while it does not lead: its health, and where the leader is."""

from __future__ import annotations

import html
import math
from collections.abc import Callable
from enum import StrEnum
from urllib.parse import quote

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from topmast.adapters.link import PREFIX as LINK_PREFIX
from topmast.api.guard import SAFE_METHODS, Gate, Guard, LoopbackGate
from topmast.api.observing import LIVE, METRICS, READY, STARTED, WELL, refuse_figures
from topmast.api.problems import answered
from topmast.model.errors import Forbidden
from topmast.model.views import Health, Problem
from topmast.routing import CALLER
from topmast.service.metrics import CONTENT_TYPE

HEALTH_PATHS = ("/health", "/api/v1/health")
GUARDED = (*HEALTH_PATHS, METRICS)
"""What a standby tells of itself, and strangers may not know."""
AGE = "X-Standby-Age-S"
"""The header of an answer from a standby: how many seconds ago it had all that the leader had."""
MOST_AGE = "X-Standby-Most-Age-S"
"""The header of a request: from a standby it wants no older answer than this; 0: none at all."""
MOST_AGE_S = 5.0
"""No answer is older: a token that was revoked must be good for nothing by then."""
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<meta name="viewport" content="width=device-width"><meta http-equiv="refresh" content="3">
<title>Standby · Topmast</title></head>
<body><main><h1>Topmast</h1><p>No page: {detail}.{link}</p>
<p>This is asked for again every three seconds.</p></main></body></html>
"""


class Hindrance(StrEnum):
    """Why a server answers nothing, and names no leader that would: what it says."""

    FULL = (
        "nothing can be written: the disk of the database is full: make room there; "
        f"what only reads is answered, to clients that set TOPMAST_MOST_AGE_S={MOST_AGE_S:g}"
    )
    """None can lead."""
    CUT_OFF = "cannot reach the database of the servers: its health or its log says why"
    """It knows of no news."""
    UNPROVEN = (
        "this server cannot prove that it leads: its database does not answer; ask again soon"
    )
    """It led, and another may by now."""
    SHARED = (
        "this server stands by, and the leader has the same URL: give each server its own "
        "(--public-url), or have what is in front of them send requests to the one that is ready "
        "(/readyz)"
    )
    """It cannot lead clients on."""


_OWN = (*GUARDED, LIVE, STARTED, READY)
_OWN_PREFIXES = (f"{LINK_PREFIX}/", "/auth/")
"""What a standby never answers as a leader would: links, and logins, which are written down."""


def create_standby_api(
    health: Callable[[], Health],
    leader: Callable[[], str],
    token: str,
    gate: Gate | None = None,
    figures: Callable[[], bytes] = lambda: b"",
    hindered: Callable[[], Hindrance | None] = lambda: None,
) -> ASGIApp:
    """Answers questions for its health, and 503 with the URL of the leader to everything else.

    ``figures``: what it tells Prometheus. ``hindered``: why no leader is named. It lives
    and has started, and is not ready.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if scope["path"] in HEALTH_PATHS:
                answer = Response(msgspec.json.encode(health()), media_type="application/json")
            elif scope["path"] in (LIVE, STARTED):
                answer = Response(WELL, media_type="text/plain")
            elif scope["path"] == METRICS:
                answer = _figures(scope, figures)
            else:
                answer = not_leading(leader(), scope, hindered())
            await answer(scope, receive, send)

    return Guard(app, token, gate or LoopbackGate())


def _figures(scope: Scope, figures: Callable[[], bytes]) -> Response:
    caller = scope.get(CALLER)
    try:
        if caller is not None:
            refuse_figures(caller)
    except Forbidden as error:
        return answered(error)
    return Response(figures(), media_type=CONTENT_TYPE)


def not_leading(
    leader: str, scope: Scope | None = None, hindered: Hindrance | None = None
) -> Response:
    """503 from a process that does not lead; ``leader``: the URL of the one that does, if known.

    ``hindered``: why it names none; None: it does, or none is known.

    A browser that opens a page is told so by a page, which it asks for again by itself.
    """
    detail = f"this server stands by; the leader is at {leader}"
    if not leader:
        detail = "this server does not lead, and knows of no leader: ask again soon"
    if hindered is Hindrance.CUT_OFF:
        last = f"; the last leader was at {leader}" if leader else ""
        detail = f"this server does not lead, and {hindered}{last}"
    elif hindered:
        leader, detail = "", hindered
    retry = {"Retry-After": "5" if hindered is Hindrance.FULL else "1"}
    if scope is not None and "text/html" in Headers(scope=scope).get("accept", ""):
        link = ""
        if leader:
            onward = html.escape(f"{leader.rstrip('/')}{_address(scope)}")
            link = f' <a href="{onward}">The same at the leader</a>'
        return HTMLResponse(_PAGE.format(detail=html.escape(detail), link=link), 503, retry)
    problem = Problem("about:blank", "Unavailable", 503, detail, leader=leader)
    return Response(msgspec.json.encode(problem), 503, retry, "application/problem+json")


def _address(scope: Scope) -> str:
    """The path of a request with what stands behind the question mark."""
    query = scope["query_string"].decode("latin-1")
    return quote(scope["path"]) + (f"?{query}" if query else "")


class Reads:
    """Passes what only reads on to an application that answers from machines that follow.

    ``app``: None while there is none. ``age_s``: how old its answers are. ``other`` gets the rest,
    everything while the answers would be too old, and what only a leader has: ``app`` answers 503.
    """

    def __init__(
        self, app: Callable[[], ASGIApp | None], age_s: Callable[[], float], other: ASGIApp
    ) -> None:
        self._app = app
        self._age_s = age_s
        self._other = other

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        app = self._app()
        if app is None or not self._may_answer(scope):
            await self._other(scope, receive, send)
            return

        passed = False

        async def dated(message: Message) -> None:
            nonlocal passed
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[AGE] = f"{self._age_s():.3f}"
                if message["status"] == 503:
                    passed = True
                    await self._other(scope, receive, send)
            if not passed:
                await send(message)

        await app(scope, receive, dated)

    def _may_answer(self, scope: Scope) -> bool:
        if scope["type"] != "http" or scope["method"] not in SAFE_METHODS:
            return False
        path: str = scope["path"]
        if path in _OWN or path.startswith(_OWN_PREFIXES):
            return False
        return self._age_s() <= min(MOST_AGE_S, _most_age_s(Headers(scope=scope).get(MOST_AGE)))


def _most_age_s(text: str | None) -> float:
    """What a request puts up with; one that says nothing that can be read wants the leader."""
    try:
        found = MOST_AGE_S if text is None else float(text)
    except ValueError:
        return 0.0
    return 0.0 if math.isnan(found) else found


class Front:
    """The application of a process that may come to lead while it serves.

    ``leads``: whether this process is sure to lead; while it is not, as no proof comes from the
    database, nothing is answered from its state, which may be old. It lives all the same:
    to restart it would help nothing.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.leads: Callable[[], bool] = lambda: True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, unless another process may lead; look again before it is answered."""
        if scope["type"] != "http" or scope["path"] == LIVE:
            await self.app(scope, receive, send)
            return
        if not self.leads():
            await not_leading("", scope, Hindrance.UNPROVEN)(scope, receive, send)
            return
        reads, refused = scope["method"] in ("GET", "HEAD"), False

        async def answer(message: Message) -> None:
            nonlocal refused
            if reads and message["type"] == "http.response.start" and not self.leads():
                refused = True
                await not_leading("", scope, Hindrance.UNPROVEN)(scope, receive, send)
            if not refused:
                await send(message)

        await self.app(scope, receive, answer)
