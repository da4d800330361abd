"""Requests and their answers: safe retries, and readable errors."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TypeVar
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from topmast.adapters.answers import HEADERS, bounded, exchange, opened
from topmast.adapters.backoff import Backoff
from topmast.client.address import REMEDY, is_loopback
from topmast.client.credentials import token_for, why_none
from topmast.client.problems import leader_in, problem_of
from topmast.model.decoding import decode
from topmast.model.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    TopmastError,
    Unavailable,
)
from topmast.model.views import Problem

T = TypeVar("T")
DECODING = threading.Lock()
"""Held while an answer is decoded; `topmast.model.decoding` tells why."""

API = "/api/v1"
AGE = "X-Standby-Age-S"
"""How many seconds ago the standby that answers had all that the leader had."""
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
"""What OpenSSL says of an answer that is none of TLS."""
MOST_AGE = "X-Standby-Most-Age-S"
"""How many seconds that may be: a standby that knows less names the leader."""
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 1.0
TURNS = 2
"""How often a request goes to a leader that was named before there is a pause: two servers may name
each other while none leads."""
MANY_TIMES = 10
"""A request about many jobs may take so many times as long: of 100,000 some 20 s, of a busy machine
several times that."""
SILENT_S = 3.0
"""Of several servers one that says nothing this long, not even that it lives, is passed over."""
LIVE = "/livez"
HEARTBEATS_MISSED_S = 45.0
"""A stream that is silent this long is broken: the server sends a heartbeat every 15 seconds."""

_REFUSED = (httpx.ConnectError, httpx.ConnectTimeout)


_AUTHORITIES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Name the authorities to OpenSSL, by environment; errors name the first that is set."""


def _trusted(url: str) -> ssl.SSLContext | bool:
    """The authorities that a server is judged by: those of SSL_CERT_FILE, also on this machine."""
    if not url.startswith("https:"):
        return True
    try:
        return httpx.create_ssl_context()
    except OSError as error:
        name, file = next(
            ((name, os.environ[name]) for name in _AUTHORITIES if os.environ.get(name)), ("", "")
        )
        why = error.strerror or error
        raise InvalidInput(
            f"the authorities in {file or 'the default place'} cannot be read: {why}",
            where=name,
            remedy="name a file of certificates in PEM form",
        ) from None


def speaks_tls(url: str) -> bool:
    """Whether what listens there greets with TLS; no certificate is judged, and nothing is sent."""
    parts = urlsplit(url)
    greeting = ssl.create_default_context()
    greeting.check_hostname, greeting.verify_mode = False, ssl.CERT_NONE
    address = parts.hostname or "", parts.port or 80
    try:
        with (
            socket.create_connection(address, SILENT_S) as plain,
            greeting.wrap_socket(plain, server_hostname=parts.hostname),
        ):
            return True
    except OSError:
        return False


def _times(within_s: float) -> httpx.Timeout:
    """How long the parts of a request may take."""
    return httpx.Timeout(within_s, connect=min(within_s, 5.0))


class Transport:
    """Speaks to one server. ``locate`` gives its URL, also anew when nothing answers there.

    Of several, with commas between them, it speaks to the one that leads.
    """

    def __init__(
        self,
        locate: Callable[[], str],
        timeout_s: float,
        transport: httpx.BaseTransport | None = None,
        most_age_s: float = 0.0,
        on_pause: Callable[[float, str], object] = lambda wait_s, why: None,
    ) -> None:
        """``most_age_s``: what a standby may answer, and ``on_pause``, as `Client` says."""
        self._locate = locate
        self._most_age_s = most_age_s
        self._on_pause = on_pause
        self.age_s: float | None = None
        """How old the last answer was, if it came from a standby."""
        self.asked_again: dict[str, None] = {}
        """What servers said that had no answer yet: how far an act came before a stop, say."""
        self._timeout_s = timeout_s
        self._led = False
        """A server told of a leader: there are several, and one takes over from another."""
        self._awake = ""
        """The server that answered last."""
        self._urls: list[str] = []
        self._locate_all()
        self.url = self._urls[0]
        self._http = bounded(
            httpx.Client(
                timeout=_times(timeout_s),
                transport=transport,
                trust_env=not is_loopback(self.url),
                verify=_trusted(self.url),
                headers={"Accept": "application/json", **HEADERS},
            )
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def get(self, kind: type[T], path: str, **params: str | int | float | None) -> T:
        """The resource at ``path``, as a ``kind``."""
        given = {name: value for name, value in params.items() if value is not None}
        return self.decoded(kind, self.send("GET", path, params=given))

    def post(
        self,
        kind: type[T],
        path: str,
        body: object,
        *,
        key: str = "",
        repeatable: bool = True,
        many: bool = False,
    ) -> T:
        """The server's answer to ``body``. With a ``key`` it acts once, even if sent repeatedly.

        ``many``: it is about many jobs, and gets `MANY_TIMES` the time.
        """
        headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
        answer = self.send(
            "POST", path, content=msgspec.json.encode(body), headers=headers, repeatable=repeatable,
            within_s=self._timeout_s * (MANY_TIMES if many else 1.0),
        )  # fmt: skip
        return self.decoded(kind, answer)

    def delete(self, kind: type[T], path: str, reason: str, dry_run: bool) -> T:
        """The server's answer to a removal: what there was, or would go."""
        params = {name: str(value) for name, value in why(reason, dry_run).items()}
        return self.decoded(kind, self.send("DELETE", path, params=params))

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int | float] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = True,
        missing_ok: bool = False,
        prefix: str = API,
        within_s: float | None = None,
    ) -> httpx.Response:
        """The answer to one request, sent again after a dropped connection where that is harmless.

        A server that refuses the very first connection is reported at once; one that went away
        in the middle has the rest of the time-out to come back.
        """
        within_s = self._timeout_s if within_s is None else within_s
        deadline_s = time.monotonic() + within_s
        backoff, dropped, refused, turns = client_backoff(), False, 0, 0
        while True:
            self._pass_over_silent(deadline_s)
            try:
                answer = self._asked(
                    within_s, deadline_s, method, prefix + path, params=params, content=content,
                    headers=headers,
                )  # fmt: skip
            except _REFUSED as error:
                self._awake = ""
                self._check_proof(error)
                refused += 1
                if self._moved() or refused < len(self._urls):
                    backoff.reset()
                    continue
                dropped = dropped or (len(self._urls) > 1 and self._led)
                if not dropped or time.monotonic() + backoff.next_s > deadline_s:
                    raise self._unreachable() from error
            except httpx.TransportError as error:
                self._check_plain(error, dropped)
                self._awake, dropped = "", True
                if not repeatable or time.monotonic() + backoff.next_s > deadline_s:
                    raise self._broken(error, within_s) from error
            except (httpx.InvalidURL, UnicodeError) as error:
                raise InvalidInput(f"the request cannot be written: {error}") from error
            else:
                self._awake = self.url
                # One that asks for patience stops, or has just begun: soon one can answer.
                waits = repeatable and answer.status_code == 503 and "retry-after" in answer.headers
                leader, in_time = leader_in(answer), time.monotonic() + backoff.next_s < deadline_s
                self._led = self._led or leader is not None
                if leader is not None and in_time:
                    turns += 1
                    if self._follow(leader) and turns <= TURNS:
                        continue
                    turns = 0
                elif not (in_time and waits):
                    return self._taken(answer, missing_ok)
                self.asked_again |= {problem_of(answer).detail: None} if waits else {}
                dropped, refused = True, 0
            time.sleep(backoff.take())

    def _taken(self, answer: httpx.Response, missing_ok: bool) -> httpx.Response:
        if not (missing_ok and answer.status_code == 404):
            self._raise_for(answer)
        self.age_s = _age_s(answer)
        return answer

    def _pass_over_silent(self, deadline_s: float) -> None:
        """Turn from a server that stands still to the next, where there are several.

        Its machine takes a connection all the same, so that a request would wait to its end. The
        question is open to all, and carries no token. Nothing is asked of one that has answered.
        """
        limit_s = min(SILENT_S, self._timeout_s / 4)
        for _ in self._urls:
            left_s = deadline_s - time.monotonic()
            several = len(self._urls) > 1 or self._led
            if not several or self.url == self._awake or left_s < limit_s:
                return
            try:
                exchange(self._http, "GET", f"{self.url}{LIVE}", limit_s, timeout=limit_s)
            except httpx.TimeoutException:
                self._next()
            except (httpx.TransportError, httpx.InvalidURL, UnicodeError):
                return  # the request itself finds the words
            else:
                return

    def _proven(self, headers: Mapping[str, str] | None) -> dict[str, str]:
        """Headers with the token for this server, if there is one; and how old answers may be."""
        token = token_for(self.url, self._urls)
        proof = {"Authorization": f"Bearer {token}"} if token else {}
        return {**(headers or {}), **proof, MOST_AGE: f"{self._most_age_s:g}"}

    def _asked(
        self,
        within_s: float,
        deadline_s: float,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int | float] | None,
        content: bytes | None,
        headers: Mapping[str, str] | None,
    ) -> httpx.Response:
        """The answer; a server that has had too many requests gets the time that it asks for."""
        while True:
            answer = exchange(
                self._http, method, f"{self.url}{path}", within_s, params=params, content=content,
                headers=self._proven(headers), timeout=_times(within_s),
            )  # fmt: skip
            given = answer.headers.get("retry-after", "")
            wait_s = float(given) if given.isdecimal() else FIRST_PAUSE_S
            if answer.status_code != 429 or time.monotonic() + wait_s > deadline_s:
                return answer
            self._on_pause(wait_s, problem_of(answer).detail)
            time.sleep(wait_s)

    @contextmanager
    def stream(self, path: str, headers: Mapping[str, str]) -> Iterator[Iterator[bytes]]:
        """The body of ``path``, piece by piece as it arrives; `Unavailable` when it breaks."""
        timeout = httpx.Timeout(HEARTBEATS_MISSED_S, connect=5.0)
        self._pass_over_silent(time.monotonic() + self._timeout_s)
        url = f"{self.url}{API}{path}"
        try:
            lasting = opened(
                self._http, url, HEARTBEATS_MISSED_S, headers=self._proven(headers), timeout=timeout
            )
            with lasting as (answer, pieces):
                self._raise_for(answer)
                if answer.headers.get("content-encoding", "identity") != "identity":
                    raise self._foreign(answer)
                yield pieces
        except _REFUSED as error:
            self._check_proof(error)
            self._moved()
            raise self._unreachable() from error
        except httpx.TransportError as error:
            raise Unavailable(f"{self.url} broke off the stream") from error

    def decoded(self, kind: type[T], answer: httpx.Response) -> T:
        """The body of ``answer`` as a ``kind``."""
        try:
            with DECODING:
                return decode(answer.content, kind)
        except msgspec.MsgspecError as error:
            if self._is_foreign(answer):
                raise self._foreign(answer) from error
            message = f"{self.url} answers in a form unknown to this client: {error}"
            raise TopmastError(f"{message}; do both have the same version?") from error

    def _locate_all(self) -> bool:
        """Whether the servers are to be found at other URLs by now."""
        before, self._urls = self._urls, self._locate().split(",")
        return before != self._urls

    def _moved(self) -> bool:
        """Whether the server may be at another URL by now; it is asked there next."""
        try:
            anew = self._locate_all()
        except TopmastError:
            return False
        if anew:
            self.url = self._urls[0]
        elif len(self._urls) > 1:
            self._next()
        return anew

    def _next(self) -> None:
        at = self._urls.index(self.url) if self.url in self._urls else -1
        self.url = self._urls[(at + 1) % len(self._urls)]

    def _follow(self, leader: str) -> bool:
        """Turn to the leader that a standby named; False if it is time to wait for one first."""
        if leader and leader != self.url and is_loopback(leader) == is_loopback(self.url):
            self.url = leader
            return True
        self._next()
        return False

    def _unreachable(self) -> Unavailable:
        return Unavailable(f"no Topmast server answers at {self.url}; {REMEDY}")

    def _check_proof(self, error: httpx.TransportError) -> None:
        """Raise Unavailable if a server is there, and has no certificate, or not the right one."""
        if any(words in str(error) for words in _NO_TLS):
            plain = f"http:{self.url.removeprefix('https:')}"
            raise Unavailable(f"{self.url} speaks no TLS; write {plain}") from error
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise Unavailable(
                f"{self.url} does not prove itself: {error}; if its certificate is of your own "
                "authority, set SSL_CERT_FILE to the file with that"
            ) from error

    def _check_plain(self, error: httpx.TransportError, again: bool) -> None:
        """Raise Unavailable if the server asks for TLS: it drops what speaks without for ever."""
        known = again or bool(self._awake) or isinstance(error, httpx.TimeoutException)
        if not known and self.url.startswith("http:") and speaks_tls(self.url):
            secure = f"https:{self.url.removeprefix('http:')}"
            raise Unavailable(f"{self.url} asks for TLS; write {secure}") from error

    def _broken(self, error: httpx.TransportError, within_s: float) -> Unavailable:
        if isinstance(error, httpx.TimeoutException):
            return Unavailable(f"{self.url} did not answer within {within_s:g} s")
        if isinstance(error, httpx.RemoteProtocolError) and str(error).startswith("the answer is"):
            return Unavailable(f"what answers at {self.url} is not a Topmast server: {error}")
        if isinstance(error, httpx.ProxyError | httpx.UnsupportedProtocol):
            return Unavailable(f"cannot connect to {self.url}: {error}")
        return Unavailable(f"{self.url} dropped the connection before it answered")

    def _raise_for(self, answer: httpx.Response) -> None:
        if answer.status_code < 300:
            return
        if answer.status_code < 400 or self._is_foreign(answer):
            raise self._foreign(answer)
        problem = problem_of(answer)
        error = self._error_of(answer, problem)
        error.problem = problem
        raise error

    def _error_of(self, answer: httpx.Response, problem: Problem) -> TopmastError:
        """The error that a server told."""
        text = problem.detail or problem.title
        status = answer.status_code
        if status in (400, 413, 422):
            refusal = InvalidInput(text, field=problem.field, remedy=problem.remedy)
            refusal.more = tuple(
                InvalidInput(fault.detail, field=fault.field, remedy=fault.remedy)
                for fault in (problem.errors or ())[1:]
            )
            return refusal
        if status in (401, 403):
            return Forbidden(text, (status == 401 and why_none()) or problem.remedy)
        if problem.remedy:
            text = f"{text} ({problem.remedy})"
        if status == 404:
            absent = NotFound(text, field=problem.field)
            others = (problem.errors or ())[1:]
            absent.more = tuple(NotFound(one.detail, field=one.field) for one in others)
            return absent
        if status == 409:
            return Conflict(text)
        if status in (429, 502, 503, 504, 507):
            return Unavailable(text)
        if status < 500:
            return TopmastError(text)
        return TopmastError(f"the server at {self.url} failed: {text}")

    def _is_foreign(self, answer: httpx.Response) -> bool:
        """Whether the answer cannot come from Topmast: a page, say."""
        return "json" not in answer.headers.get("content-type", "json")

    def _foreign(self, answer: httpx.Response) -> Unavailable:
        status = f"{answer.status_code} {answer.reason_phrase}".strip()
        path = answer.request.url.path
        return Unavailable(
            f"what answers at {self.url} is not a Topmast server ({status} for {path})"
        )


def path_of(*parts: str) -> str:
    """The path of a resource. Raises NotFound for a name that would lead elsewhere."""
    for part in parts:
        if part in ("", ".", ".."):
            raise NotFound(f"nothing is named {part!r}")
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def why(reason: str, dry_run: bool) -> dict[str, object]:
    """The fields of a request for these, as far as they say anything."""
    return ({"reason": reason} if reason else {}) | ({"dry_run": True} if dry_run else {})


def client_backoff() -> Backoff:
    """The pauses of a client between its requests."""
    return Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)


def patiently(ask: Callable[[], T], patience_s: float) -> T:
    """What ``ask`` returns, asked again while the server is away, for up to ``patience_s``."""
    deadline_s, backoff = time.monotonic() + patience_s, client_backoff()
    while True:
        try:
            return ask()
        except Unavailable:
            if time.monotonic() + backoff.next_s > deadline_s:
                raise
        time.sleep(backoff.take())


def _age_s(answer: httpx.Response) -> float | None:
    """How old an answer is; None for one of the leader."""
    with suppress(KeyError, ValueError):
        return float(answer.headers[AGE])
    return None
