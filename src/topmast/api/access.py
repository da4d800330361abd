"""One permission for each route, declared where the route is; there is no route without."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from topmast.model.access import Caller, Permission
from topmast.model.errors import Forbidden

Endpoint = TypeVar("Endpoint", bound=Callable[..., Awaitable[Response]])
NoteRefusal = Callable[[Caller, str, str, str], Awaitable[None]]
"""Brings a refusal into the audit log: (caller, verb, path, reason). Raises TooMany."""

CALLER = "topmast.caller"
"""Where the guard leaves the caller in the scope of a request."""
REQUEST = "topmast.request"
"""Where the guard leaves the number of a request."""
_DECLARED = "topmast_permission"


def needs(permission: Permission) -> Callable[[Endpoint], Endpoint]:
    """Declare what a caller of a route must be allowed, at one tenant at least.

    The service checks the tenant of the object that the request is about.
    """

    def declare(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, _DECLARED, permission)
        return endpoint

    return declare


def open_to_all(endpoint: Endpoint) -> Endpoint:
    """Declare that a route takes part in logging in, so that no login can be asked for."""
    setattr(endpoint, _DECLARED, None)
    return endpoint


def declared(endpoint: Callable[..., Any]) -> Permission | None:
    """What a route declares: None is open to all. Raises TypeError if it says nothing."""
    if not hasattr(endpoint, _DECLARED):
        name = getattr(endpoint, "__qualname__", endpoint)
        raise TypeError(f"the route {name} declares no permission: add @needs(Permission...)")
    found: Permission | None = getattr(endpoint, _DECLARED)
    return found


def caller_of(request: Request) -> Caller:
    """The caller that the guard has found."""
    caller: Caller = request.scope[CALLER]
    return caller


class GuardedRoute(APIRoute):
    """A route that refuses callers without its permission, and has refusals audited."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler behind the check of the permission."""
        inner, permission = super().get_route_handler(), declared(self.endpoint)

        async def handle(request: Request) -> Response:
            if permission is None:
                return await inner(request)
            caller = request.scope.get(CALLER)
            if caller is None:
                raise HTTPException(401, "this route asks for a login")
            try:
                if not caller.principal.may_somewhere(permission):
                    subject = caller.principal.subject
                    raise Forbidden(f"{subject} has no role with the permission {permission}")
                return await inner(request)
            except Forbidden as error:
                note: NoteRefusal = request.app.state.note_refusal
                await note(caller, f"{request.method} {self.path}", request.url.path, str(error))
                raise

        return handle


def guarded_router() -> APIRouter:
    """A router with routes that each declare a permission."""
    return APIRouter(route_class=GuardedRoute)
