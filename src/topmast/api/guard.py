"""What keeps web pages and strangers out while there is no authentication: loopback names only."""

from __future__ import annotations

import hmac
import ipaddress
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from topmast.adapters.link import PREFIX as LINK_PREFIX
from topmast.api.problems import problem

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def host_name(value: str) -> str:
    """The host of a Host header, without port and brackets; empty if there is no telling."""
    try:
        return (urlsplit(f"//{value}").hostname or "").lower()
    except ValueError:
        return ""


class LoopbackOnly:
    """Refuses requests whose Host is not a loopback name, or whose Origin is another site.

    The first stops DNS rebinding, the second forms and scripts of other pages.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 403."""
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            host = host_name(headers.get(b"host", b"").decode("latin-1"))
            origin = headers.get(b"origin", b"").decode("latin-1")
            if host not in LOOPBACK:
                refusal = problem(403, "Refused", "this server answers on loopback names only")
                await refusal(scope, receive, send)
                return
            if origin and host_name(origin.partition("://")[2]) not in LOOPBACK:
                refusal = problem(403, "Refused", "requests from other sites are not accepted")
                await refusal(scope, receive, send)
                return
        await self.app(scope, receive, send)


def is_loopback(address: str) -> bool:
    """Whether an address is one that only this machine can reach."""
    try:
        return address == "localhost" or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


class LinkGuard:
    """Lets in over a link who shows the token; all else goes on to the rules for this machine alone.

    Without a token a link is for this machine alone too. Whatever is no link is refused on an address
    that others can reach. ``open_paths`` may be read by anyone.
    """

    def __init__(self, app: ASGIApp, token: str, open_paths: tuple[str, ...] = ()) -> None:
        self.app = app
        self.inner = LoopbackOnly(app)
        self.token = token.encode()
        self.open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 401 or 403."""
        if scope["type"] != "http" or scope["path"] in self.open_paths:
            await self.app(scope, receive, send)
            return
        is_link = scope["path"].startswith(f"{LINK_PREFIX}/")
        if is_link and self.token:
            given = dict(scope["headers"]).get(b"authorization", b"")
            if hmac.compare_digest(given, b"Bearer " + self.token):
                await self.app(scope, receive, send)
                return
            refusal = problem(401, "Refused", "this link asks for a token", remedy="TOPMAST_TOKEN")
            await refusal(scope, receive, send)
            return
        server = scope.get("server")
        if server is not None and not is_loopback(server[0]):
            refusal = problem(403, "Refused", "only links are answered on this address")
            await refusal(scope, receive, send)
            return
        await self.inner(scope, receive, send)
