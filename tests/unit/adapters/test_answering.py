"""Requests whose client leaves, or whose server stops: what waits ends, what has begun is finished."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import structlog.testing
import uvicorn
from starlette.types import Receive, Scope, Send

from topmast.adapters import connections
from topmast.adapters.answering import LEFT, STOPS, asked_for, locked, reading, refuse_unwanted
from topmast.adapters.connections import BoundedServer, Connections
from topmast.model.errors import Unavailable


class House:
    """A server whose requests have one turn, which `/act` holds until it is told to end."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.may_end = asyncio.Event()
        self.begun: list[str] = []
        self.done: list[str] = []
        self.refused: list[str] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        name = scope["path"]
        try:
            if name == "/slow":
                await asyncio.sleep(60)
            elif name.startswith("/child"):  # others may wait for the same
                await asyncio.shield(asyncio.ensure_future(self.act(name)))
            elif name == "/look":
                with reading():
                    await self._do(name)
            elif name == "/half":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await asyncio.sleep(60)
            else:
                await self.act(name)
        except Unavailable as error:
            self.refused.append(str(error))
        body = name.encode()
        length = (b"content-length", b"%d" % len(body))
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": body})

    async def act(self, name: str) -> None:
        """Do something that takes its turn."""
        async with locked(self.turn):
            await self._do(name)

    async def _do(self, name: str) -> None:
        self.begun.append(name)
        await self.may_end.wait()
        self.done.append(name)

    async def open(self) -> None:
        """Begin to serve."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = listener.getsockname()
        config = uvicorn.Config(self.app, lifespan="off", ws="none", log_config=None,
                                timeout_graceful_shutdown=20)  # fmt: skip
        self.server = BoundedServer(config, Connections(2_000))
        self.task = asyncio.create_task(self.server.serve(sockets=[listener]))

    async def ask(
        self, name: str, method: str = "GET"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A client that has asked for something."""
        reader, writer = await asyncio.open_connection(*self.address)
        self._writers.append(writer)
        writer.write(f"{method} /{name} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        return reader, writer

    async def stop(self) -> float:
        """Have it stop, and how many seconds that takes."""
        now_s = asyncio.get_running_loop().time
        begun_s = now_s()
        self.server.should_exit = True
        await self.task
        return now_s() - begun_s


async def until(what: Callable[[], object]) -> None:
    """Wait for something."""
    for _ in range(4_000):
        if what():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come")


Told = Callable[[Callable[[House], Awaitable[None]]], None]


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Told:
    """Runs a story to its end; nothing may go wrong beside it, nor be told by the server."""

    def run(story: Callable[[House], Awaitable[None]]) -> None:
        wrong: list[str] = []

        async def whole() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, of: wrong.append(str(of)))
            house = House()
            await house.open()
            try:
                await asyncio.wait_for(story(house), 30)
            finally:
                house.may_end.set()
                if not house.task.done():
                    await house.stop()

        asyncio.run(whole())
        assert not wrong
        assert [line for line in caplog.records if line.levelno > logging.INFO] == []

    return run


def test_a_request_whose_client_leaves_before_its_turn_is_not_begun(told: Told) -> None:
    async def story(house: House) -> None:
        await house.ask("first")
        await until(lambda: house.begun)
        (_, leaves), (stays, _) = await house.ask("leaves"), await house.ask("stays")
        await asyncio.sleep(0.1)
        leaves.close()
        await until(lambda: house.refused)
        assert house.refused == [LEFT]
        house.may_end.set()
        assert (await stays.read(12)) == b"HTTP/1.1 200"
        assert house.begun == house.done == ["/first", "/stays"]

    told(story)


def test_what_has_begun_is_finished_though_its_client_leaves(told: Told) -> None:
    async def story(house: House) -> None:
        _, leaves = await house.ask("first")
        await until(lambda: house.begun)
        leaves.transport.abort()
        await asyncio.sleep(0.1)
        house.may_end.set()
        await until(lambda: house.done)
        assert not house.refused
        await house.ask("next")
        await until(lambda: len(house.done) == 2)

    told(story)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_look_ends_with_a_client_that_only_reads(told: Told, method: str) -> None:
    """What changes something looks at the end whether it did, and is not cut in two by that."""

    async def story(house: House) -> None:
        _, writer = await house.ask("look", method)
        await until(lambda: house.begun)
        writer.transport.abort()
        if method == "GET":
            await until(lambda: house.refused)
        else:
            await asyncio.sleep(0.2)
        house.may_end.set()
        await asyncio.sleep(0.05)
        assert house.refused == ([LEFT] if method == "GET" else [])
        assert house.done == ([] if method == "GET" else ["/look"])

    told(story)


def test_what_others_may_wait_for_too_does_not_end_with_one_client(told: Told) -> None:
    async def story(house: House) -> None:
        await house.ask("first")
        await until(lambda: house.begun)
        _, leaves = await house.ask("child")
        await asyncio.sleep(0.1)
        leaves.close()
        await asyncio.sleep(0.1)
        house.may_end.set()
        await until(lambda: house.done == ["/first", "/child"])
        assert not house.refused

    told(story)


def test_a_stop_ends_a_thousand_requests_that_wait_and_lets_the_one_that_has_begun_finish(
    told: Told,
) -> None:
    async def story(house: House) -> None:
        first, _ = await house.ask("first")
        await until(lambda: house.begun)
        others = [await house.ask(f"{n}") for n in range(1_000)]
        await asyncio.sleep(0.3)
        asyncio.get_running_loop().call_later(0.5, house.may_end.set)
        with structlog.testing.capture_logs() as lines:
            took_s = await house.stop()
        assert took_s < connections.STOP_S
        assert [line["requests"] for line in lines] == [1_000]
        assert house.done == house.begun == ["/first"]
        assert house.refused == [STOPS] * 1_000
        for reader, _ in (first, None), *others:
            assert (await reader.read()).startswith(b"HTTP/1.1 200")

    told(story)


def test_a_stop_cuts_off_what_does_not_end_by_itself(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is told so, if its answer has not begun; the log has one line and no traceback."""
    monkeypatch.setattr(connections, "STOP_S", 0.3)

    async def story(house: House) -> None:
        slow = [await house.ask("slow") for _ in range(50)]
        half, _ = await house.ask("half")
        assert (await half.readline()) == b"HTTP/1.1 200 OK\r\n"
        with structlog.testing.capture_logs() as lines:
            assert 0.3 <= await house.stop() < 10
        assert [(line["log_level"], line["requests"]) for line in lines] == [("warning", 51)]
        for reader, _ in slow:
            head, body = (await reader.read()).split(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503")
            assert json.loads(body)["detail"] == STOPS
        with suppress(ConnectionResetError):
            assert not (await half.read()).endswith(b"\r\n0\r\n\r\n")  # it has no end

    told(story)


def test_a_task_without_a_client_is_always_wanted() -> None:
    async def story() -> None:
        assert asked_for() is None
        refuse_unwanted()
        async with locked(asyncio.Lock()):
            pass

    asyncio.run(story())
