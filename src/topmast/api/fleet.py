"""Routes of the operator's day: what is there, hosts, datasets, usage."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from topmast.api import hosts
from topmast.api.bodies import Body, acted, read_object
from topmast.api.wire import WHY, answer, returns, takes, text, user, why
from topmast.model import views as v
from topmast.model.access import Permission
from topmast.model.history_views import FleetHistory
from topmast.model.map_views import FleetMap
from topmast.model.plan_views import CapacityPlanView, DataPlanView
from topmast.model.system_views import SystemView
from topmast.routing import caller_of, guarded_router, needs
from topmast.service.access import Why
from topmast.service.history import RINGS
from topmast.service.service import Service
from topmast.service.usage import ANY_KEY

_LISTS = {
    "regions": v.RegionView,
    "clusters": v.ClusterView,
    "hosts": v.HostView,
    "gpus": v.GpuView,
    "tenants": v.TenantView,
    "datasets": v.DatasetView,
}
_TEXT: dict[str, Any] = {"type": "string"}
_REPLICA = {"region": _TEXT, "user": _TEXT, **WHY}
_DATASET = {
    "name": _TEXT,
    "region": _TEXT,
    "path": _TEXT,
    "source": _TEXT,
    "allowed": {"type": "array", "items": _TEXT},
    "min_replicas": {"type": "integer"},
    **WHY,
}
_PERIOD = {"since_s": {"type": "number"}, "until_s": {"type": "number"}, "by": _TEXT}


def routes(service: Service) -> APIRouter:
    """All routes about the fleet."""
    router = guarded_router()
    for what, kind in _LISTS.items():
        router.add_api_route(
            f"/{what}",
            _lister(service, what),
            methods=["GET"],
            tags=["fleet"],
            summary=f"List {what}",
            name=what,
            **returns(kind, listed=what),
        )
    hosts.add(router, service)
    _datasets(router, service)

    @router.get(
        "/hosts/{host}/story", tags=["fleet"], summary="One host with its history",
        **returns(v.HostStory),
    )  # fmt: skip
    @needs(Permission.FLEET_VIEW)
    async def host_story(host: str, request: Request) -> Response:
        return answer(await service.host_story(caller_of(request), host))

    @router.get(
        "/hosts/{host}/drain",
        tags=["fleet"],
        summary="What a drain of a host does now, or would do",
        **returns(v.DrainView),
    )
    @needs(Permission.FLEET_VIEW)
    async def drain_plan(host: str, request: Request, also: str = "") -> Response:
        others = [name for name in also.split(",") if name]
        return answer(await service.drain_plan(caller_of(request), host, others))

    @router.get(
        "/usage",
        tags=["fleet"],
        summary="GPU-hours held, kept and lost",
        **returns(v.UsageRow, listed="usage", more=_PERIOD),
    )
    @needs(Permission.USAGE_VIEW)
    async def usage(
        request: Request,
        by: Annotated[str, Query(json_schema_extra={"pattern": ANY_KEY})] = "tenant",
        since: float | None = None,
        until: float | None = None,
    ) -> Response:
        return answer(await service.usage(caller_of(request), by, since, until))

    _system(router, service)
    return router


def _system(router: APIRouter, service: Service) -> None:
    @router.get(
        "/plans/capacity",
        tags=["fleet"],
        summary="The capacity plan: which hosts belong to which clusters",
        **returns(CapacityPlanView),
    )
    @needs(Permission.FLEET_VIEW)
    async def capacity_plan(request: Request) -> Response:
        return answer(await service.capacity_plan(caller_of(request)))

    @router.get(
        "/fleet/map",
        tags=["fleet"],
        summary="Every host with the jobs that hold its GPUs, by region and cluster",
        **returns(FleetMap),
    )
    @needs(Permission.FLEET_VIEW)
    async def fleet_map(request: Request) -> Response:
        return answer(await service.fleet_map(caller_of(request)))

    @router.get(
        "/fleet/history",
        tags=["fleet"],
        summary="GPUs present, held and waited for over time",
        **returns(FleetHistory),
    )
    @needs(Permission.FLEET_VIEW)
    async def fleet_history(
        request: Request,
        period: Annotated[str, Query(json_schema_extra={"enum": list(RINGS)})] = "24h",
    ) -> Response:
        return answer(service.history(caller_of(request), period))

    @router.get("/system", tags=["fleet"], summary="How the server fares", **returns(SystemView))
    @needs(Permission.FLEET_VIEW)
    async def system(request: Request) -> Response:
        return answer(await service.system(caller_of(request)))

    @router.get("/health", tags=["fleet"], summary="Alive?", **returns(v.Health))
    @needs(Permission.SELF)
    async def health(request: Request) -> Response:
        return answer(await service.health(caller_of(request)))


def _lister(service: Service, what: str) -> Callable[..., Awaitable[Response]]:
    @needs(Permission.DATA_VIEW if what == "datasets" else Permission.FLEET_VIEW)
    async def listing(request: Request) -> Response:
        return answer({what: await service.list(caller_of(request), what)})

    return listing


def _datasets(router: APIRouter, service: Service) -> None:
    @router.post(
        "/datasets",
        tags=["datasets"],
        summary="Add a dataset",
        **takes(_DATASET, ("name", "region")),
        **returns(v.DatasetView, 201),
    )
    @needs(Permission.DATA_EDIT, verb="add-dataset")
    async def add(request: Request) -> Response:
        document = await read_object(request)
        wanted = why({field: document.pop(field) for field in WHY if field in document})
        view = await service.add_dataset(caller_of(request), document, wanted)
        return answer(view, 200 if wanted.dry_run else 201)

    @router.post(
        "/datasets/{name}/replicas",
        tags=["datasets"],
        summary="Copy a dataset to a region",
        **takes(_REPLICA, ("region",)),
        **returns(v.DatasetView, 202),
    )
    @needs(Permission.DATA_EDIT, verb="replicate")
    async def replicate(name: str, request: Request) -> Response:
        def put(body: Body, *, dry_run: bool) -> Awaitable[v.DatasetView]:
            wanted = Why(text(body, "reason"), dry_run)
            return service.replicate(
                caller_of(request), name, text(body, "region"), user(body), wanted
            )

        found, is_dry = await acted(request, _REPLICA, put)
        return answer(found, 200 if is_dry else 202)

    @router.get(
        "/plans/data", tags=["datasets"], summary="The data plan: where datasets are stored",
        **returns(DataPlanView),
    )  # fmt: skip
    @needs(Permission.DATA_VIEW)
    async def data_plan(request: Request) -> Response:
        return answer(await service.data_plan(caller_of(request)))

    @router.delete(
        "/datasets/{name}",
        tags=["datasets"],
        summary="Remove a dataset and delete its replicas",
        **returns(v.DatasetView),
    )
    @needs(Permission.DATA_EDIT, verb="remove-dataset")
    async def remove(
        name: str, request: Request, reason: str = "", dry_run: bool = False
    ) -> Response:
        wanted = why({"reason": reason, "dry_run": dry_run})
        return answer(await service.remove_dataset(caller_of(request), name, wanted))

    @router.delete(
        "/datasets/{name}/replicas/{region}",
        tags=["datasets"],
        summary="Drop a replica",
        **returns(v.DatasetView),
    )
    @needs(Permission.DATA_EDIT, verb="drop-replica")
    async def drop(
        name: str, region: str, request: Request, reason: str = "", dry_run: bool = False
    ) -> Response:
        wanted = why({"reason": reason, "dry_run": dry_run})
        return answer(await service.drop(caller_of(request), name, region, wanted))
