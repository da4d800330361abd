"""What keeps web pages and strangers out while there is no authentication: loopback names only."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

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
