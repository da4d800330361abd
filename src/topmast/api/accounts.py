"""Routes of tokens, service accounts, roles and the audit log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from topmast.accounts import Binding
from topmast.api.bodies import Body, read_object
from topmast.api.wire import (
    WHY,
    answer,
    number,
    returns,
    takes,
    text,
    texts,
    truth,
    whole_number,
    why,
)
from topmast.model import account_views as v
from topmast.model.access import TOP, Permission, Role
from topmast.model.errors import InvalidInput
from topmast.ports import ActFilter
from topmast.routing import caller_of, guarded_router, needs
from topmast.service.access import Why
from topmast.service.service import Service

T = TypeVar("T")
_TEXT: dict[str, Any] = {"type": "string"}
_TOKEN = {
    "label": _TEXT,
    "account": _TEXT,
    "ttl_s": {"type": "number"},
    "scopes": {"type": "array", "items": _TEXT},
}
_ACCOUNT = {"name": _TEXT, "tenant": _TEXT, **WHY}
_NAMED = ("subject", "role", "tenant")
_Limit = Annotated[int, Query(ge=1, le=1000)]
_MORE = {"next_cursor": {"type": ["string", "null"]}}
_ROLE = {**dict.fromkeys(_NAMED, _TEXT), **WHY}


def routes(service: Service, *, login: bool) -> APIRouter:
    """All routes about accounts; ``login``: whether the server asks for one."""
    router = guarded_router()

    @router.get("/whoami", tags=["accounts"], summary="The own name and roles",
                **returns(v.WhoAmI))  # fmt: skip
    @needs(Permission.SELF, any_token=True)
    async def whoami(request: Request) -> Response:
        return answer(service.directory.whoami(caller_of(request), login=login))

    _tokens(router, service)
    _accounts(router, service)
    _roles(router, service)
    _audit(router, service)
    return router


def _tokens(router: APIRouter, service: Service) -> None:
    @router.get("/tokens", tags=["accounts"], summary="Own tokens, and those of accounts",
                **returns(v.TokenView, listed="tokens", more=_MORE))  # fmt: skip
    @needs(Permission.SELF)
    async def tokens(request: Request, limit: _Limit = 1000, cursor: str = "") -> Response:
        after = _place(cursor, lambda at, number: (float(at), number), 2)
        find = partial(service.directory.tokens, caller_of(request), after, limit)
        return _page(service, request, "tokens", find, limit, lambda one: (one.created_s, one.id))

    @router.post(
        "/tokens",
        tags=["accounts"],
        summary="Make a token of the own, or of a service account",
        **takes(_TOKEN),
        **returns(v.NewToken, 201),
    )
    @needs(Permission.SELF, verb="create-token")
    async def create_token(request: Request) -> Response:
        caller = caller_of(request)

        async def check(body: Body) -> None:
            service.directory.check_token(caller, *_wanted(body))

        body = await read_object(request, _TOKEN, beside=check)
        made = await service.directory.create_token(caller, text(body, "label"), *_wanted(body))
        return answer(made, 201)

    @router.delete("/tokens/{token}", tags=["accounts"], summary="Revoke a token",
                   **returns(v.TokenView))  # fmt: skip
    @needs(Permission.SELF, verb="revoke-token")
    async def revoke_token(
        token: str, request: Request, reason: str = "", dry_run: bool = False
    ) -> Response:
        wanted = why({"reason": reason, "dry_run": dry_run})
        return answer(await service.directory.revoke_token(caller_of(request), token, wanted))


def _accounts(router: APIRouter, service: Service) -> None:
    @router.get("/accounts", tags=["accounts"], summary="List service accounts",
                **returns(v.ServiceAccountView, listed="accounts", more=_MORE))  # fmt: skip
    @needs(Permission.ACCOUNTS_VIEW)
    async def accounts(request: Request, limit: _Limit = 1000, cursor: str = "") -> Response:
        find = partial(service.directory.accounts, caller_of(request), cursor, limit)
        return _page(service, request, "accounts", find, limit, lambda one: (one.name,))

    @router.post(
        "/accounts",
        tags=["accounts"],
        summary="Make a service account",
        **takes(_ACCOUNT, ("name", "tenant")),
        **returns(v.ServiceAccountView, 201),
    )
    @needs(Permission.ACCOUNTS_EDIT, verb="add-account")
    async def add_account(request: Request) -> Response:
        caller = caller_of(request)

        async def check(body: Body) -> None:
            service.directory.check_account(caller, text(body, "name"), text(body, "tenant"))

        body = await read_object(request, _ACCOUNT, beside=check)
        made = await service.directory.add_account(
            caller, text(body, "name"), text(body, "tenant"), why(body)
        )
        return answer(made, 200 if truth(body, "dry_run") else 201)

    @router.delete("/accounts/{name}", tags=["accounts"], summary="Remove a service account",
                   **returns(v.ServiceAccountView))  # fmt: skip
    @needs(Permission.ACCOUNTS_EDIT, verb="remove-account")
    async def remove_account(
        name: str, request: Request, reason: str = "", dry_run: bool = False
    ) -> Response:
        wanted = why({"reason": reason, "dry_run": dry_run})
        return answer(await service.directory.remove_account(caller_of(request), name, wanted))


def _roles(router: APIRouter, service: Service) -> None:
    @router.get("/roles", tags=["accounts"], summary="List roles",
                **returns(v.RoleView, listed="roles", more=_MORE))  # fmt: skip
    @needs(Permission.ACCOUNTS_VIEW)
    async def roles(request: Request, limit: _Limit = 1000, cursor: str = "") -> Response:
        after = _place(cursor, lambda of, role, at: Binding(of, Role(role), at.strip(TOP)), 3)
        find = partial(service.directory.roles, caller_of(request), after, limit)
        return _page(
            service, request, "roles", find, limit, lambda one: (one.subject, one.role, one.tenant)
        )

    @router.post("/roles/grant", tags=["accounts"], summary="Give a role at a tenant",
                 **takes(_ROLE, _NAMED), **returns(v.RoleView, 201))  # fmt: skip
    @needs(Permission.ACCOUNTS_EDIT, verb="grant-role")
    async def grant(request: Request) -> Response:
        subject, role, tenant, wanted = await _role(service, request, gives=True)
        given = await service.directory.grant(caller_of(request), subject, role, tenant, wanted)
        return answer(given, 200 if wanted.dry_run else 201)

    @router.post("/roles/revoke", tags=["accounts"], summary="Take a role away",
                 **takes(_ROLE, _NAMED), **returns(v.RoleView))  # fmt: skip
    @needs(Permission.ACCOUNTS_EDIT, verb="revoke-role")
    async def revoke(request: Request) -> Response:
        asked = await _role(service, request, gives=False)
        return answer(await service.directory.revoke(caller_of(request), *asked))


def _page(
    service: Service,
    request: Request,
    name: str,
    find: Callable[[], Sequence[T]],
    limit: int,
    place: Callable[[T], tuple[Any, ...]],
) -> Response:
    """A page of a list, and what asks for the next one: the ``place`` of the last in the order.

    The caller pays for its rows, and for the time that it takes to find them.
    """
    caller, limits = caller_of(request), service.limits
    limits.take(caller, "list")
    with limits.paid(caller) as timer:
        found = timer.run(find)
    limits.charge_rows(caller, len(found))
    cursor = " ".join(map(str, place(found[-1]))) if len(found) == limit else None
    return answer({name: found, "next_cursor": cursor})


def _place(cursor: str, read: Callable[..., T], parts: int) -> T | None:
    """The place that a cursor tells; None for the first page. Raises InvalidInput."""
    if not cursor:
        return None
    try:
        return read(*cursor.split(" ", parts - 1))
    except (TypeError, ValueError):
        remedy = "give next_cursor of the page before"
        raise InvalidInput("no place in this list", field="cursor", remedy=remedy) from None


def _wanted(body: Body) -> tuple[str, float | None, tuple[str, ...] | None]:
    """The account of a new token, how long it lasts, and its scopes."""
    scopes = texts(body, "scopes") if "scopes" in body else None
    return text(body, "account"), number(body, "ttl_s"), scopes


async def _role(service: Service, request: Request, *, gives: bool) -> tuple[str, str, str, Why]:
    def named(body: Body) -> tuple[str, str, str]:
        return text(body, "subject"), text(body, "role"), text(body, "tenant")

    async def check(body: Body) -> None:
        service.directory.check_role(caller_of(request), *named(body), gives=gives)

    body = await read_object(request, _ROLE, beside=check)
    return *named(body), why(body)


def _audit(router: APIRouter, service: Service) -> None:
    @router.get("/audit", tags=["accounts"], summary="The audit log, the newest line first",
                **returns(v.ActPage))  # fmt: skip
    @needs(Permission.AUDIT_VIEW)
    async def audit(
        request: Request,
        actor: str = "",
        verb: str = "",
        object: str = "",
        tenant: str = "",
        outcome: str = "",
        since: float | None = None,
        until: float | None = None,
        cursor: str = "",
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> Response:
        wanted = ActFilter(
            actor, verb, object, outcome, (tenant,) if tenant else None, since, until,
            whole_number(cursor, "cursor") if cursor else None, limit,
        )  # fmt: skip
        return answer(await service.directory.audit(caller_of(request), wanted))
