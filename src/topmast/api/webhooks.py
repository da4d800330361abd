"""Routes of webhooks."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from topmast.api.bodies import read_object
from topmast.api.wire import WHY, answer, returns, takes, why
from topmast.model.access import Permission
from topmast.model.errors import Unavailable
from topmast.model.webhooks import EVENTS, TEMPLATES, WebhookView
from topmast.routing import caller_of, guarded_router, needs
from topmast.service.service import Service
from topmast.service.webhooks import Webhooks

_TEXT: dict[str, Any] = {"type": "string"}
_WEBHOOK = {
    "url": _TEXT,
    "secret": _TEXT,
    "events": {"type": "array", "items": {**_TEXT, "enum": list(EVENTS)}},
    "tenants": {"type": "array", "items": _TEXT},
    "labels": {"type": "object", "additionalProperties": _TEXT},
    "template": {**_TEXT, "enum": list(TEMPLATES)},
}


def routes(service: Service) -> APIRouter:
    """All routes under /webhooks."""
    router = guarded_router()

    def webhooks() -> Webhooks:
        if service.webhooks is None:
            raise Unavailable("this server tells no webhooks")
        return service.webhooks

    @router.get("/webhooks", tags=["webhooks"], summary="All webhooks, and how they go",
                **returns(WebhookView, listed="webhooks"))  # fmt: skip
    @needs(Permission.NOTIFY_EDIT)
    async def listed(request: Request) -> Response:
        return answer({"webhooks": await webhooks().listed(caller_of(request))})

    @router.put("/webhooks/{name}", tags=["webhooks"], summary="Add a webhook, or change it",
                **takes({**_WEBHOOK, **WHY}, ("url",)), **returns(WebhookView))  # fmt: skip
    @needs(Permission.NOTIFY_EDIT, verb="put webhook")
    async def put(name: str, request: Request) -> Response:
        hooks = webhooks()

        def check(body: dict[str, Any]) -> None:
            hooks.read(name, {field: value for field, value in body.items() if field in _WEBHOOK})

        body = await read_object(request, (*_WEBHOOK, *WHY), checks=(why, check))
        wanted = why({field: body.pop(field) for field in WHY if field in body})
        return answer(await hooks.put(caller_of(request), name, body, wanted))

    @router.delete("/webhooks/{name}", tags=["webhooks"], summary="Remove a webhook",
                   **returns(WebhookView))  # fmt: skip
    @needs(Permission.NOTIFY_EDIT, verb="remove webhook")
    async def remove(
        name: str, request: Request, reason: str = "", dry_run: bool = False
    ) -> Response:
        wanted = why({"reason": reason, "dry_run": dry_run})
        return answer(await webhooks().remove(caller_of(request), name, wanted))

    @router.post("/webhooks/{name}/test", tags=["webhooks"], summary="Send a message at once",
                 **takes({}), **returns(WebhookView))  # fmt: skip
    @needs(Permission.NOTIFY_EDIT, verb="test webhook")
    async def test(name: str, request: Request) -> Response:
        await read_object(request, {})
        return answer(await webhooks().test(caller_of(request), name))

    return router
