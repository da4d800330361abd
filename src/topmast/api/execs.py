"""Routes of commands beside tasks that run."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from topmast.api.bodies import Body, read_bytes, read_object
from topmast.api.wire import Natural, accepts, answer, returns, takes, texts, truth, whole
from topmast.model.access import Permission
from topmast.model.errors import Unavailable
from topmast.model.exec_views import MOST_BYTES, ExecInput, ExecPage, ExecStarted
from topmast.routing import NO_VERB, caller_of, guarded_router, needs
from topmast.service.execs import LONGEST_WAIT_S, Commands
from topmast.service.service import Service

INPUT_BYTES = 256 * 1024
"""Of one request; more follows in the next."""
_WORDS = {"type": "array", "items": {"type": "string", "maxLength": MOST_BYTES}}
_NUMBER = {"type": "integer"}
_BEGIN: dict[str, Any] = {
    "command": _WORDS, "task": _NUMBER, "tty": {"type": "boolean"}, "rows": _NUMBER,
    "columns": _NUMBER,
}  # fmt: skip
_BYTES: dict[str, Any] = {"type": "string", "format": "binary"}


def routes(service: Service) -> APIRouter:
    """All routes under /jobs/{job}/exec."""
    router = guarded_router()

    @router.post(
        "/jobs/{job}/exec",
        tags=["jobs"],
        summary="Run a command beside a task of a running job",
        **takes(_BEGIN, ("command",)),
        **returns(ExecStarted, 201),
    )
    @needs(Permission.JOBS_EXEC, verb="exec")
    async def begin(job: str, request: Request) -> Response:
        async def check(body: Body) -> None:
            await service.job(caller_of(request), job)

        body = await read_object(request, _BEGIN, beside=check)
        started = await _commands(service).begin(
            caller_of(request), job, texts(body, "command", MOST_BYTES), whole(body, "task", 0),
            tty=truth(body, "tty"), rows=whole(body, "rows", 24),
            columns=whole(body, "columns", 80),
        )  # fmt: skip
        return answer(started, 201)

    @router.get(
        "/jobs/{job}/exec/{id}",
        tags=["jobs"],
        summary="What such a command has written since, once it has",
        **returns(ExecPage),
    )
    @needs(Permission.JOBS_EXEC)
    async def page(
        request: Request,
        job: str,
        id: str,
        stdout: Natural = 0,
        stderr: Natural = 0,
        wait_s: Annotated[float, Query(ge=0, le=LONGEST_WAIT_S)] = 0.0,
    ) -> Response:
        found = await _commands(service).page(caller_of(request), job, id, stdout, stderr, wait_s)
        return answer(found)

    @router.post(
        "/jobs/{job}/exec/{id}/input",
        tags=["jobs"],
        summary="Give such a command input",
        **accepts({"application/octet-stream": {"schema": _BYTES}}, required=False),
        **returns(ExecInput),
    )
    @needs(Permission.JOBS_EXEC, verb=NO_VERB)
    async def write(
        request: Request, job: str, id: str, offset: Natural = 0, last: bool = False
    ) -> Response:
        data = bytes(await read_bytes(request, INPUT_BYTES))
        found = await _commands(service).write(caller_of(request), job, id, offset, data, last=last)
        return answer(found)

    @router.post(
        "/jobs/{job}/exec/{id}/end",
        tags=["jobs"],
        summary="End such a command",
        **returns(ExecPage),
    )
    @needs(Permission.JOBS_EXEC, verb=NO_VERB)
    async def end(job: str, id: str, request: Request) -> Response:
        commands = _commands(service)
        await commands.end(caller_of(request), job, id)
        return answer(ExecPage())

    return router


def _commands(service: Service) -> Commands:
    if service.execs is None:
        raise Unavailable("this server runs no commands beside tasks")
    return service.execs
