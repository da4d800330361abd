"""Requests to the process at the other end of a link."""

from __future__ import annotations

import ipaddress
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from topmast.adapters.answers import HEADERS, bounded, exchange
from topmast.adapters.link.wire import PREFIX
from topmast.model.decoding import decode
from topmast.model.errors import Unavailable
from topmast.runtime.relay import OTHER_VERSION

CONNECT_S = 2.0
ANSWER_S = 5.0
NOT_UNDERSTOOD = 422


class NotUnderstood(Unavailable):
    """The other end cannot read what it was sent: as a rule it is of another version."""


def is_loopback(url: str) -> bool:
    """Whether a URL names this machine."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Peer:
    """One HTTP client of the other end. Every failure is `Unavailable`, in words for people.

    ``url`` may name several servers, with commas between them: the one that leads is asked.
    """

    def __init__(
        self,
        region: str,
        url: str,
        token: str = "",
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._urls = [one.rstrip("/") for one in url.split(",")]
        self._path = f"{PREFIX}/{region}"
        self.url = self._urls[0]
        self._http = bounded(
            httpx.Client(
                timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
                transport=transport,
                trust_env=not is_loopback(self.url),
                headers={"Authorization": f"Bearer {token}", **HEADERS} if token else HEADERS,
            )
        )

    def post(self, body: bytes) -> bytes:
        """Send a batch; its receipt."""
        return self._send("POST", "", content=body, headers={"Content-Type": "application/json"})

    def ask(self, path: str, body: bytes) -> bytes:
        """The answer to a question with a body."""
        return self._send("POST", path, content=body, headers={"Content-Type": "application/json"})

    def get(self, path: str, params: dict[str, str | int] | None = None) -> bytes:
        """What the other end has at ``path``."""
        return self._send("GET", path, params=params)

    def _send(self, method: str, path: str, **more: Any) -> bytes:
        """Ask one server after the other, beginning with the last that answered."""
        for _ in self._urls[1:]:
            try:
                return self._ask(method, path, **more)
            except Unavailable:
                at = self._urls.index(self.url)
                self.url = self._urls[(at + 1) % len(self._urls)]
        return self._ask(method, path, **more)

    def _ask(self, method: str, path: str, **more: Any) -> bytes:
        try:
            where = f"{self.url}{self._path}{path}"
            answer = exchange(self._http, method, where, ANSWER_S, **more)
        except httpx.TimeoutException:
            raise Unavailable(f"{self.url} does not answer in time") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unavailable(f"{self.url} cannot be reached: {error}") from None
        if answer.status_code != 200:
            kind = NotUnderstood if answer.status_code == NOT_UNDERSTOOD else Unavailable
            told = f"{self.url} answers {answer.status_code}: {_detail(answer)}"
            if told.endswith(f"nothing is at {self._path}{path}"):
                raise NotUnderstood(f"{self.url} {OTHER_VERSION}")
            raise kind(told)
        return answer.content

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def _detail(answer: httpx.Response) -> str:
    """The one line that a problem document has for people."""
    try:
        return str(decode(answer.content, dict[str, object])["detail"])
    except (msgspec.DecodeError, KeyError):
        return answer.reason_phrase
