"""Reading the answers of a server that may mean no good: bounded in size and in time."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

MOST_BYTES = 256 * 1024 * 1024
"""Of an answer; the list of 100,000 hosts is a tenth of it."""
HEADERS = {"Accept-Encoding": "identity"}
"""Sent with each request: a compressed answer could be a thousand times its size in transfer."""
SLOWEST_BYTES_PER_S = 32 * 1024
"""A request has this much longer for its body: a work folder may go over a slow line."""
WRITE_BYTES = 64 * 1024

_this_thread = threading.local()


def bounded(client: httpx.Client) -> httpx.Client:
    """The client, with every read and write of its sockets kept within the time of its exchange.

    httpx bounds each single read: a server that sends a byte a second, or one interim answer
    after the other, would never use up the time of one. It has no public place for this.
    """
    for transport in (client._transport, *client._mounts.values()):
        if isinstance(transport, httpx.HTTPTransport):
            pool: Any = transport._pool
            pool._network_backend = _Network(pool._network_backend)
    return client


@contextmanager
def _within(limit_s: float) -> Iterator[None]:
    """The sockets that this thread reads and writes meanwhile have ``limit_s`` in all."""
    _this_thread.until_s = time.monotonic() + limit_s
    try:
        yield
    finally:
        _this_thread.until_s = math.inf


def _left(timeout_s: float | None) -> float | None:
    """The time that a read or write of this thread has."""
    left_s = getattr(_this_thread, "until_s", math.inf) - time.monotonic()
    if left_s <= 0:
        raise httpx.ReadTimeout("the answer does not end")
    return timeout_s if left_s == math.inf else min(left_s, timeout_s or math.inf)


class _Network:
    """As httpcore's network backend."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, **more: Any
    ) -> _Stream:
        return _Stream(self._inner.connect_tcp(host, port, timeout=_left(timeout), **more))

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)


class _Stream:
    """As httpcore's network stream."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data: bytes = self._inner.read(max_bytes, timeout=_left(timeout))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), WRITE_BYTES):
            self._inner.write(buffer[start : start + WRITE_BYTES], timeout=_left(timeout))

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> _Stream:
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, _left(timeout)))

    def close(self) -> None:
        self._inner.close()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def exchange(
    client: httpx.Client,
    method: str,
    url: str,
    within_s: float,
    *,
    content: bytes | None = None,
    **more: Any,
) -> httpx.Response:
    """The answer to a request, with all of its body, of a client that is `bounded`.

    Raises httpx.TransportError for an answer that is too large or too slow.
    """
    limit_s = within_s + len(content or b"") / SLOWEST_BYTES_PER_S
    with _within(limit_s), client.stream(method, url, content=content, **more) as arriving:
        return _whole(arriving)


def _whole(answer: httpx.Response) -> httpx.Response:
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise httpx.RemoteProtocolError("the answer is compressed, which was not asked for")
    if answer.is_stream_consumed:  # by a transport that had it whole
        return answer
    data = bytearray()
    for piece in answer.iter_raw():
        data += piece
        if len(data) > MOST_BYTES:
            raise httpx.RemoteProtocolError(f"the answer is larger than {MOST_BYTES:,} bytes")
    return httpx.Response(
        answer.status_code,
        headers=answer.headers,
        content=bytes(data),
        request=answer.request,
        extensions=answer.extensions,
    )


@contextmanager
def opened(
    client: httpx.Client, url: str, silence_s: float, **more: Any
) -> Iterator[tuple[httpx.Response, Iterator[bytes]]]:
    """An answer that may last, and its pieces; one that is refused comes whole, and has none.

    No piece may take longer than ``silence_s`` to arrive, nor what comes before the first.
    """
    request = client.build_request("GET", url, **more)
    with _within(silence_s):
        arriving = client.send(request, stream=True)
    try:
        if arriving.status_code < 300:
            yield arriving, _pieces(arriving, silence_s)
            return
        with _within(silence_s):
            answer = _whole(arriving)
        yield answer, iter(())
    finally:
        arriving.close()


def _pieces(answer: httpx.Response, silence_s: float) -> Iterator[bytes]:
    arriving = answer.iter_raw()
    while True:
        with _within(silence_s):
            piece = next(arriving, None)
        if piece is None:
            return
        yield piece
