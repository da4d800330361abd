"""A cheap client, so that the server is what is measured: HTTP/1.1 over asyncio streams."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

import msgspec

from topmast.model.errors import TopmastError


class Connection:
    """One kept-alive connection; one request at a time."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        """Connect."""
        host, port = self._address.hostname, self._address.port
        self._reader, self._writer = await asyncio.open_connection(host, port, limit=1 << 26)

    async def post(self, path: str, document: Any, key: str = "") -> Any:
        """POST a JSON document; returns the JSON answer. TopmastError for an error status."""
        assert self._reader is not None
        assert self._writer is not None
        body = msgspec.json.encode(document)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self._address.netloc}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        )
        if key:
            head += f"Idempotency-Key: {key}\r\n"
        self._writer.write(head.encode() + b"\r\n" + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        lines = answer.decode("latin-1").lower().split("\r\n")
        status = int(lines[0].split()[1])
        length = next(int(x.split(":")[1]) for x in lines if x.startswith("content-length:"))
        content = await self._reader.readexactly(length)
        if status >= 400:
            raise TopmastError(f"{path} answered {status}: {content.decode(errors='replace')}")
        return msgspec.json.decode(content)

    def close(self) -> None:
        """Hang up."""
        if self._writer is not None:
            self._writer.close()
