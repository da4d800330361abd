"""Routes of the profile: what the server decides by."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from topmast.api.bodies import read_object
from topmast.api.wire import answer, returns, takes, text, truth
from topmast.model.access import Permission
from topmast.model.errors import InvalidInput
from topmast.model.system_views import ProfileAct
from topmast.routing import caller_of, guarded_router, needs
from topmast.service.service import Service

_TEXT: dict[str, Any] = {"type": "string"}
_SET = {
    "profile": _TEXT,
    "options": {"type": "object", "additionalProperties": _TEXT},
    "reason": _TEXT,
    "dry_run": {"type": "boolean"},
}


def _check_options(body: dict[str, Any]) -> None:
    """Raises InvalidInput."""
    options = body.get("options", {})
    if not isinstance(options, dict) or not all(isinstance(v, str) for v in options.values()):
        remedy = 'such as {"score.data": "2"}'
        raise InvalidInput("must be texts by name", field="options", remedy=remedy)


def routes(service: Service) -> APIRouter:
    """All routes of the profile."""
    router = guarded_router()

    @router.get("/profile", tags=["system"],
                summary="The profile that decides now, and that of the next leader",
                **returns(ProfileAct))  # fmt: skip
    @needs(Permission.FLEET_VIEW)
    async def show(request: Request) -> Response:
        return answer(await service.profiles.view())

    @router.put("/profile", tags=["system"], summary="Set the profile of the next leader",
                **takes(_SET, ("profile",)), **returns(ProfileAct))  # fmt: skip
    @needs(Permission.FLEET_EDIT, verb="set profile")
    async def put(request: Request) -> Response:
        body = await read_object(request, _SET, checks=(_check_options,))
        found = await service.profiles.set(
            caller_of(request), text(body, "profile"), body.get("options", {}),
            text(body, "reason"), dry_run=truth(body, "dry_run"),
        )  # fmt: skip
        return answer(found)

    return router
