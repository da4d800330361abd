"""The methods of a client about tokens, service accounts, roles and the audit log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import httpx
import msgspec

from topmast.client.transport import Transport, path_of, why
from topmast.model.account_views import (
    ActPage,
    DeviceLogin,
    NewToken,
    RoleView,
    ServiceAccountView,
    TokenView,
    WhoAmI,
)
from topmast.model.errors import NotFound

AUTH = "/auth"
PAGE = 1_000
T = TypeVar("T")
PENDING = 202
_JSON = {"Content-Type": "application/json"}


class AccountsCalls:
    """A method for each route of accounts."""

    _transport: Transport

    def whoami(self) -> WhoAmI:
        """The own name and roles, as the server knows them."""
        return self._transport.get(WhoAmI, "/whoami")

    def begin_login(self) -> DeviceLogin:
        """Ask the server for a code that a person enters at its provider, on any device."""
        answer = self._login("/device", {}, repeatable=False)
        return self._transport.decoded(DeviceLogin, answer)

    def finish_login(self, login: DeviceLogin) -> NewToken | None:
        """The token of a login; None as long as nothing has confirmed it."""
        answer = self._login("/device/token", {"device": login.device}, repeatable=False)
        if answer.status_code == PENDING:
            return None
        return self._transport.decoded(NewToken, answer)

    def logout(self) -> None:
        """Make the token in use good for nothing."""
        self._login("/logout", {})

    def _login(self, path: str, body: object, *, repeatable: bool = True) -> httpx.Response:
        """The answer of a route that servers with logins alone have. Raises NotFound."""
        try:
            return self._transport.send(
                "POST", path, content=msgspec.json.encode(body), headers=_JSON,
                repeatable=repeatable, prefix=AUTH,
            )  # fmt: skip
        except NotFound as error:
            if str(error) != f"nothing is at {AUTH}{path}":
                raise
            raise NotFound(
                "this server asks for no login: use it as it is, without a token"
            ) from None

    def tokens(self, *, limit: int = 0) -> list[TokenView]:
        """The own tokens, and those of service accounts that one may see, the oldest first.

        At most ``limit``, 0 for all; fetched page by page.
        """
        return self._listed(dict[str, list[TokenView] | str | None], "tokens", limit)

    def _listed(
        self, kind: type[dict[str, list[T] | str | None]], name: str, limit: int
    ) -> list[T]:
        found, cursor, most = list[T](), None, None
        while True:
            if limit:
                most = min(PAGE, limit - len(found))
            page = self._transport.get(kind, f"/{name}", limit=most, cursor=cursor)
            rows, after = page[name], page.get("next_cursor")
            found += rows if isinstance(rows, list) else ()
            cursor = after if isinstance(after, str) else None
            if cursor is None or (limit and len(found) >= limit):
                return found

    def create_token(
        self,
        label: str = "",
        *,
        account: str = "",
        ttl_s: float | None = None,
        scopes: Iterable[str] | None = None,
    ) -> NewToken:
        """A new token of one's own, or of a service ``account``; its secret is shown this once."""
        body: dict[str, Any] = {"label": label, "account": account}
        if ttl_s is not None:
            body["ttl_s"] = ttl_s
        if scopes is not None:
            body["scopes"] = list(scopes)
        return self._transport.post(NewToken, "/tokens", body, repeatable=False)

    def revoke_token(self, token: str, *, reason: str = "", dry_run: bool = False) -> TokenView:
        """Make a token good for nothing; ``token`` is its id."""
        return self._transport.delete(TokenView, path_of("tokens", token), reason, dry_run)

    def accounts(self, *, limit: int = 0) -> list[ServiceAccountView]:
        """The service accounts of the tenants that one may see, by name; as `tokens`."""
        return self._listed(dict[str, list[ServiceAccountView] | str | None], "accounts", limit)

    def add_account(
        self, name: str, tenant: str, *, reason: str = "", dry_run: bool = False
    ) -> ServiceAccountView:
        """Make a service account, which belongs to a tenant."""
        body = {"name": name, "tenant": tenant, **why(reason, dry_run)}
        return self._transport.post(ServiceAccountView, "/accounts", body)

    def remove_account(
        self, name: str, *, reason: str = "", dry_run: bool = False
    ) -> ServiceAccountView:
        """Forget a service account with its tokens and roles."""
        path = path_of("accounts", name)
        return self._transport.delete(ServiceAccountView, path, reason, dry_run)

    def roles(self, *, limit: int = 0) -> list[RoleView]:
        """The roles at the tenants that one may see, by subject; as `tokens`."""
        return self._listed(dict[str, list[RoleView] | str | None], "roles", limit)

    def grant(
        self, subject: str, role: str, tenant: str, *, reason: str = "", dry_run: bool = False
    ) -> RoleView:
        """Give a role at a tenant, or at ``/``, the root."""
        return self._change_role("grant", subject, role, tenant, reason, dry_run)

    def revoke(
        self, subject: str, role: str, tenant: str, *, reason: str = "", dry_run: bool = False
    ) -> RoleView:
        """Take a role away."""
        return self._change_role("revoke", subject, role, tenant, reason, dry_run)

    def _change_role(
        self, verb: str, subject: str, role: str, tenant: str, reason: str, dry_run: bool
    ) -> RoleView:
        body = {"subject": subject, "role": role, "tenant": tenant, **why(reason, dry_run)}
        return self._transport.post(RoleView, f"/roles/{verb}", body)

    def audit(
        self,
        *,
        actor: str | None = None,
        verb: str | None = None,
        object: str | None = None,
        tenant: str | None = None,
        outcome: str | None = None,
        since_s: float | None = None,
        until_s: float | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> ActPage:
        """A page of the audit log, the newest line first."""
        return self._transport.get(
            ActPage, "/audit", actor=actor, verb=verb, object=object, tenant=tenant,
            outcome=outcome, since=since_s, until=until_s, limit=limit, cursor=cursor,
        )  # fmt: skip
