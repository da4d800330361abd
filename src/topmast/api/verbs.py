"""Routes of what people do to many jobs at once, by id or by selector."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from topmast.api.access import caller_of, guarded_router, needs
from topmast.api.bodies import BULK_BYTES, read_object
from topmast.api.wire import answer, returns, takes, text, texts, truth
from topmast.model.access import Permission
from topmast.model.act_views import JobsActed
from topmast.model.files.changes import changes_of
from topmast.model.job import Band, JobChanges
from topmast.service.service import Service
from topmast.service.verbs import JobsAct

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
    "max_restarts": {"type": "integer"},
    "preemptible": {"type": "boolean"},
}
_EDIT = {**_TARGETS, "changes": {"type": "object", "properties": _CHANGES}}
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
    """All routes below /jobs that act on many."""
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
    return router


def _actor(service: Service, verb: str) -> Callable[..., Awaitable[Response]]:
    @needs(Permission.JOBS_CANCEL if verb == "cancel" else Permission.JOBS_EDIT)
    async def act(request: Request) -> Response:
        body = await read_object(request, _EDIT if verb == "edit" else _TARGETS, BULK_BYTES)
        wanted = JobsAct(
            verb, texts(body, "jobs"), text(body, "selector"), text(body, "user"),
            text(body, "reason"), truth(body, "dry_run"),
            changes_of(body.get("changes")) if verb == "edit" else JobChanges(),
        )  # fmt: skip
        return answer(await service.act_on_jobs(caller_of(request), wanted))

    return act
