"""Routes of the user's day: submit, list, look, explain, cancel, read logs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from topmast.api.bodies import read_bytes, read_object, size_bytes
from topmast.api.large_bodies import BULK_BYTES
from topmast.api.wire import (
    WHY,
    Natural,
    accepts,
    answer,
    idempotency_key,
    replies,
    returns,
    takes,
    text,
    user,
    why,
)
from topmast.model import views as v
from topmast.model.access import Permission
from topmast.model.act_views import JobFileView
from topmast.model.errors import InvalidInput, NotFound
from topmast.routing import NO_VERB, caller_of, guarded_router, needs
from topmast.service.blobs import MAX_BYTES
from topmast.service.service import Service

ORDERS = ("newest", "queue")
_JOB: dict[str, Any] = {
    "type": "object",
    "description": "A job file as a JSON object; see the reference of job files.",
}
_TEXT: dict[str, Any] = {"type": "string"}
_BYTES: dict[str, Any] = {"type": "string", "format": "binary"}
_ONE = {"job": _JOB, "user": _TEXT, "workdir": _TEXT}
_MANY = {"jobs": {"type": "array", "items": _JOB}, "user": _TEXT}
_CANCEL = {"user": _TEXT, **WHY}
_UPLOADED = {"type": "object", "properties": {"workdir": _TEXT}, "required": ["workdir"]}


async def _one(service: Service, request: Request, *, is_sent: bool) -> dict[str, Any]:
    """The body with a job. Raises InvalidInput, with all that is wrong.

    ``is_sent``: the job is submitted, so that its work folder has to be there.
    """

    async def check(body: dict[str, Any]) -> None:
        workdir = text(body, "workdir") if is_sent else None
        await service.check_job(caller_of(request), body.get("job"), user(body), workdir)

    return await read_object(request, _ONE, beside=check)


def routes(service: Service) -> APIRouter:
    """All routes under /jobs and /workdirs."""
    router = guarded_router()

    @router.post(
        "/jobs",
        tags=["jobs"],
        summary="Submit a job; the answer comes when it is durable",
        **takes(_ONE, ("job",)),
        **returns(v.Receipt, 201),
    )
    @needs(Permission.JOBS_SUBMIT, verb="submit")
    async def submit(request: Request) -> Response:
        body = await _one(service, request, is_sent=True)
        receipt = await service.submit(
            caller_of(request), body.get("job"), user(body), text(body, "workdir"),
            idempotency_key(request), size_bytes(request),
        )  # fmt: skip
        return answer(receipt, 201)

    _many_jobs(router, service)

    @router.post(
        "/jobs/dry-run",
        tags=["jobs"],
        summary="Where a job would run, without submitting it",
        **takes(_ONE, ("job",)),
        **returns(v.Explanation),
    )
    @needs(Permission.JOBS_SUBMIT, verb=NO_VERB)
    async def dry_run(request: Request) -> Response:
        body = await _one(service, request, is_sent=False)
        return answer(await service.dry_run(caller_of(request), body.get("job"), user(body)))

    @router.get("/jobs", tags=["jobs"], summary="List jobs", **returns(v.JobPage))
    @needs(Permission.JOBS_VIEW)
    async def jobs(
        request: Request,
        state: str = "",
        tenant: str = "",
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        cursor: str = "",
        order: Annotated[str, Query(json_schema_extra={"enum": ["", *ORDERS]})] = "",
        selector: str = "",
        fold: bool = False,
    ) -> Response:
        if order not in ("", *ORDERS):
            raise InvalidInput(
                f"{order!r} is no order", field="order", remedy="write newest or queue"
            )
        states = [name for name in state.split(",") if name]
        page = await service.jobs(
            caller_of(request), states, tenant, limit, cursor, order == "queue", selector, fold
        )
        return answer(page)

    _one_job(router, service)
    _workdirs(router, service)
    return router


def _many_jobs(router: APIRouter, service: Service) -> None:
    @router.post(
        "/jobs/bulk",
        tags=["jobs"],
        summary="Submit many jobs, all or none",
        **takes(_MANY, ("jobs",)),
        **returns(v.BulkReceipt, 201),
    )
    @needs(Permission.JOBS_SUBMIT, verb="submit")
    async def submit_many(request: Request) -> Response:
        async def check(body: dict[str, Any]) -> None:
            jobs, long = body.get("jobs"), size_bytes(request)
            await service.check_jobs(caller_of(request), jobs, user(body), long)

        body = await read_object(request, _MANY, BULK_BYTES, beside=check)
        receipt = await service.submit_many(
            caller_of(request), body.get("jobs"), user(body), idempotency_key(request),
            size_bytes(request),
        )  # fmt: skip
        return answer(receipt, 201)


def _one_job(router: APIRouter, service: Service) -> None:
    @router.get("/jobs/{job}", tags=["jobs"], summary="One job", **returns(v.JobView))
    @needs(Permission.JOBS_VIEW)
    async def job(job: str, request: Request) -> Response:
        return answer(await service.job(caller_of(request), job))

    @router.get(
        "/jobs/{job}/story",
        tags=["jobs"],
        summary="A job with its history and attempts",
        **returns(v.JobStory),
    )
    @needs(Permission.JOBS_VIEW)
    async def story(job: str, request: Request) -> Response:
        return answer(await service.story(caller_of(request), job))

    @router.get(
        "/jobs/{job}/explain",
        tags=["jobs"],
        summary="Why a job waits, or runs where it runs",
        **returns(v.Explanation),
    )
    @needs(Permission.JOBS_VIEW)
    async def explain(job: str, request: Request) -> Response:
        return answer(await service.explain(caller_of(request), job))

    @router.get(
        "/jobs/{job}/spec",
        tags=["jobs"],
        summary="The job file of a job, which can be submitted again",
        **returns(JobFileView),
    )
    @needs(Permission.JOBS_VIEW)
    async def spec(job: str, request: Request) -> Response:
        return answer(await service.job_file(caller_of(request), job))

    @router.get(
        "/jobs/{job}/logs",
        tags=["jobs"],
        summary="A part of one task's output",
        **replies(200, {"text/plain": {"schema": _BYTES}}),
    )
    @needs(Permission.JOBS_VIEW)
    async def logs(
        request: Request,
        job: str,
        task: Natural = 0,
        attempt: Natural | None = None,
        offset: Natural = 0,
        limit: Annotated[int, Query(ge=1, le=1 << 20)] = 65_536,
    ) -> Response:
        chunk = await service.log(caller_of(request), job, task, attempt, offset, limit)
        headers = {
            "X-Next-Offset": str(chunk.next_offset),
            "X-Attempt": str(chunk.attempt),
            "X-Complete": str(int(chunk.complete)),
        }
        return Response(chunk.data, media_type="text/plain", headers=headers)

    _cancel(router, service)


def _cancel(router: APIRouter, service: Service) -> None:
    @router.post(
        "/jobs/{job}/cancel",
        tags=["jobs"],
        summary="Cancel a job",
        **takes(_CANCEL),
        **returns(v.JobView, 202),
    )
    @needs(Permission.JOBS_CANCEL, verb="cancel")
    async def cancel(job: str, request: Request) -> Response:
        async def check(body: dict[str, Any]) -> None:
            await service.job(caller_of(request), job)

        body = await read_object(request, _CANCEL, beside=check)
        wanted = why(body)
        view = await service.cancel(caller_of(request), job, user(body), wanted)
        return answer(view, 200 if wanted.dry_run else 202)


def _workdirs(router: APIRouter, service: Service) -> None:
    @router.put(
        "/workdirs/{digest}",
        tags=["jobs"],
        summary="Upload a snapshot of a workdir",
        **accepts({"application/gzip": {"schema": _BYTES}}, required=True),
        **replies(201, {"application/json": {"schema": _UPLOADED}}),
    )
    @needs(Permission.JOBS_SUBMIT, verb="upload")
    async def put_workdir(digest: str, request: Request) -> Response:
        data = await read_bytes(request, MAX_BYTES)
        new = await service.put_workdir(caller_of(request), digest, bytes(data))
        return answer({"workdir": digest}, 201 if new else 200)

    @router.head(
        "/workdirs/{digest}",
        tags=["jobs"],
        summary="Whether the server has a snapshot",
        **replies(200, {}),
    )
    @needs(Permission.JOBS_SUBMIT)
    async def has_workdir(digest: str, request: Request) -> Response:
        if not service.has_workdir(caller_of(request), digest):
            raise NotFound(f"no work folder '{digest}'")
        return Response(status_code=200)
