"""The event stream, whole and broken."""

from itertools import islice

import msgspec
import pytest

from tests.unit.client.fake import DROP, Answer, FakeServer, problem
from topmast.client import Client
from topmast.client.events import messages
from topmast.model.errors import NotFound, Unavailable
from topmast.model.views import EventView

STREAM = {"Content-Type": "text/event-stream"}


def event(seq: int, text: str = "began") -> EventView:
    return EventView(seq, 1.0, "job", "j1", text, {})


def stream(*events: EventView, rest: bytes = b"") -> Answer:
    """A stream that sends events and then breaks off."""
    lines = [
        b"id: %d\nevent: %s\ndata: %s\n\n" % (e.seq, e.kind.encode(), msgspec.json.encode(e))
        for e in events
    ]
    return Answer(b": hello\n\n" + b"".join(lines) + rest, 200, STREAM)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_messages_are_put_together(size: int) -> None:
    """However the bytes arrive, the messages are the same; half a message is none."""
    text = (
        b": beat\n\nid: 1\ndata: a\ndata:b\r\n\r\ndata: \xe2\x80\xa8c\n\nretry: 3\n\ndata: half\n"
    )
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert list(messages(pieces)) == [b"a\nb", b"\xe2\x80\xa8c"]


def test_goes_on_where_it_broke_off(server: FakeServer, client: Client) -> None:
    """A new connection asks for what comes after the last event; what comes twice is told once."""
    first = stream(event(1), event(2, "line\u2028break"), rest=b"data: {half")
    server.on("GET", "/events", first, DROP, stream(event(2), event(3)))
    found = list(islice(client.events(), 3))
    assert [one.seq for one in found] == [1, 2, 3]
    assert found[1].text == "line\u2028break"
    asked = server.asked("GET", "/events")
    assert [request.query for request in asked] == [{}, {"after": "2"}, {"after": "2"}]
    assert asked[2].headers["last-event-id"] == "2"


def test_starts_where_the_caller_stopped(server: FakeServer, client: Client) -> None:
    """A program that keeps the number of the last event misses none."""
    server.on("GET", "/events", stream(event(8)))
    assert next(client.events(after=7)).seq == 8
    assert server.requests[0].query == {"after": "7"}


def test_no_server_no_stream() -> None:
    """What was never there is not waited for."""
    with Client("http://127.0.0.1:1") as client, pytest.raises(Unavailable, match="no Topmast"):
        next(client.events())


def test_a_refused_stream_is_an_error(server: FakeServer, client: Client) -> None:
    """An error of the server ends the iteration."""
    server.on("GET", "/events", problem(404, "no events here"))
    with pytest.raises(NotFound, match="no events here"):
        next(client.events())
