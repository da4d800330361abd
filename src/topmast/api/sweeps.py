"""Routes of sweeps; they are submitted as jobs are, and acted on by their ids."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from topmast.api.wire import answer, returns
from topmast.model.access import Permission
from topmast.model.sweep_views import SweepView
from topmast.routing import caller_of, guarded_router, needs
from topmast.service.service import Service


def routes(service: Service) -> APIRouter:
    """All routes under /sweeps."""
    router = guarded_router()

    @router.get(
        "/sweeps", tags=["jobs"], summary="List sweeps", **returns(SweepView, listed="sweeps")
    )
    @needs(Permission.JOBS_VIEW)
    async def sweeps(request: Request) -> Response:
        return answer({"sweeps": await service.sweeps(caller_of(request))})

    @router.get("/sweeps/{sweep}", tags=["jobs"], summary="One sweep", **returns(SweepView))
    @needs(Permission.JOBS_VIEW)
    async def one(sweep: str, request: Request) -> Response:
        return answer(await service.sweep(caller_of(request), sweep))

    return router
