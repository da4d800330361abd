"""Routes of what people do to many jobs at once, and to the whole fleet."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from msgspec.structs import replace

from topmast.api.bodies import Body, acted, read_object
from topmast.api.large_bodies import BULK_BYTES
from topmast.api.wire import answer, ends, number, returns, takes, text, texts, truth, user
from topmast.model.access import Permission
from topmast.model.act_views import FleetDiff, FleetView, JobsActed, QuotaActed, TenantPause
from topmast.model.budget import BudgetView
from topmast.model.errors import InvalidInput
from topmast.model.files.changes import changes_of
from topmast.model.job import Band, JobChanges
from topmast.model.timed_quota import TimedQuota
from topmast.routing import NO_VERB, caller_of, guarded_router, needs
from topmast.service.jobs_act import JobsAct
from topmast.service.service import Service

_TEXT: dict[str, Any] = {"type": "string"}
_TARGETS: dict[str, Any] = {
    "jobs": {"type": "array", "items": _TEXT},
    "selector": _TEXT,
    "user": _TEXT,
    "reason": _TEXT,
    "dry_run": {"type": "boolean"},
}
_CHANGES: dict[str, Any] = {
    "priority": {**_TEXT, "enum": [band.name.lower() for band in Band]},
    "time_limit_s": {"type": "number", "nullable": True},
    "expected_duration_s": {"type": "number", "nullable": True},
    "max_restarts": {"type": "integer"},
    "preemptible": {"type": "boolean"},
}
_EDIT = {**_TARGETS, "changes": {"type": "object", "properties": _CHANGES}}
_FLEET: dict[str, Any] = {"fleet": {"type": "object"}, "tenants": {"type": "object"}}
_APPLY = {**_FLEET, "base": _TEXT, "reason": _TEXT, "dry_run": {"type": "boolean"}}
_PAUSE = {"user": _TEXT, "reason": _TEXT, "dry_run": {"type": "boolean"}}
_DRAIN = {**_PAUSE, "drain": {"type": "boolean"}}
_MANY = {"tenants": {"type": "array", "items": _TEXT}, "selector": _TEXT}
_QUOTA = {
    **_PAUSE, "quota": {"type": "object", "additionalProperties": {"type": "integer"}},
    "from_s": {"type": "number"}, "until_s": {"type": "number"},
}  # fmt: skip
FLEET_BYTES = 32 * 1024 * 1024
SUMMARIES = {
    "cancel": "Cancel jobs",
    "hold": "Keep jobs from starting until they are released",
    "release": "Let jobs start that are held",
    "suspend": "Stop jobs at their checkpoints, and hold them",
    "resume": "Let jobs go on that are suspended",
    "preempt": "Stop jobs at their checkpoints; they wait again",
    "requeue": "Try jobs anew: those that failed, wait out a delay or run",
    "edit": "Change what jobs ask for; of those that run, from the next attempt on",
}
"""By verb."""


def routes(service: Service) -> APIRouter:
    """Routes below /jobs that act on many, and those below /fleet."""
    router = guarded_router()
    for verb, summary in SUMMARIES.items():
        router.add_api_route(
            f"/jobs/{verb}",
            _actor(service, verb),
            methods=["POST"],
            tags=["jobs"],
            summary=summary,
            name=f"{verb} jobs",
            **takes(_EDIT if verb == "edit" else _TARGETS),
            **returns(JobsActed),
        )
    _fleet(router, service)
    _tenants(router, service)
    return router


def _tenants(router: APIRouter, service: Service) -> None:
    @router.post(
        "/tenants/pause",
        tags=["jobs"],
        summary="Let no job of tenants start",
        **takes({**_DRAIN, **_MANY}),
        **returns(TenantPause, listed="tenants"),
    )
    @needs(Permission.JOBS_OTHERS, verb="pause-tenant")
    async def pause_many(request: Request) -> Response:
        def put(body: Body, *, dry_run: bool) -> Awaitable[tuple[TenantPause, ...]]:
            return service.pause_tenants(
                caller_of(request), texts(body, "tenants"), text(body, "selector"), user(body),
                text(body, "reason"), drain=truth(body, "drain"), dry_run=dry_run,
            )  # fmt: skip

        found, _ = await acted(request, {**_DRAIN, **_MANY}, put)
        return answer({"tenants": found})

    @router.post(
        "/tenants/resume",
        tags=["jobs"],
        summary="Let the jobs of tenants start again",
        **takes({**_PAUSE, **_MANY}),
        **returns(TenantPause, listed="tenants"),
    )
    @needs(Permission.JOBS_OTHERS, verb="resume-tenant")
    async def resume_many(request: Request) -> Response:
        def put(body: Body, *, dry_run: bool) -> Awaitable[tuple[TenantPause, ...]]:
            return service.resume_tenants(
                caller_of(request), texts(body, "tenants"), text(body, "selector"), user(body),
                text(body, "reason"), dry_run=dry_run,
            )  # fmt: skip

        found, _ = await acted(request, {**_PAUSE, **_MANY}, put)
        return answer({"tenants": found})

    _one_tenant(router, service)
    _quotas(router, service)


def _one_tenant(router: APIRouter, service: Service) -> None:
    @router.post(
        "/tenants/{tenant}/pause",
        tags=["jobs"],
        summary="Let no job of a tenant start",
        **takes(_DRAIN),
        **returns(TenantPause),
    )
    @needs(Permission.JOBS_OTHERS, verb="pause-tenant")
    async def pause(tenant: str, request: Request) -> Response:
        def put(body: Body, *, dry_run: bool) -> Awaitable[TenantPause]:
            return service.pause_tenant(
                caller_of(request), tenant, user(body), text(body, "reason"),
                drain=truth(body, "drain"), dry_run=dry_run,
            )  # fmt: skip

        found, _ = await acted(request, _DRAIN, put)
        return answer(found)

    @router.post(
        "/tenants/{tenant}/resume",
        tags=["jobs"],
        summary="Let the jobs of a tenant start again",
        **takes(_PAUSE),
        **returns(TenantPause),
    )
    @needs(Permission.JOBS_OTHERS, verb="resume-tenant")
    async def resume(tenant: str, request: Request) -> Response:
        def put(body: Body, *, dry_run: bool) -> Awaitable[TenantPause]:
            return service.resume_tenant(
                caller_of(request), tenant, user(body), text(body, "reason"), dry_run=dry_run
            )

        found, _ = await acted(request, _PAUSE, put)
        return answer(found)


def _quotas(router: APIRouter, service: Service) -> None:
    @router.get(
        "/budgets",
        tags=["fleet"],
        summary="Budgets of tenants, and what is used of them this month",
        **returns(BudgetView, listed="budgets"),
    )
    @needs(Permission.USAGE_VIEW)
    async def budgets(request: Request) -> Response:
        return answer({"budgets": await service.list_budgets(caller_of(request))})

    @router.post(
        "/tenants/{tenant}/quota",
        tags=["fleet"],
        summary="Give a tenant another quota for a while",
        **takes(_QUOTA, ("quota", "until_s")),
        **returns(QuotaActed),
    )
    @needs(Permission.FLEET_EDIT, verb="set-quota")
    async def quota(tenant: str, request: Request) -> Response:
        def put(body: Body, *, dry_run: bool) -> Awaitable[QuotaActed]:
            until_s = number(body, "until_s")
            wanted = TimedQuota(
                tenant, _gpus_by_model(body) if "quota" in body else {},
                number(body, "from_s") or 0.0, math.inf if until_s is None else until_s,
                user(body), text(body, "reason"),
            )  # fmt: skip
            return service.set_quota(caller_of(request), wanted, dry_run=dry_run)

        checks = (_gpus_by_model, partial(ends, remedy="when the quota ends"))
        found, _ = await acted(request, _QUOTA, put, checks)
        return answer(found)

    @router.post(
        "/tenants/{tenant}/quota/end",
        tags=["fleet"],
        summary="Give a tenant the quota of the fleet again",
        **takes(_PAUSE),
        **returns(QuotaActed),
    )
    @needs(Permission.FLEET_EDIT, verb="end-quota")
    async def end_quota(tenant: str, request: Request) -> Response:
        def put(body: Body, *, dry_run: bool) -> Awaitable[QuotaActed]:
            return service.end_quota(
                caller_of(request), tenant, user(body), text(body, "reason"), dry_run=dry_run
            )

        found, _ = await acted(request, _PAUSE, put)
        return answer(found)


def _changes(body: dict[str, Any]) -> JobChanges:
    return changes_of(body.get("changes"))


def _gpus_by_model(body: dict[str, Any]) -> dict[str, int]:
    """A quota, as far as its types go. Raises InvalidInput."""
    quota = body.get("quota")
    counts = list(quota.values()) if isinstance(quota, dict) else [None]
    if not all(isinstance(count, int) and not isinstance(count, bool) for count in counts):
        remedy = "GPUs by model, such as {H100: 16}"
        raise InvalidInput("must be whole numbers by name", field="quota", remedy=remedy)
    return dict(quota or {})


def _fleet(router: APIRouter, service: Service) -> None:
    @router.get(
        "/fleet", tags=["fleet"], summary="The fleet as a fleet file, and its version",
        **returns(FleetView),
    )  # fmt: skip
    @needs(Permission.FLEET_EDIT)
    async def fleet(request: Request) -> Response:
        return answer(await service.fleet(caller_of(request)))

    @router.post(
        "/fleet/diff",
        tags=["fleet"],
        summary="What another fleet file, or other tenants, would change",
        **takes(_FLEET),
        **returns(FleetDiff),
    )
    @needs(Permission.FLEET_EDIT, verb=NO_VERB)
    async def diff(request: Request) -> Response:
        diff = partial(service.fleet_diff, caller_of(request))
        return answer(await diff(await read_object(request, _FLEET, FLEET_BYTES, beside=diff)))

    @router.post(
        "/fleet/apply",
        tags=["fleet"],
        summary="Change the fleet, or its tenants, while the server runs",
        **takes(_APPLY),
        **returns(FleetDiff),
    )
    @needs(Permission.FLEET_EDIT, verb="fleet-apply")
    async def apply(request: Request) -> Response:
        def put(body: Body, *, dry_run: bool) -> Awaitable[FleetDiff]:
            base = text(body, "base") if "base" in body else None
            return service.fleet_apply(
                caller_of(request), body, base, text(body, "reason"), dry_run=dry_run
            )

        found, _ = await acted(request, _APPLY, put, limit_bytes=FLEET_BYTES)
        return answer(found)


def _actor(service: Service, verb: str) -> Callable[..., Awaitable[Response]]:
    @needs(Permission.JOBS_CANCEL if verb == "cancel" else Permission.JOBS_EDIT, verb=verb)
    async def act(request: Request) -> Response:
        edits, caller = verb == "edit", caller_of(request)

        def wanted(body: dict[str, Any]) -> JobsAct:
            return JobsAct(
                verb, texts(body, "jobs"), text(body, "selector"), user(body),
                text(body, "reason"), truth(body, "dry_run"),
            )  # fmt: skip

        async def check(body: dict[str, Any]) -> None:
            await service.check_jobs_meant(caller, wanted(body))

        body = await read_object(
            request, _EDIT if edits else _TARGETS, BULK_BYTES, (_changes,) if edits else (), check
        )
        changes = _changes(body) if edits else JobChanges()
        return answer(await service.act_on_jobs(caller, replace(wanted(body), changes=changes)))

    return act
