"""What keeps web pages and strangers out while there is no authentication: loopback names only."""

from __future__ import annotations

import hmac
import ipaddress
import re

from starlette.types import ASGIApp, Receive, Scope, Send

from topmast.adapters.link import PREFIX as LINK_PREFIX
from topmast.api.problems import problem

_LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
_ONCE = (b"host", b"origin", b"authorization", b"content-type", b"sec-fetch-site")
"""Headers that decide: of two of them, each reader would take another."""


def _doubled(scope: Scope) -> str:
    """The first header that is given twice and must not be; empty if none is."""
    names = [name for name, _ in scope["headers"]]
    return next((name.decode() for name in _ONCE if names.count(name) > 1), "")


class LoopbackOnly:
    """Refuses requests with a Host that is not a loopback name, or from a page of another site.

    The first stops DNS rebinding, the second forms and scripts of other pages. A page from another
    port of this machine is another site.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 403."""
        if scope["type"] == "http":
            headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
            host, origin = headers.get(b"host", ""), headers.get(b"origin", "")
            if not _LOOPBACK.fullmatch(host):
                refusal = problem(403, "Refused", "this server answers on loopback names only")
                await refusal(scope, receive, send)
                return
            own = origin in ("", f"{scope['scheme']}://{host}")
            if not own or headers.get(b"sec-fetch-site", "none") not in ("none", "same-origin"):
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
    """Admits link requests with the token; other requests meet the rules for this machine alone.

    Without a token, links too are for this machine alone. On an address that others can reach,
    everything but a link is refused. ``open_paths`` are readable for all.
    """

    def __init__(self, app: ASGIApp, token: str, open_paths: tuple[str, ...] = ()) -> None:
        self.app = app
        self.inner = LoopbackOnly(app)
        self.token = token.encode()
        self.open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 400, 401 or 403."""
        doubled = _doubled(scope) if scope["type"] == "http" else ""
        if doubled:
            await problem(400, "Refused", f"the header {doubled} is given twice")(
                scope, receive, send
            )
            return
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
