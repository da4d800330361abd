"""REST under /api/v1: presentation of the service, and nothing else."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp

import topmast
from topmast.api import events, fleet, jobs, problems
from topmast.api.guard import LoopbackOnly
from topmast.api.wire import components
from topmast.service.service import Service

PREFIX = "/api/v1"


def create_api(service: Service) -> ASGIApp:
    """The ASGI application of a service, for loopback."""
    app = FastAPI(
        title="Topmast",
        version=topmast.__version__,
        summary="One global queue for ML training across regions, clusters and engines.",
        docs_url=None,
        redoc_url=None,
    )
    problems.install(app)
    for module in (jobs, fleet, events):
        app.include_router(module.routes(service), prefix=PREFIX)
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        document = plain()
        document.setdefault("components", {}).setdefault("schemas", {}).update(components())
        return document

    app.openapi = openapi  # type: ignore[method-assign]
    return LoopbackOnly(app)
