"""What machines ask: the figures for Prometheus, and whether the server lives and can work."""

from __future__ import annotations

import time

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from topmast.model.access import ROOT, Caller, Permission
from topmast.routing import caller_of, guarded_router, needs, open_to_all
from topmast.service.metrics import CONTENT_TYPE, Metrics

LIVE, READY, STARTED = "/livez", "/readyz", "/startupz"
PROBES = (LIVE, READY, STARTED)
"""They tell nothing but a word, and are open to all."""
METRICS = "/metrics"
WELL = "ok\n"


def routes(metrics: Metrics) -> APIRouter:
    """The routes without a version: these names are what other systems expect."""
    router = guarded_router()

    @router.get(METRICS, include_in_schema=False)
    @needs(Permission.USAGE_VIEW)
    async def figures(request: Request) -> Response:
        refuse_figures(caller_of(request))
        return Response(await metrics.text(), media_type=CONTENT_TYPE)

    @router.get(LIVE, include_in_schema=False)
    @open_to_all
    async def live() -> Response:
        return Response(WELL, media_type="text/plain")

    @open_to_all
    async def ready() -> Response:
        await metrics.ready()
        return Response(WELL, media_type="text/plain")

    router.add_api_route(READY, ready, include_in_schema=False)
    router.add_api_route(STARTED, ready, include_in_schema=False)
    return router


def refuse_figures(caller: Caller) -> None:
    """Raise Forbidden for a caller that may not see the figures of all tenants."""
    if not caller.principal.may(Permission.USAGE_VIEW, (ROOT,)):
        raise caller.principal.forbidden(Permission.USAGE_VIEW, ROOT)


class Timed:
    """Counts how long requests take until their answers begin, by route and not by path."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.seconds = metrics.http

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and look at the clock."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun_s = time.perf_counter()

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                # A path is what strangers write; the route is one of ours, or none.
                route = getattr(scope.get("route"), "path", "none")
                took_s = time.perf_counter() - begun_s
                self.seconds.observe(took_s, route, _method(scope), str(message["status"]))
            await send(message)

        await self.app(scope, receive, sending)


def _method(scope: Scope) -> str:
    known = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
    return scope["method"] if scope["method"] in known else "other"
