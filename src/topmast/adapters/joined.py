"""A connection that sends the head of an answer together with the beginning of its body."""

from __future__ import annotations

import asyncio
from typing import Any


class Joined:
    """A transport; as a rule an answer leaves in one piece, which the client reads at once.

    Two would be two calls of the system, two packets, and two wake-ups of the client.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head_comes = False
        self._held = b""

    def __getattr__(self, name: str) -> Any:
        """All else is the transport's own."""
        return getattr(self._transport, name)

    def head_comes(self) -> None:
        """The next that is written is a head: what follows at once is sent with it."""
        self._head_comes = True

    def write(self, data: bytes) -> None:
        """Send data; a head waits for what the application writes before it waits itself."""
        if self._head_comes:
            self._head_comes, self._held = False, data
            self._loop.call_soon(self._flush)
        elif self._held:
            held, self._held = self._held, b""
            self._transport.write(held + data)
        else:
            self._transport.write(data)

    def is_closing(self) -> bool:
        """Whether nothing more can be sent."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Send what is held, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._held and not self._transport.is_closing():
            self._transport.write(self._held)
        self._held = b""
