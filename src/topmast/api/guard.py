"""What stands before every route: it finds out which caller a request comes from, or refuses it."""

from __future__ import annotations

import hmac
import html
import ipaddress
import random
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Protocol
from urllib.parse import quote, urlsplit

from msgspec import Struct
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bind_contextvars

from topmast.accounts import is_token
from topmast.adapters.connections import MOST_CONNECTIONS
from topmast.adapters.link import PREFIX as LINK_PREFIX
from topmast.api.problems import problem
from topmast.api.under_way import UnderWay
from topmast.model.access import Caller, local_caller
from topmast.model.errors import TooMany, Unavailable
from topmast.routing import CALLER, REQUEST, SECURITY_HEADERS, is_page, shows_pages

_LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
_ONCE = (b"host", b"origin", b"authorization", b"content-type", b"sec-fetch-site", b"cookie",
         b"idempotency-key")  # fmt: skip
"""Headers that decide: of two of them, each reader would take another."""
_NO_LOGIN = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<meta name="viewport" content="width=device-width">
<title>No login by browser · Topmast</title></head>
<body><main><h1>No login by browser</h1>
<p>No page: {detail}, and it has no login for browsers.</p>
<p>Tokens serve the command line and programs: <code>topmast login --token-stdin</code>, or the
variable <code>TOPMAST_TOKEN</code>.</p>
<p>The operator of this server can let people log in here: the section <code>oidc</code> of the file
that <code>topmast up --accounts</code> reads names a login of the company (OpenID Connect). The
guide "Accounts" (docs/guides/accounts.md) says how.</p></main></body></html>
"""
COOKIE = "__Host-topmast"
"""The session of a browser. The prefix makes browsers bind it to one host and to TLS."""
USELESS = "the token is unknown, expired or revoked"
MISTYPED = "the token is mistyped or cut off: its checksum is wrong"
"""Of a text that no server ever gave out as a token, so this tells nothing of those that exist."""
_TOKENS_ALONE = "a token: topmast login --token-stdin, or TOPMAST_TOKEN"
"""What helps where no provider lets people log in."""
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_numbers = random.Random()
"""Of requests, seeded by the system: to ask it each time would let another thread in each time."""
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Refusal(Exception):
    """A request that is answered here."""

    def __init__(self, status: int, detail: str, remedy: str = "", retry_s: float = 0.0) -> None:
        super().__init__(detail)
        self.status, self.detail, self.remedy, self.retry_s = status, detail, remedy, retry_s


class Head(Struct, frozen=True):
    """What a gate looks at of a request."""

    method: str
    path: str
    headers: Mapping[str, str]
    """By name in lower case."""
    scheme: str
    server: str
    """The address that the request came to; empty if that is unknown."""
    address: str
    """The address that it came from."""
    request: str
    """The number that the request is given."""


class Gate(Protocol):
    """Lets requests in."""

    revokes: bool
    """Whether what proves a caller may be good for nothing later."""
    reads_take: tuple[str, ...]
    """Parameters that every route takes that reads."""

    async def caller(self, head: Head) -> Caller | None:
        """The caller; None for a request that may only log in. Raises Refusal."""
        ...

    def dress(self, headers: MutableHeaders, head: Head) -> None:
        """Add what an answer needs."""
        ...


class LoopbackGate:
    """The gate of a server without login: the one person of this machine is its administrator.

    It refuses requests with a Host that is not a loopback name, which stops DNS rebinding; and from
    pages of other sites, which stops their forms and scripts. A page from another port of this
    machine is another site.
    """

    revokes = False
    reads_take: tuple[str, ...] = ()

    def __init__(self, name: str = "local") -> None:
        self._caller = local_caller(name)

    async def caller(self, head: Head) -> Caller:
        """The person. Raises Refusal."""
        if head.server and not is_loopback(head.server):
            raise Refusal(403, "only links are answered on this address")
        host = head.headers.get("host", "")
        if not _LOOPBACK.fullmatch(host):
            raise Refusal(403, "this server answers on loopback names only")
        refuse_other_sites(head, f"{head.scheme}://{host}")
        known = self._caller
        return Caller(known.principal, known.via, head.address, head.request)

    def dress(self, headers: MutableHeaders, head: Head) -> None:
        """Nothing more than the routes say."""


class StandbyGate:
    """The gate of a server with login that does not lead.

    It tells all where the leader is; for its own health and figures it asks for the proof that the
    leader asks for.
    """

    revokes = True
    reads_take: tuple[str, ...] = ()

    def __init__(self, gate: Gate, guarded: Sequence[str]) -> None:
        """``guarded``: the paths for which ``gate`` finds the caller."""
        self._gate = gate
        self._guarded = tuple(guarded)

    async def caller(self, head: Head) -> Caller | None:
        """The caller of a request for a guarded path. Raises Refusal."""
        return await self._gate.caller(head) if head.path in self._guarded else None

    def dress(self, headers: MutableHeaders, head: Head) -> None:
        """What browsers need to keep the answer to themselves."""
        headers.update(SECURITY_HEADERS)


class Login(Protocol):
    """Knows what proves a caller."""

    async def by_token(self, token: str, address: str, request: str) -> Caller | None:
        """The caller that shows a token; None for one that is good for nothing.

        Raises Unavailable while that is not known.
        """
        ...

    async def refused(self, address: str, path: str, request: str, why: str) -> None:
        """Bring a failed attempt into the audit log. Raises TooMany."""
        ...


class LoginGate:
    """The gate of a server with login: each request shows a token, or the cookie of a session."""

    revokes = True
    reads_take: tuple[str, ...] = ()

    def __init__(
        self,
        login: Login,
        public_url: str,
        hosts: Sequence[str] = (),
        proxies: Sequence[Network] = (),
        open_paths: Sequence[str] = (),
        *,
        has_provider: bool = False,
    ) -> None:
        """``hosts``: more names of the server. ``open_paths``: beginnings that need no login.

        ``has_provider``: whether people can log in; without, tokens are all that there is.
        """
        self._login = login
        self._origin = origin_of(public_url)
        own = urlsplit(self._origin).netloc
        self._hosts = {own, urlsplit(public_url).netloc.lower(), *(h.lower() for h in hosts)}
        self._proxies = tuple(proxies)
        self._open_paths = tuple(open_paths)
        self._ways = "topmast login, or a token" if has_provider else _TOKENS_ALONE

    async def caller(self, head: Head) -> Caller | None:
        """The caller that a token or cookie proves. Raises Refusal."""
        host = head.headers.get("host", "").lower()
        if host not in self._hosts and not _LOOPBACK.fullmatch(host):
            raise Refusal(403, f"this server does not answer as '{host[:100]}'")
        token, is_cookie = _shown(head)
        if token:
            strictly = is_cookie and head.method not in SAFE_METHODS
            refuse_other_sites(head, self._origin, strictly=strictly)
        opened = head.path.startswith(self._open_paths)
        if not token:
            if opened:
                return None
            raise Refusal(401, "this server asks for a login", self._ways)
        try:
            found = await self._login.by_token(token, self.address(head), head.request)
        except Unavailable as error:
            raise Refusal(503, str(error), retry_s=1.0) from None
        if found is None and not opened:
            why = USELESS if is_token(token) else MISTYPED
            try:
                await self._login.refused(self.address(head), head.path, head.request, why)
            except TooMany as error:
                raise Refusal(429, str(error), retry_s=error.retry_s) from None
            raise Refusal(401, why, "copy all of it again" if why == MISTYPED else self._ways)
        return found

    def address_of(self, scope: Scope) -> str:
        """The address of the client of a request that has passed."""
        return self.address(_head(scope))

    def address(self, head: Head) -> str:
        """The client's address: what a trusted proxy says of it, or that of the connection."""
        return forwarded(head.address, head.headers.get("x-forwarded-for", ""), self._proxies)

    def dress(self, headers: MutableHeaders, head: Head) -> None:
        """What browsers need to keep the answer to themselves."""
        for name, value in SECURITY_HEADERS.items():
            headers.setdefault(name, value)
        headers.setdefault("Cache-Control", "no-store")
        if head.scheme == "https":
            headers.setdefault("Strict-Transport-Security", "max-age=31536000")


def _shown(head: Head) -> tuple[str, bool]:
    """The token that a request shows, and whether as a cookie. Raises Refusal."""
    given = head.headers.get("authorization", "")
    if given:
        kind, _, token = given.partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            raise Refusal(401, "only bearer tokens are taken", "Authorization: Bearer TOKEN")
        return token.strip(), False
    for part in head.headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE and value:
            return value, True
    return "", False


def origin_of(url: str) -> str:
    """A server as browsers name it: without the port that its scheme has anyway."""
    parts = urlsplit(url.lower())
    usual = {"https": ":443", "http": ":80"}.get(parts.scheme, "")
    return f"{parts.scheme}://{parts.netloc.removesuffix(usual)}"


def refuse_other_sites(head: Head, own: str, *, strictly: bool = False) -> None:
    """Raise Refusal for a request of another site; ``strictly``: unless shown to be of the own.

    A browser says so itself; a page cannot change what it says. A link on another site may open a
    page of this one, which the other site can neither read nor frame.
    """
    if _opens_a_page(head):
        return
    origin, site = head.headers.get("origin", ""), head.headers.get("sec-fetch-site", "")
    foreign = origin not in ("", own) or site not in ("", "none", "same-origin")
    if foreign or (strictly and not origin and not site):
        raise Refusal(403, "requests from other sites are not accepted")


def _opens_a_page(head: Head) -> bool:
    """Whether a person follows a link, as the browser says."""
    asked = (head.headers.get("sec-fetch-mode"), head.headers.get("sec-fetch-dest"))
    return asked == ("navigate", "document") and head.method == "GET" and is_page(head.path)


def forwarded(address: str, chain: str, proxies: Sequence[Network]) -> str:
    """The last address of a chain of proxies that is none of the trusted ones."""
    found = address
    hops = [hop.strip() for hop in chain.split(",") if hop.strip()]
    while hops and _is_in(found, proxies):
        found = hops.pop()
    return found[:100]


def _is_in(address: str, networks: Sequence[Network]) -> bool:
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(known in network for network in networks)


@lru_cache(maxsize=1_024)
def is_loopback(address: str) -> bool:
    """Whether an address is one that only this machine can reach."""
    try:
        return address == "localhost" or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


class Guard:
    """Admits links by their own token, and all other requests through a gate.

    Without a link token, links are for this machine alone. ``open_paths`` are readable for all.
    ``login``: where a person is sent that opens a page without a login; empty: nowhere.
    ``connections``: how many the process serves at a time.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str,
        gate: Gate,
        open_paths: tuple[str, ...] = (),
        login: str = "",
        connections: int = MOST_CONNECTIONS,
    ) -> None:
        self.app = app
        self.under_way = UnderWay(connections)
        self.token = token.encode()
        self.gate = gate
        self.open_paths = open_paths
        self.login = login

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        head = _head(scope)
        scope[REQUEST] = head.request
        dressed = _Dressed(send, self.gate, head)
        caller = None
        try:
            _refuse_doubled(scope, head)
            if not self._may_pass(scope, head):
                caller = scope[CALLER] = await self.gate.caller(head)
                actor = caller.principal.subject if caller is not None else ""
                bind_contextvars(request=head.request, actor=actor)
                if caller is not None and self.gate.revokes:
                    receive = _Proved(receive, self.gate, head, caller)
        except Refusal as refusal:
            answer = _answer(refusal)
            if refusal.status == 401 and _shows_pages(head):
                answer = RedirectResponse(f"{self.login}?next={_onward(scope)}", 302)
                if not self.login:
                    answer = _no_login(refusal)
            await answer(scope, receive, dressed)
            return
        try:
            with self.under_way.one(caller):
                await self.app(scope, receive, dressed)
        except TooMany as error:
            await _answer(Refusal(429, str(error), retry_s=error.retry_s))(scope, receive, dressed)

    def _may_pass(self, scope: Scope, head: Head) -> bool:
        """Whether it is a link with the right token, or asks for what all may read."""
        if head.path in self.open_paths:
            return True
        if not head.path.startswith(f"{LINK_PREFIX}/"):
            return False
        if self.token:
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, b"Bearer " + self.token):
                raise Refusal(401, "this link asks for a token", "TOPMAST_TOKEN")
            return True
        if isinstance(self.gate, LoopbackGate):
            return False
        raise Refusal(401, "links to a server with login ask for a token", "--token-file")


class _Proved:
    """Receives a request, and looks at its proof again when all of it is here.

    A body may take hours, and what proved its caller by the head may be revoked meanwhile.
    """

    def __init__(self, receive: Receive, gate: Gate, head: Head, caller: Caller) -> None:
        self.receive, self.gate, self.head, self.caller = receive, gate, head, caller

    async def __call__(self) -> Message:
        """Raises HTTPException for a caller that is not what it was."""
        message = await self.receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            try:
                now = await self.gate.caller(self.head)
            except Refusal as refusal:
                raise HTTPException(refusal.status, refusal.detail) from None
            if now is None or now.principal != self.caller.principal:
                raise HTTPException(403, "your roles changed while you sent this: send it again")
        return message


class _Dressed:
    """Sends an answer with the number of its request, and what the gate adds."""

    def __init__(self, send: Send, gate: Gate, head: Head) -> None:
        self._send, self._gate, self._head = send, gate, head

    async def __call__(self, message: Message) -> None:
        """Send a part of it."""
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self._head.request
            self._gate.dress(headers, self._head)
        await self._send(message)


def _head(scope: Scope) -> Head:
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    server, client = scope.get("server"), scope.get("client")
    return Head(
        scope["method"], scope["path"], headers, scope["scheme"],
        server[0] if server else "", client[0] if client else "",
        f"{_numbers.getrandbits(48):012x}",
    )  # fmt: skip


def _refuse_doubled(scope: Scope, head: Head) -> None:
    names = [name for name, _ in scope["headers"]]
    if len(names) == len(head.headers):
        return
    doubled = next((name.decode() for name in _ONCE if names.count(name) > 1), "")
    if doubled:
        raise Refusal(400, f"the header {doubled} is given twice")


def _shows_pages(head: Head) -> bool:
    """Whether a browser asks for a whole page, to show it to a person."""
    return shows_pages(head.method, head.path, head.headers.get("accept", ""))


def _onward(scope: Scope) -> str:
    """The path and query of a request, as a part of another query."""
    path, query = quote(scope["path"]), scope["query_string"].decode("latin-1")
    return quote(f"{path}?{query}" if query else path, safe="")


def _no_login(refusal: Refusal) -> ASGIApp:
    """What a browser is told by a server that has no login for browsers."""
    page = _NO_LOGIN.format(detail=html.escape(refusal.detail))
    return HTMLResponse(page, 401, {"WWW-Authenticate": "Bearer"})


def _answer(refusal: Refusal) -> ASGIApp:
    answer = problem(refusal.status, "Refused", refusal.detail, remedy=refusal.remedy)
    if refusal.status == 401:
        answer.headers["WWW-Authenticate"] = "Bearer"
    if refusal.retry_s:
        answer.headers["Retry-After"] = str(max(1, round(refusal.retry_s)))
    return answer
