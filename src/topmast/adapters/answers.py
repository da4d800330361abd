"""Reading the answers of a server that may mean no good: bounded in size and in time."""

from __future__ import annotations

import time

import httpx

MOST_BYTES = 256 * 1024 * 1024
"""Of an answer; the list of 100,000 hosts is a tenth of it."""
HEADERS = {"Accept-Encoding": "identity"}
"""To be sent with each request: a compressed answer could be a thousand times as large as what arrives."""


def read_answer(answer: httpx.Response, within_s: float) -> httpx.Response:
    """An answer with all of its body. Raises httpx.TransportError for one that is too large or too slow."""
    until_s = time.monotonic() + within_s
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise httpx.RemoteProtocolError("the answer is compressed, which was not asked for")
    if answer.is_stream_consumed:  # by a transport that had it whole
        return answer
    data = bytearray()
    for piece in answer.iter_raw():
        data += piece
        if len(data) > MOST_BYTES:
            raise httpx.RemoteProtocolError(f"the answer is larger than {MOST_BYTES:,} bytes")
        if time.monotonic() > until_s:
            raise httpx.ReadTimeout("the answer does not end")
    return httpx.Response(
        answer.status_code,
        headers=answer.headers,
        content=bytes(data),
        request=answer.request,
        extensions=answer.extensions,
    )
