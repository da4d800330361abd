"""Answers of which head and body leave in one piece."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from topmast.adapters.joined import Joined

HEAD, BODY = b"HTTP/1.1 200 OK\r\n\r\n", b"ok"


class Wire(asyncio.Transport):
    """Keeps each piece that the system would be given."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """One piece."""
        assert not self.closed
        self.pieces.append(bytes(data))

    def is_closing(self) -> bool:
        """Whether it is."""
        return self.closed

    def close(self) -> None:
        """It is."""
        self.closed = True

    abort = close


async def _at_once(joined: Joined) -> None:
    joined.head_comes()
    joined.write(HEAD)
    joined.write(BODY)


async def _later(joined: Joined) -> None:
    joined.head_comes()
    joined.write(HEAD)
    await asyncio.sleep(0.01)
    joined.write(BODY)


async def _more(joined: Joined) -> None:
    await _at_once(joined)
    joined.write(BODY)


async def _closed(joined: Joined) -> None:
    joined.head_comes()
    joined.write(HEAD)
    joined.close()


async def _two(joined: Joined) -> None:
    await _at_once(joined)
    await _at_once(joined)


async def _aborted(joined: Joined) -> None:
    joined.head_comes()
    joined.write(HEAD)
    joined.abort()


async def _continue(joined: Joined) -> None:
    joined.write(b"100")
    await _at_once(joined)


@pytest.mark.parametrize(
    ("story", "want"),
    [
        (_at_once, [HEAD + BODY]),
        (_later, [HEAD, BODY]),
        (_more, [HEAD + BODY, BODY]),
        (_closed, [HEAD]),
        (_two, [HEAD + BODY, HEAD + BODY]),
        (_aborted, []),
        (_continue, [b"100", HEAD + BODY]),
    ],
    ids=[
        "a body behind its head",
        "a body that comes later keeps no head back",
        "only the beginning of a body",
        "a head without a body leaves before the end",
        "each answer by itself",
        "nothing is sent to a client that left",
        "what comes before a head",
    ],
)
def test_pieces(story: Callable[[Joined], Awaitable[None]], want: list[bytes]) -> None:
    """All that is written leaves, in its order, and a head with what follows at once."""
    wire, wrong = Wire(), list[str]()

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, of: wrong.append(str(of)))
        await story(Joined(wire, asyncio.get_running_loop()))
        await asyncio.sleep(0.01)

    asyncio.run(run())
    assert (wire.pieces, wrong) == (want, [])
