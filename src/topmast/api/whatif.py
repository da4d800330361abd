"""Routes of what-ifs: begin one, and look how far it is."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response

from topmast.api.bodies import read_object
from topmast.api.wire import answer, returns, takes
from topmast.model.access import Permission
from topmast.model.errors import InvalidInput
from topmast.model.whatif_views import WhatIfAsk, WhatIfView
from topmast.routing import caller_of, guarded_router, needs
from topmast.service.service import Service

_COUNTS = {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}}
_ASK: dict[str, Any] = {
    "for_s": {"type": "number"},
    "add_hosts": _COUNTS,
    "quotas": _COUNTS,
    "profile": {"type": "string"},
    "lose_regions": {"type": "array", "items": {"type": "string"}},
    "jobs": {"type": "object", "additionalProperties": {"type": "object"}},
}


def routes(service: Service) -> APIRouter:
    """All routes about what-ifs."""
    router = guarded_router()

    @router.post(
        "/whatif", tags=["fleet"],
        summary="Run the system ahead twice, as it is and with something changed",
        **takes(_ASK), **returns(WhatIfView, 202),
    )  # fmt: skip
    @needs(Permission.FLEET_EDIT)
    async def start(request: Request) -> Response:
        body = await read_object(request, _ASK)
        try:
            asked = msgspec.convert(body, WhatIfAsk)
        except msgspec.ValidationError as error:
            raise InvalidInput(str(error), field="body") from None
        return answer(await service.start_whatif(caller_of(request), asked), 202)

    @router.get(
        "/whatif/{number}", tags=["fleet"], summary="A what-if on its way, or its result",
        **returns(WhatIfView),
    )  # fmt: skip
    @needs(Permission.FLEET_EDIT)
    async def show(number: str, request: Request) -> Response:
        return answer(service.whatif(caller_of(request), number))

    return router
