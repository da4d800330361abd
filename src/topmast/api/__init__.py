"""REST under /api/v1: presentation of the service, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from fastapi import FastAPI
from fastapi.responses import Response
from fastapi.telemetry import TelemetryConfig
from starlette.types import ASGIApp

import topmast
from topmast.adapters.clock import elapsed_s
from topmast.adapters.connections import MOST_CONNECTIONS, STREAMS_PART
from topmast.adapters.link import PREFIX as LINK_PREFIX
from topmast.adapters.oidc import OpenId
from topmast.api import (
    accounts,
    events,
    execs,
    fleet,
    jobs,
    link,
    observing,
    problems,
    profile,
    sweeps,
    verbs,
    webhooks,
    whatif,
)
from topmast.api.guard import Gate, Guard, LoginGate, LoopbackGate
from topmast.api.large_bodies import LargeBodies
from topmast.api.login import Logging
from topmast.api.login import routes as login_routes
from topmast.api.wire import answer, components
from topmast.model.access import Caller
from topmast.routing import READS_TAKE, PageRouter
from topmast.service.access import row
from topmast.service.metrics import Metrics
from topmast.service.service import Service

PREFIX = "/api/v1"
AUTH_PREFIX = "/auth"


HEALTH = "/health"
NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False}
"""Figures and traces are made here; to ask at each request whether others are wanted takes long."""
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]


def create_api(
    service: Service,
    endpoints: Mapping[str, link.LinkEndpoint] | None = None,
    token: str = "",
    most_streams: int = 256,
    gate: Gate | None = None,
    openid: OpenId | None = None,
    metrics: Metrics | None = None,
    pages: PageRouter | None = None,
) -> ASGIApp:
    """The ASGI application of a service, and the links to regions apart.

    ``most_streams``: how many clients may follow the events at a time. ``gate``: lets requests in,
    by default those of the one person of this machine. ``openid``: where people log in.
    ``metrics``: what machines may ask for besides. ``pages``: the routes of the dashboard.
    """
    gate = gate or LoopbackGate()
    app = FastAPI(
        title="Topmast",
        version=topmast.__version__,
        summary="One global queue for ML training across regions, clusters and engines.",
        docs_url=None,
        redoc_url=None,
        telemetry=NO_TELEMETRY,
    )
    app.state.large_bodies = LargeBodies(service)
    app.state.note_refusal = partial(_note_refusal, service)
    setattr(app.state, READS_TAKE, gate.reads_take)
    problems.install(app)
    asks = isinstance(gate, LoginGate)
    for router in (
        jobs.routes(service), execs.routes(service), sweeps.routes(service), verbs.routes(service),
        fleet.routes(service), events.routes(service, most_streams),
        accounts.routes(service, login=asks), webhooks.routes(service), profile.routes(service),
        whatif.routes(service),
    ):  # fmt: skip
        app.include_router(router, prefix=PREFIX)
    if isinstance(gate, LoginGate):
        logging = Logging(service, gate, openid, elapsed_s)
        app.include_router(login_routes(logging), prefix=AUTH_PREFIX)
    app.include_router(link.routes(endpoints or {}), prefix=LINK_PREFIX)
    if pages is not None:
        app.include_router(pages)
        app.state.failure_page = pages.failure
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        document = plain()
        document.setdefault("components", {}).setdefault("schemas", {}).update(components())
        return document

    app.openapi = openapi  # type: ignore[method-assign]
    login = f"{AUTH_PREFIX}/login" if openid is not None else ""
    connections = STREAMS_PART * most_streams
    return _observed(app, token, gate, metrics, login=login, connections=connections)


def _observed(
    app: FastAPI,
    token: str,
    gate: Gate,
    metrics: Metrics | None,
    open_paths: tuple[str, ...] = (),
    login: str = "",
    connections: int = MOST_CONNECTIONS,
) -> ASGIApp:
    """The application behind its guard, with the routes of probes and figures, and counted."""
    if metrics is None:
        return Guard(app, token, gate, open_paths, login, connections)
    app.include_router(observing.routes(metrics))
    paths = (*open_paths, *observing.PROBES)
    guarded = Guard(app, token, gate, paths, login, connections)
    return observing.Timed(guarded, metrics)


async def _note_refusal(service: Service, caller: Caller, verb: str, path: str, why: str) -> None:
    service.limits.take(caller, "refused")
    if why:
        await service.logins.note_refusal(row(caller, verb, path), why)


def create_regional_api(
    endpoint: link.LinkEndpoint,
    region: str,
    queue_url: str,
    token: str,
    metrics: Metrics | None = None,
) -> ASGIApp:
    """The ASGI application of a region's process: its link, and whether it is alive."""
    app = FastAPI(
        title="Topmast", docs_url=None, redoc_url=None, openapi_url=None, telemetry=NO_TELEMETRY
    )
    app.state.large_bodies = LargeBodies()
    problems.install(app)
    app.include_router(link.routes({region: endpoint}), prefix=LINK_PREFIX)

    @app.api_route(HEALTH, methods=["GET", "HEAD"])
    async def health() -> Response:
        return answer({"version": topmast.__version__, "role": "placer", "region": region})

    @app.api_route(f"{PREFIX}/{{path:path}}", methods=METHODS)
    async def elsewhere(path: str) -> Response:
        detail = f"this is the placer of region {region}; the queue is at {queue_url}"
        return problems.problem(404, "Wrong server", detail)

    return _observed(app, token, LoopbackGate(), metrics, open_paths=(HEALTH,))
