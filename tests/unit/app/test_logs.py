"""Log lines for machines."""

import asyncio
import json

import httpx
import pytest
import structlog
from starlette.types import Receive, Scope, Send

from topmast.api.guard import Guard, LoopbackGate
from topmast.app.server import configure_logs


async def ask() -> httpx.Response:
    """The answer of a server that logs a line about a request."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        structlog.get_logger("test").warning("that was odd", cluster="a\nb")
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    transport = httpx.ASGITransport(Guard(app, "", LoopbackGate("ann")))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        return await client.get("/x")


def test_a_line_is_an_object_with_its_request_and_actor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person who has the answer finds the lines about it."""
    monkeypatch.setenv("TOPMAST_LOG", "json")
    configure_logs()
    try:
        answer = asyncio.run(ask())
        structlog.get_logger("test").info("later")
    finally:
        structlog.reset_defaults()
    about, later = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert about.pop("timestamp")
    assert about == {
        "event": "that was odd", "level": "warning", "cluster": "a\nb",
        "request": answer.headers["X-Request-Id"], "actor": "user:ann",
    }  # fmt: skip
    assert later.keys() == {"event", "level", "timestamp"}


def test_lines_are_for_people_otherwise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they always were."""
    monkeypatch.delenv("TOPMAST_LOG", raising=False)
    configure_logs()
    try:
        structlog.get_logger("test").info("that was odd")
    finally:
        structlog.reset_defaults()
    assert "that was odd" in capsys.readouterr().err
