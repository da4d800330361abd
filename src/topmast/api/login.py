"""Routes by which people log in at a provider: browsers, and the command line."""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from msgspec import Struct

from topmast.adapters.oidc import Device, OpenId, Pending, Refused
from topmast.api.bodies import read_object
from topmast.api.guard import COOKIE, LoginGate
from topmast.api.wire import answer, replies, returns, takes, text
from topmast.model import account_views as v
from topmast.model.errors import Forbidden, NotFound
from topmast.routing import CALLER, REQUEST, guarded_router, open_to_all
from topmast.service.limits import client_of
from topmast.service.service import Service

NO_PROVIDER = (
    "this server has no provider to log in with: use a token, which `topmast tokens create` of an "
    "administrator makes, by `topmast login --token-stdin`"
)
LOGIN_COOKIE = "__Host-topmast-login-"
"""Ties the return of a browser to the login that it began; the beginning of its state follows.

So each tab has a cookie of its own: those that find their session ended begin at the same time.
"""
MOST_TABS = 8
"""So many logins of one browser at a time: a request has room for so many cookies."""
BEGUN_S = 600.0
MOST_BEGUN, MOST_OF_CLIENT = 1_000, 100
"""Logins under way: of all, and of one client, which so cannot push out all others."""
_TEXT: dict[str, Any] = {"type": "string"}


_OWN_PATH = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]*")
"""Browsers take `//` and `/\\` for the beginning of a host, and leave out tabs and line ends."""


class Begun(Struct):
    """A login under way."""

    what: Pending | Device
    client: str
    """Which began it, as limits count it."""
    until_s: float
    next: str = "/"
    ask_s: float = 0.0
    """Before this time the provider is not asked about a device again (RFC 8628, 3.5)."""


class Logging:
    """Logins under way, in the memory of this process; used on the event loop alone."""

    def __init__(
        self, service: Service, gate: LoginGate, openid: OpenId | None, clock: Callable[[], float]
    ) -> None:
        self.service = service
        self.gate = gate
        self._openid = openid
        self._clock = clock
        self._begun: dict[str, Begun] = {}

    @property
    def openid(self) -> OpenId:
        """The provider. Raises NotFound."""
        if self._openid is None:
            raise NotFound(NO_PROVIDER)
        return self._openid

    def keep(
        self, name: str, what: Pending | Device, address: str, life_s: float, onward: str = "/"
    ) -> None:
        """Remember a login; of too many of a client, or of all, the oldest is forgotten."""
        now_s, client = self._clock(), client_of(address)
        self._begun = {n: b for n, b in self._begun.items() if now_s < b.until_s}
        same = [n for n, b in self._begun.items() if b.client == client]
        if len(same) >= MOST_OF_CLIENT:
            del self._begun[same[0]]
        elif len(self._begun) >= MOST_BEGUN:
            del self._begun[next(iter(self._begun))]
        self._begun[name] = Begun(what, client, now_s + life_s, onward)

    def find(self, name: str) -> Begun | None:
        """A login under way."""
        found = self._begun.get(name)
        return found if found is not None and self._clock() < found.until_s else None

    def may_ask(self, begun: Begun) -> bool:
        """Whether the provider may be asked about a device now; if so, the next time is later.

        One question costs more than a request, and a login under way has proved nothing yet.
        """
        now_s = self._clock()
        if not isinstance(begun.what, Device) or now_s < begun.ask_s:
            return False
        begun.ask_s = now_s + begun.what.interval_s
        return True

    def forget(self, name: str) -> None:
        """It is over."""
        self._begun.pop(name, None)

    def address(self, request: Request) -> str:
        """The address of a client; it has limits of its own. Raises TooMany."""
        found = self.gate.address_of(request.scope)
        self.service.limits.take_of(client_of(found), "login")
        return found

    async def refused(self, request: Request, why: str) -> None:
        """Bring a refused login into the audit log. Raises TooMany."""
        address = self.gate.address_of(request.scope)
        await self.service.logins.refused(address, request.url.path, request.scope[REQUEST], why)


def routes(logging: Logging) -> APIRouter:
    """All routes of logins."""
    router = guarded_router()
    _browser(router, logging)
    _device(router, logging)

    @router.post("/logout", tags=["login"], summary="Make the token or session in use good for "
                 "nothing", **takes({}), **replies(204, {}))  # fmt: skip
    @open_to_all
    async def logout(request: Request) -> Response:
        caller = request.scope.get(CALLER)
        if caller is not None:
            await logging.service.logins.log_out(caller)
        gone = Response(status_code=204)
        _delete_cookie(gone, COOKIE)
        return gone

    return router


def onward(path: str) -> str:
    """Where a browser goes after a login: a path of this server, and the first one if in doubt."""
    return path if _OWN_PATH.fullmatch(path) else "/"


def _browser(router: APIRouter, logging: Logging) -> None:
    @router.get("/login", tags=["login"], summary="Begin to log in with a browser",
                **replies(302, {}))  # fmt: skip
    @open_to_all
    async def login(request: Request, next: str = "/") -> Response:
        address = logging.address(request)
        url, pending = await logging.openid.begin()
        logging.keep(pending.state, pending, address, BEGUN_S, onward(next))
        going = RedirectResponse(url, 302)
        begun = [name for name in request.cookies if name.startswith(LOGIN_COOKIE)]
        for oldest in begun[: 1 - MOST_TABS]:
            _delete_cookie(going, oldest)
        _set_cookie(going, _cookie_of(pending.state), pending.state, BEGUN_S)
        return going

    @router.get("/callback", tags=["login"], summary="Where the provider sends a browser back to",
                **replies(303, {}))  # fmt: skip
    @open_to_all
    async def callback(
        request: Request, state: str = "", code: str = "", error: str = ""
    ) -> Response:
        address = logging.address(request)
        begun = logging.find(state)
        own = request.cookies.get(_cookie_of(state), "")
        tied = hmac.compare_digest(own.encode(), state.encode("utf-8", "replace"))
        if begun is None or not isinstance(begun.what, Pending) or not tied or not code:
            why = f"the provider says: {error[:200]}" if error else "no such login is under way"
            await logging.refused(request, why)
            raise Forbidden(f"{why}; begin again at /auth/login")
        logging.forget(state)
        try:
            identity = await logging.openid.finish(code, begun.what)
        except Refused as refusal:
            await logging.refused(request, str(refusal))
            raise Forbidden(str(refusal)) from None
        made = await logging.service.logins.log_in(
            identity.name, identity.groups, "browser", address, request.scope[REQUEST],
            logging.openid.provider.login_s,
        )  # fmt: skip
        back = RedirectResponse(begun.next, 303)
        _set_cookie(back, COOKIE, made.token, logging.openid.provider.login_s)
        _delete_cookie(back, _cookie_of(state))
        return back


def _device(router: APIRouter, logging: Logging) -> None:
    @router.post("/device", tags=["login"], summary="Begin to log in from a command line",
                 **takes({}), **returns(v.DeviceLogin, 201))  # fmt: skip
    @open_to_all
    async def begin(request: Request) -> Response:
        address = logging.address(request)
        device = await logging.openid.begin_device()
        name = secrets.token_urlsafe(24)
        logging.keep(name, device, address, device.life_s)
        shown = v.DeviceLogin(
            name, device.user_code, device.url, device.whole_url, device.interval_s, device.life_s
        )
        return answer(shown, 201)

    @router.post("/device/token", tags=["login"], summary="The token, once the login is confirmed",
                 **takes({"device": _TEXT}, ("device",)),
                 **returns(v.NewToken, 201))  # fmt: skip
    @open_to_all
    async def finish(request: Request) -> Response:
        name = text(await read_object(request, ("device",)), "device")
        begun = logging.find(name)
        if begun is None or not isinstance(begun.what, Device):
            logging.address(request)
            raise NotFound("no such login is under way: it took too long, or the server restarted")
        if not logging.may_ask(begun):
            return answer({"pending": True}, 202)
        try:
            identity = await logging.openid.poll_device(begun.what)
        except Refused as refusal:
            logging.forget(name)
            await logging.refused(request, str(refusal))
            raise Forbidden(str(refusal)) from None
        if identity is None:
            return answer({"pending": True}, 202)
        logging.forget(name)
        made = await logging.service.logins.log_in(
            identity.name, identity.groups, "device", logging.gate.address_of(request.scope),
            request.scope[REQUEST], logging.openid.provider.login_s,
        )  # fmt: skip
        return answer(made, 201)


def _cookie_of(state: str) -> str:
    """The name of the cookie of a login."""
    return LOGIN_COOKIE + state[:12]


def _set_cookie(response: Response, name: str, value: str, life_s: float) -> None:
    response.set_cookie(
        name, value, max_age=int(life_s), path="/", secure=True, httponly=True, samesite="lax"
    )


def _delete_cookie(response: Response, name: str) -> None:
    response.delete_cookie(name, path="/", secure=True, httponly=True, samesite="lax")
