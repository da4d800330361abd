"""Routes of what operators do to hosts and clusters."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from topmast.api.bodies import Body, acted
from topmast.api.wire import answer, ends, number, returns, takes, text, texts, truth, user
from topmast.model import views as v
from topmast.model.access import Permission
from topmast.model.act_views import ClusterActed, HostsActed, ReservationView
from topmast.model.window import Window
from topmast.routing import caller_of, needs
from topmast.service.host_acts import VERBS, HostsAct
from topmast.service.service import Service

_TEXT: dict[str, Any] = {"type": "string"}
_NAMES = {"type": "array", "items": _TEXT}
_TRUTH = {"type": "boolean"}
_SET = {"user": _TEXT, "reason": _TEXT}
_ASIDE = {**_SET, "until_s": {"type": "number"}}
_DRAIN = {**_ASIDE, "now": _TRUTH}
_BODIES = {"cordon": _ASIDE, "uncordon": _SET, "drain": _DRAIN}
_ALSO = {"also": _NAMES, "dry_run": _TRUTH}
_MANY = {"hosts": _NAMES, "selector": _TEXT, "dry_run": _TRUTH}
_RESERVE = {
    **_ASIDE, **_MANY, "from_s": {"type": "number"}, "cluster": _TEXT, "region": _TEXT,
    "tenants": _NAMES,
}  # fmt: skip
_SUMMARIES = {
    "cordon": "Cordon {}: no new work there",
    "uncordon": "Uncordon {}: work comes there again",
    "drain": "Drain {}: jobs move elsewhere by their checkpoints",
}
_CLUSTERS = {
    "close": "Close a cluster: it gets no new work, and what runs there goes on",
    "open": "Open a cluster that an operator closed",
}


def add(router: APIRouter, service: Service) -> None:
    """Add the routes."""
    for verb, summary in _SUMMARIES.items():
        router.add_api_route(
            f"/hosts/{{host}}/{verb}",
            _host_setter(service, verb),
            methods=["POST"],
            tags=["fleet"],
            summary=summary.format("a host"),
            name=verb,
            **takes({**_BODIES[verb], **_ALSO}),
            **returns(v.HostView),
        )
        router.add_api_route(
            f"/hosts/{verb}",
            _actor(service, verb),
            methods=["POST"],
            tags=["fleet"],
            summary=summary.format("hosts"),
            name=f"{verb} hosts",
            **takes({**_BODIES[verb], **_MANY}),
            **returns(HostsActed),
        )
    for verb, summary in _CLUSTERS.items():
        router.add_api_route(
            f"/clusters/{{cluster}}/{verb}",
            _cluster_actor(service, verb),
            methods=["POST"],
            tags=["fleet"],
            summary=summary,
            name=f"{verb} cluster",
            **takes(_of_cluster(verb)),
            **returns(ClusterActed),
        )
        router.add_api_route(
            f"/clusters/{verb}",
            _clusters_actor(service, verb),
            methods=["POST"],
            tags=["fleet"],
            summary=summary.replace("a cluster", "clusters").replace(": it gets", ": they get"),
            name=f"{verb} clusters",
            **takes({**_of_cluster(verb), "clusters": _NAMES, "selector": _TEXT}),
            **returns(ClusterActed, listed="clusters"),
        )

    _reservations(router, service)


def _reservations(router: APIRouter, service: Service) -> None:
    @router.get(
        "/reservations", tags=["fleet"], summary="Hosts that are reserved for a while",
        **returns(ReservationView, listed="reservations"),
    )  # fmt: skip
    @needs(Permission.FLEET_VIEW)
    async def reservations(request: Request) -> Response:
        return answer({"reservations": await service.reservations(caller_of(request))})

    @router.post(
        "/reservations",
        tags=["fleet"],
        summary="Reserve hosts: a job that would not end before does not start there",
        **takes(_RESERVE, ("until_s",)),
        **returns(ReservationView, 201),
    )
    @needs(Permission.FLEET_OPERATE, verb="reserve")
    async def reserve(request: Request) -> Response:
        def put(body: Body, *, dry_run: bool) -> Awaitable[ReservationView]:
            until_s = number(body, "until_s")
            window = Window(
                "", number(body, "from_s") or 0.0, math.inf if until_s is None else until_s,
                texts(body, "hosts"), text(body, "cluster"), text(body, "region"),
                texts(body, "tenants"), user(body), text(body, "reason"),
            )  # fmt: skip
            return service.reserve(
                caller_of(request), window, text(body, "selector"), dry_run=dry_run
            )

        check = partial(ends, remedy="when the reservation ends")
        found, is_dry = await acted(request, _RESERVE, put, checks=(check,))
        return answer(found, 200 if is_dry else 201)

    @router.post(
        "/reservations/{name}/end",
        tags=["fleet"],
        summary="End a reservation before its time",
        **takes({**_SET, "dry_run": _TRUTH}),
        **returns(ReservationView),
    )
    @needs(Permission.FLEET_OPERATE, verb="end-reservation")
    async def end(name: str, request: Request) -> Response:
        def put(body: Body, *, dry_run: bool) -> Awaitable[ReservationView]:
            return service.end_reservation(
                caller_of(request), name, user(body), text(body, "reason"), dry_run=dry_run
            )

        found, _ = await acted(request, {**_SET, "dry_run": _TRUTH}, put)
        return answer(found)


def _wanted(verb: str, body: Body, *, dry_run: bool) -> HostsAct:
    return HostsAct(
        VERBS[verb], texts(body, "hosts"), text(body, "selector"), user(body),
        text(body, "reason"), truth(body, "now"), number(body, "until_s"), dry_run,
    )  # fmt: skip


def _host_setter(service: Service, verb: str) -> Callable[..., Awaitable[Response]]:
    @needs(Permission.FLEET_OPERATE, verb=verb)
    async def set_host(host: str, request: Request) -> Response:
        def put(body: Body, *, dry_run: bool) -> Awaitable[v.HostView]:
            wanted = _wanted(verb, body, dry_run=dry_run)
            return service.set_host(caller_of(request), host, wanted, texts(body, "also"))

        found, _ = await acted(request, {**_BODIES[verb], **_ALSO}, put)
        return answer(found)

    return set_host


def _actor(service: Service, verb: str) -> Callable[..., Awaitable[Response]]:
    @needs(Permission.FLEET_OPERATE, verb=verb)
    async def act(request: Request) -> Response:
        def put(body: Body, *, dry_run: bool) -> Awaitable[HostsActed]:
            wanted = _wanted(verb, body, dry_run=dry_run)
            return service.act_on_hosts(caller_of(request), wanted)

        found, _ = await acted(request, {**_BODIES[verb], **_MANY}, put)
        return answer(found)

    return act


def _of_cluster(verb: str) -> dict[str, Any]:
    return {**(_ASIDE if verb == "close" else _SET), "dry_run": _TRUTH}


def _clusters_actor(service: Service, verb: str) -> Callable[..., Awaitable[Response]]:
    @needs(Permission.FLEET_OPERATE, verb=f"{verb}-cluster")
    async def act(request: Request) -> Response:
        async def put(body: Body, *, dry_run: bool) -> dict[str, Any]:
            found = await service.act_on_clusters(
                caller_of(request), verb, texts(body, "clusters"), text(body, "selector"),
                by=user(body), reason=text(body, "reason"), until_s=number(body, "until_s"),
                dry_run=dry_run,
            )  # fmt: skip
            return {"clusters": found}

        fields = {**_of_cluster(verb), "clusters": _NAMES, "selector": _TEXT}
        found, _ = await acted(request, fields, put)
        return answer(found)

    return act


def _cluster_actor(service: Service, verb: str) -> Callable[..., Awaitable[Response]]:
    @needs(Permission.FLEET_OPERATE, verb=f"{verb}-cluster")
    async def act(cluster: str, request: Request) -> Response:
        def put(body: Body, *, dry_run: bool) -> Awaitable[ClusterActed]:
            return service.act_on_cluster(
                caller_of(request), verb, cluster, by=user(body), reason=text(body, "reason"),
                until_s=number(body, "until_s"), dry_run=dry_run,
            )  # fmt: skip

        found, _ = await acted(request, _of_cluster(verb), put)
        return answer(found)

    return act
