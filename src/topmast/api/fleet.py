"""Routes of the operator's day: what is there, hosts, datasets, usage."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from topmast.api.bodies import read_object
from topmast.api.wire import answer, returns, takes, text, texts, truth
from topmast.model import views as v
from topmast.model.states import HostState
from topmast.service.service import Service
from topmast.service.usage import KEYS

_LISTS = {
    "regions": v.RegionView,
    "clusters": v.ClusterView,
    "hosts": v.HostView,
    "gpus": v.GpuView,
    "tenants": v.TenantView,
    "datasets": v.DatasetView,
}
_HOST_STATES = {
    "cordon": (HostState.CORDONED, "Cordon a host: it takes no new work"),
    "uncordon": (HostState.HEALTHY, "Uncordon a host: it takes work again"),
    "drain": (HostState.DRAINING, "Drain a host: move its jobs elsewhere by their checkpoints"),
}
_TEXT: dict[str, Any] = {"type": "string"}
_BY = {"user": _TEXT}
_HOSTS = {"type": "array", "items": _TEXT}
_DRAIN = {**_BY, "now": {"type": "boolean"}, "also": _HOSTS}
_DATASET = {
    "name": _TEXT,
    "region": _TEXT,
    "path": _TEXT,
    "source": _TEXT,
    "allowed": {"type": "array", "items": _TEXT},
    "min_replicas": {"type": "integer"},
}
_PERIOD = {"since_s": {"type": "number"}, "until_s": {"type": "number"}, "by": _TEXT}


def routes(service: Service) -> APIRouter:
    """All routes about the fleet."""
    router = APIRouter()
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
    for verb, (state, summary) in _HOST_STATES.items():
        router.add_api_route(
            f"/hosts/{{host}}/{verb}",
            _host_setter(service, state),
            methods=["POST"],
            tags=["fleet"],
            summary=summary,
            name=verb,
            **takes(_DRAIN if state is HostState.DRAINING else _BY),
            **returns(v.HostView),
        )
    _datasets(router, service)

    @router.get(
        "/hosts/{host}/story", tags=["fleet"], summary="One host with its history",
        **returns(v.HostStory),
    )  # fmt: skip
    async def host_story(host: str) -> Response:
        return answer(await service.host_story(host))

    @router.get(
        "/hosts/{host}/drain",
        tags=["fleet"],
        summary="What a drain of a host does now, or would do",
        **returns(v.DrainView),
    )
    async def drain_plan(host: str, also: str = "") -> Response:
        others = [name for name in also.split(",") if name]
        return answer(await service.drain_plan(host, others))

    @router.get(
        "/usage",
        tags=["fleet"],
        summary="GPU-hours held, kept and lost",
        **returns(v.UsageRow, listed="usage", more=_PERIOD),
    )
    async def usage(
        by: Annotated[str, Query(json_schema_extra={"enum": list(KEYS)})] = "tenant",
        since: float | None = None,
        until: float | None = None,
    ) -> Response:
        return answer(await service.usage(by, since, until))

    @router.get(
        "/plans/capacity",
        tags=["fleet"],
        summary="The capacity plan: which hosts belong to which clusters",
        **returns(v.CapacityPlanView),
    )
    async def capacity_plan() -> Response:
        return answer(await service.capacity_plan())

    @router.get("/health", tags=["fleet"], summary="Alive?", **returns(v.Health))
    async def health() -> Response:
        return answer(await service.health())

    return router


def _lister(service: Service, what: str) -> Callable[[], Awaitable[Response]]:
    async def listing() -> Response:
        return answer({what: await service.list(what)})

    return listing


def _host_setter(service: Service, state: HostState) -> Callable[..., Awaitable[Response]]:
    async def set_host(host: str, request: Request) -> Response:
        body = await read_object(request, _DRAIN if state is HostState.DRAINING else _BY)
        at_once, also = truth(body, "now"), texts(body, "also")
        by = text(body, "user")
        return answer(await service.set_host(host, state, by, at_once=at_once, also=also))

    return set_host


def _datasets(router: APIRouter, service: Service) -> None:
    @router.post(
        "/datasets",
        tags=["datasets"],
        summary="Add a dataset",
        **takes(_DATASET, ("name", "region")),
        **returns(v.DatasetView, 201),
    )
    async def add(request: Request) -> Response:
        return answer(await service.add_dataset(await read_object(request)), 201)

    @router.post(
        "/datasets/{name}/replicas",
        tags=["datasets"],
        summary="Copy a dataset to a region",
        **takes({"region": _TEXT, **_BY}, ("region",)),
        **returns(v.DatasetView, 202),
    )
    async def replicate(name: str, request: Request) -> Response:
        body = await read_object(request, ("region", "user"))
        by = text(body, "user")
        return answer(await service.replicate(name, text(body, "region"), by), 202)

    @router.get(
        "/plans/data", tags=["datasets"], summary="The data plan: where datasets are stored",
        **returns(v.DataPlanView),
    )  # fmt: skip
    async def data_plan() -> Response:
        return answer(await service.data_plan())

    @router.delete(
        "/datasets/{name}",
        tags=["datasets"],
        summary="Remove a dataset and delete its replicas",
        **returns(v.DatasetView),
    )
    async def remove(name: str) -> Response:
        return answer(await service.remove_dataset(name))

    @router.delete(
        "/datasets/{name}/replicas/{region}",
        tags=["datasets"],
        summary="Drop a replica",
        **returns(v.DatasetView),
    )
    async def drop(name: str, region: str) -> Response:
        return answer(await service.drop(name, region))
