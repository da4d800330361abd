"""Requests to the process at the other end of a link."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

import httpx

from topmast.adapters.answers import HEADERS, read_answer
from topmast.adapters.link.wire import PREFIX
from topmast.model.errors import Unavailable

CONNECT_S = 2.0
ANSWER_S = 5.0


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
    """One HTTP client of the other end. Every failure is `Unavailable`, in words for people."""

    def __init__(
        self,
        region: str,
        url: str,
        token: str = "",
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._base = f"{self.url}{PREFIX}/{region}"
        self._http = httpx.Client(
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            transport=transport,
            trust_env=not is_loopback(url),
            headers={"Authorization": f"Bearer {token}", **HEADERS} if token else HEADERS,
        )

    def post(self, body: bytes) -> bytes:
        """Send a batch; its receipt."""
        return self._send("POST", "", content=body, headers={"Content-Type": "application/json"})

    def get(self, path: str, params: dict[str, str | int] | None = None) -> bytes:
        """What the other end has at ``path``."""
        return self._send("GET", path, params=params)

    def _send(self, method: str, path: str, **more: object) -> bytes:
        try:
            url = f"{self._base}{path}"
            with self._http.stream(method, url, **more) as arriving:  # type: ignore[arg-type]
                answer = read_answer(arriving, ANSWER_S)
        except httpx.TimeoutException:
            raise Unavailable(f"{self.url} does not answer in time") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unavailable(f"{self.url} cannot be reached: {error}") from None
        if answer.status_code != 200:
            raise Unavailable(f"{self.url} answers {answer.status_code}: {_detail(answer)}")
        return answer.content

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def _detail(answer: httpx.Response) -> str:
    """The one line that a problem document has for people."""
    try:
        return str(answer.json()["detail"])
    except (ValueError, LookupError, TypeError):
        return answer.reason_phrase
