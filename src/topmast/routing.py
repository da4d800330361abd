"""What the routes of REST and of the pages share.

Each route declares one permission where it is made, and what it does if it changes something; there
is no route without.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine
from functools import cached_property
from typing import Any, TypeVar

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from topmast.model.access import Caller, Permission
from topmast.model.errors import MOST_TOLD, Forbidden, InvalidInput, TopmastError, refuse_all
from topmast.model.files.fields import nearest

Endpoint = TypeVar("Endpoint", bound=Callable[..., Awaitable[Response]])
NoteRefusal = Callable[[Caller, str, str, str], Awaitable[None]]
"""Counts a refusal, and brings it into the audit log: (caller, verb, path, reason).

Without a reason it is counted only. Raises TooMany.
"""

CALLER = "topmast.caller"
"""Where the guard leaves the caller in the scope of a request."""
REQUEST = "topmast.request"
"""Where the guard leaves the number of a request."""
READS_TAKE = "reads_take"
"""Where the state of an application has parameters that each of its routes takes that reads."""
LOGIN = "/auth/"
"""How the paths of logins begin."""
_HEAD = "topmast.head"
"""Where a request has it that it is one for the head of an answer."""
_DECLARED = "topmast_permission"
_ANY_TOKEN = "topmast_any_token"
_VERB = "topmast_verb"
_SAFE = ("GET", "HEAD")
"""The methods that change nothing."""
NO_VERB = ""
"""What a route declares that changes nothing that the audit log has, whatever its method."""
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Given with every page, and with every answer of a server with login."""


def needs(
    permission: Permission, *, verb: str | None = None, any_token: bool = False
) -> Callable[[Endpoint], Endpoint]:
    """Declare what a caller of a route must be allowed, at one tenant at least.

    The service checks the tenant of the object that the request is about. ``verb``: what the route
    does, in the words of the audit log; a refusal at the door has it as well, so that one filter
    finds both. ``any_token``: a caller may do it with any valid token, whatever its scopes and its
    owner's roles.
    """

    def declare(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, _DECLARED, permission)
        setattr(endpoint, _VERB, verb)
        setattr(endpoint, _ANY_TOKEN, any_token)
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


def declared_verb(endpoint: Callable[..., Any], methods: Collection[str] | None) -> str:
    """The verb that a route declares. Raises TypeError if it may change something, and has none."""
    verb: str | None = getattr(endpoint, _VERB, None)
    is_safe = all(method in _SAFE for method in methods or ())
    if verb is None and declared(endpoint) is not None and not is_safe:
        name = getattr(endpoint, "__qualname__", endpoint)
        raise TypeError(f"the route {name} declares no verb: add verb=... to its @needs")
    return verb or NO_VERB


def asks_for_head(request: Request) -> bool:
    """Whether what a route answers is sent without its body."""
    return bool(request.scope.get(_HEAD, False))


def caller_of(request: Request) -> Caller:
    """The caller that the guard has found."""
    caller: Caller = request.scope[CALLER]
    return caller


class GuardedRoute(APIRoute):
    """A route that refuses callers without its permission, and has refusals audited.

    It refuses what it does not take: a misspelt dry run would be the act, and a misspelt filter all
    that there is. Pages have filters of their own.
    """

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._plain = self.get_route_handler() if self._takes_texts_alone else None
        """With what kinds of routes put around it; None where FastAPI has to look."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler behind the check of the permission."""
        permission = declared(self.endpoint)
        inner = self._call if self._takes_texts_alone else super().get_route_handler()
        any_token = getattr(self.endpoint, _ANY_TOKEN, False)
        verb = declared_verb(self.endpoint, self.methods)

        async def handle(request: Request) -> Response:
            if permission is None:
                self._refuse_unknown(request)
                return await inner(request)
            caller = request.scope.get(CALLER)
            if caller is None:
                raise HTTPException(401, "this route asks for a login")
            try:
                if not (any_token or caller.principal.may_somewhere(permission)):
                    raise caller.principal.forbidden(permission)
                self._refuse_unknown(request)
                return await inner(request)
            except (Forbidden, InvalidInput) as error:
                why = _forbids(error)
                if why or _is_counted(error):
                    note: NoteRefusal = request.app.state.note_refusal
                    # What does nothing that is in the log is named as it was asked for.
                    did = verb or f"{request.method} {self.path}"
                    await note(caller, did, request.url.path, why)
                raise

        return handle

    @cached_property
    def _takes_texts_alone(self) -> bool:
        """Whether the endpoint takes its request and the texts in its path, and nothing else."""
        takes = self.dependant
        others = (
            takes.query_params, takes.header_params, takes.cookie_params,
            takes.body_params, takes.dependencies,
        )  # fmt: skip
        texts = [
            one.field_info.annotation is str and not one.field_info.metadata
            for one in takes.path_params
        ]
        return takes.request_param_name == "request" and all(texts) and not any(others)

    async def _call(self, request: Request) -> Response:
        """Call the endpoint, which asks FastAPI for nothing."""
        given = request.path_params
        texts = {one.name: given[one.alias] for one in self.dependant.path_params}
        found: Response = await self.endpoint(request=request, **texts)
        return found

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether it answers; where it answers GET, it answers HEAD."""
        return super().matches(self._as_get(scope))

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; of an answer to HEAD the server sends no body.

        What FastAPI puts around endpoints that depend on more than texts is passed by where there
        is none: it takes as long as to read a job.
        """
        scope = self._as_get(scope)
        if self._plain is None or scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)
            return
        response = await self._plain(Request(scope, receive, send))
        await response(scope, receive, send)

    def _as_get(self, scope: Scope) -> Scope:
        """A request as the route knows it. A login goes on by GET alone: it works once."""
        is_head = scope["type"] == "http" and scope["method"] == "HEAD"
        if not is_head or "HEAD" in (self.methods or ()) or scope["path"].startswith(LOGIN):
            return scope
        return {**scope, "method": "GET", _HEAD: True}

    def _refuse_unknown(self, request: Request) -> None:
        """Refuse parameters, and a body, that the route does not take. Raises InvalidInput."""
        reads = request.method in _SAFE
        if reads and is_page(request.scope["path"]):
            return
        takes_body = "requestBody" in (self.openapi_extra or {})
        known = [parameter.alias for parameter in self.dependant.query_params]
        among = f"known parameters: {', '.join(known)}" if known else ""
        known += getattr(request.app.state, READS_TAKE, ()) if reads else ()
        names: list[str] = []
        if request.scope["query_string"]:
            names = [name for name, _ in request.query_params.multi_items()]
        other = "it belongs into the body" if takes_body else "leave it out"
        faults = [
            InvalidInput(
                "unknown parameter", field=name[:100], remedy=nearest(name, known) or among or other
            )
            if name not in known
            else InvalidInput("given twice", field=name, remedy="keep one of the two")
            for name in dict.fromkeys(names)
            if name not in known or names.count(name) > 1
        ]
        refuse_all(faults[:MOST_TOLD])
        if reads:
            return
        # A request with a body says so by one of these.
        length = request.headers.get("content-length", "0")
        if not takes_body and (length != "0" or "transfer-encoding" in request.headers):
            remedy = among or "send none"
            raise InvalidInput("this route takes no body", field="body", remedy=remedy)


def _forbids(error: Forbidden | InvalidInput) -> str:
    """What the audit log is to hold of an error: what a role forbids, and it has not yet."""
    if isinstance(error, Forbidden):
        return "" if error.is_noted else error.message
    return next((one.conceals for one in (error, *error.more) if one.conceals), "")


def _is_counted(error: Forbidden | InvalidInput) -> bool:
    """Whether it is counted whatever it conceals: so the limit tells nothing of what is there."""
    return isinstance(error, InvalidInput) and any(one.may_conceal for one in (error, *error.more))


class PageRouter(APIRouter):
    """The routes of pages."""

    failure: Callable[[Request, TopmastError], Response]
    """Draws a page that says what went wrong, for paths that no route has as well."""


def is_page(path: str) -> bool:
    """Whether a path is one that people open, and programs do not."""
    return not path.startswith("/api/")


def shows_pages(method: str, path: str, accept: str) -> bool:
    """Whether a browser asks for a whole page, to show it to a person."""
    return method == "GET" and "text/html" in accept and is_page(path)


def guarded_router() -> APIRouter:
    """A router with routes that each declare a permission."""
    return APIRouter(route_class=GuardedRoute)
