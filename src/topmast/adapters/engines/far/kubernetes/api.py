"""Requests to an API server, each bounded in time, and what its refusals mean."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec
from msgspec import Struct

from topmast.adapters.answers import HEADERS, bounded, exchange
from topmast.adapters.engines.far.kubernetes.credentials import Credentials, obtain, tls_context
from topmast.adapters.engines.far.kubernetes.kubeconfig import Login
from topmast.adapters.engines.far.launcher import Unreachable
from topmast.adapters.link.peer import is_loopback
from topmast.model.errors import InvalidInput

T = TypeVar("T")

PAGE = 500
"""Objects of one answer: a list of thousands of pods does not hold the server up."""
_MOST_LISTINGS = 3
"""How often a listing begins anew, because the server forgot its beginning meanwhile."""
_MOST_WAITS = 3
"""How often a request is sent again that the server was too busy for."""
_LONGEST_WAIT_S = 5.0
_MERGE = "application/strategic-merge-patch+json"


class Refusal(Exception):
    """The server answered, and did not do what it was asked for."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        """One word of Kubernetes, such as ``AlreadyExists``."""
        self.message = message


class _Status(Struct):
    """What the server answers in place of an object."""

    message: str = ""
    reason: str = ""


class _PageMeta(Struct):
    continue_: str | None = msgspec.field(default=None, name="continue")


class _Page(Struct, Generic[T]):
    metadata: _PageMeta
    items: list[T] | None = None


class Api:
    """One API server. All calls block, and may be made by several threads at once."""

    def __init__(
        self,
        login: Callable[[], Login],
        timeout_s: float,
        transport: httpx.BaseTransport | None = None,
        now_s: Callable[[], float] = time.time,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        """``login`` is asked again whenever credentials end; a ``transport`` replaces the net."""
        self._login = login
        self._timeout_s = timeout_s
        self._transport = transport
        self._now_s = now_s
        self._wait = wait
        self._lock = threading.Lock()
        self._session: _Session | None = None

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            session, self._session = self._session, None
        if session:
            session.http.close()

    def namespace(self) -> str:
        """The namespace of the credentials. Raises Unreachable without any."""
        return self._current(None).login.namespace

    def get(self, kind: type[T], path: str, **params: str | int) -> T:
        """One object. Raises Refusal, Unreachable."""
        return self._decoded(kind, self._send("GET", path, params=params))

    def all(self, kind: type[T], path: str, **params: str | int) -> list[T]:
        """All objects of a list, as they were at one moment. Raises Refusal, Unreachable."""
        for _ in range(_MOST_LISTINGS):
            try:
                return self._pages(kind, path, params)
            except Refusal as refusal:
                if refusal.code != 410:
                    raise
        raise Unreachable("the API server forgets the beginning of a list before its end")

    def _pages(self, kind: type[T], path: str, params: Mapping[str, str | int]) -> list[T]:
        found: list[T] = []
        begun: dict[str, str] = {}
        while True:
            answer = self._send("GET", path, params={**params, "limit": PAGE, **begun})
            page = self._decoded(_Page[kind], answer)  # type: ignore[valid-type]
            found += page.items or ()
            if not page.metadata.continue_:
                return found
            begun = {"continue": page.metadata.continue_}

    def create(self, kind: type[T], path: str, body: object) -> T:
        """The new object. Raises Refusal, Unreachable: then it may come into being yet."""
        return self._decoded(kind, self._send("POST", path, body=body))

    def delete(self, path: str, body: object) -> None:
        """Delete an object, which may take its time. Raises Refusal, Unreachable."""
        self._send("DELETE", path, body=body)

    def patch(self, path: str, body: object) -> None:
        """Merge ``body`` into an object. Raises Refusal, Unreachable."""
        self._send("PATCH", path, body=body, content_type=_MERGE)

    def _send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        body: object = None,
        content_type: str = "application/json",
    ) -> httpx.Response:
        """The answer; a second time with new credentials if the first were no good."""
        renewed = False
        waits = 0
        session = self._current(None)
        while True:
            answer = session.exchange(method, path, self._timeout_s, params, body, content_type)
            if answer.status_code == 401 and not renewed:
                renewed = True
                session = self._current(session)
            elif answer.status_code == 429 and waits < _MOST_WAITS:
                waits += 1
                self._wait(_pause_s(answer))
            elif answer.status_code >= 300:
                raise _refusal(answer)
            else:
                return answer

    def _current(self, refused: _Session | None) -> _Session:
        """The session of now: a new one if credentials have ended, or the server refused it."""
        with self._lock:
            session = self._session
            if session and session is not refused and self._now_s() < session.credentials.until_s:
                return session
            try:
                login = self._login()
                credentials = obtain(login, self._now_s())
                self._session = _Session(login, credentials, self._transport, before=session)
            except InvalidInput as error:
                raise Unreachable(str(error)) from error
            return self._session

    def _decoded(self, kind: type[T], answer: httpx.Response) -> T:
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            url = answer.request.url.copy_with(query=None)
            raise Unreachable(f"what answers at {url} is no API server: {error}") from None


class _Session:
    """Connections with one state of the credentials."""

    def __init__(
        self,
        login: Login,
        credentials: Credentials,
        transport: httpx.BaseTransport | None,
        before: _Session | None,
    ) -> None:
        self.login = login
        self.credentials = credentials
        self._url = login.server.server.rstrip("/")
        self._headers = {"Accept": "application/json", **HEADERS}
        if credentials.token:
            self._headers["Authorization"] = f"Bearer {credentials.token}"
        # Only a token changed: the connections are as good as before. Otherwise the old ones are
        # not closed here, since another thread may use them.
        if (
            before
            and before.login == login
            and before.credentials.certificate == (credentials.certificate)
        ):
            self.http: httpx.Client = before.http
        else:
            self.http = bounded(
                httpx.Client(
                    transport=transport,
                    verify=tls_context(login, credentials),
                    proxy=login.server.proxy_url or None,
                    trust_env=not is_loopback(self._url),
                    limits=httpx.Limits(max_connections=32, max_keepalive_connections=32),
                )
            )

    def exchange(
        self,
        method: str,
        path: str,
        timeout_s: float,
        params: Mapping[str, str | int] | None,
        body: object,
        content_type: str,
    ) -> httpx.Response:
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = content_type
        name = self.login.server.tls_server_name
        try:
            return exchange(
                self.http, method, self._url + path, timeout_s,
                content=None if body is None else msgspec.json.encode(body),
                params=params, headers=headers,
                extensions={"sni_hostname": name} if name else {},
                timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, 5.0)),
            )  # fmt: skip
        except httpx.TimeoutException:
            raise Unreachable(f"{self._server()} did not answer within {timeout_s:g} s") from None
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise Unreachable(f"{self._server()} cannot be reached: {error}") from None

    def _server(self) -> str:
        parts = urlsplit(self._url)
        return f"the API server at {parts.hostname}:{parts.port or 443}"


def _pause_s(answer: httpx.Response) -> float:
    with suppress(ValueError):
        return min(max(0.0, float(answer.headers.get("retry-after", "1"))), _LONGEST_WAIT_S)
    return 1.0


def _refusal(answer: httpx.Response) -> Exception:
    """What an answer other than success says: that it was refused, or that it is not known."""
    said: Any = None
    with suppress(msgspec.MsgspecError, ValueError):
        said = msgspec.json.decode(answer.content, type=_Status)
    code = answer.status_code
    text = " ".join(said.message.split())[:1000] if said else ""
    text = text or f"{code} {answer.reason_phrase}".strip()
    if code >= 500 or code == 429 or code < 400:
        return Unreachable(f"the API server failed: {text}")
    if said is None:
        return Unreachable(f"what answers is no API server: {text}")
    return Refusal(code, said.reason, text)
