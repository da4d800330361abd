"""Several servers, one of which leads: a client finds it, and goes along when another takes over."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.unit.client.fake import Answer, FakeServer, job
from topmast.client import Client
from topmast.model import views
from topmast.model.errors import Unavailable

Pair = tuple[FakeServer, FakeServer]


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        yield stack.enter_context(FakeServer()), stack.enter_context(FakeServer())


def stands_by(leader: str = "") -> Answer:
    """The answer of a server that does not lead; it may know which one does."""
    body = views.Problem("about:blank", "Unavailable", 503, "stands by", leader=leader)
    return Answer(body, 503, {"Content-Type": "application/problem+json"})


def accepted(identity: str) -> Answer:
    return Answer(views.Receipt(identity, "job"), 201)


def test_a_client_goes_to_the_leader_that_a_standby_names(pair: Pair) -> None:
    """Also to one that it was not told of; and asks it at once from then on."""
    standby, leader = pair
    standby.on("GET", "/jobs/j1", stands_by(leader.url))
    leader.on("GET", "/jobs/j1", job())
    with Client(standby.url) as client:
        assert client.job("j1").id == client.job("j1").id == "j1"
    asked = [len(server.asked("GET", "/jobs/j1")) for server in (standby, leader)]
    assert asked == [1, 2]


def test_a_submission_is_repeated_at_the_leader_with_its_key(pair: Pair) -> None:
    standby, leader = pair
    standby.on("POST", "/jobs", stands_by(leader.url))
    leader.on("POST", "/jobs", accepted("j7"))
    with Client(f"{standby.url},{leader.url}") as client:
        assert client.submit({"run": "true"}).id == "j7"
    sent = [server.asked("POST", "/jobs") for server in pair]
    keys = {request.headers["idempotency-key"] for requests in sent for request in requests}
    assert [len(requests) for requests in sent] == [1, 1]
    assert len(keys) == 1
    assert sent[0][0].body == sent[1][0].body


def test_a_client_waits_while_none_leads(pair: Pair) -> None:
    """It asks one after the other until one of them has taken over."""
    first, second = pair
    first.on("GET", "/jobs/j1", stands_by())
    second.on("GET", "/jobs/j1", stands_by(), stands_by(), job())
    with Client(f"{first.url},{second.url}") as client:
        assert client.job("j1").id == "j1"
    assert len(second.asked("GET", "/jobs/j1")) == 3


def test_two_that_name_each_other_are_not_asked_for_ever(pair: Pair) -> None:
    """Each knows only what was; the client gives up in time, in words of the server."""
    first, second = pair
    first.on("GET", "/jobs/j1", stands_by(second.url))
    second.on("GET", "/jobs/j1", stands_by(first.url))
    with (
        Client(f"{first.url},{second.url}", timeout_s=1.0) as client,
        pytest.raises(Unavailable, match="stands by"),
    ):
        client.job("j1")
    assert len(first.requests) + len(second.requests) < 25


def test_a_server_that_stands_still_is_passed_over(pair: Pair) -> None:
    """Its machine takes connections all the same. Also where the other still names it for a while."""
    second, third = pair
    with socket.create_server(("127.0.0.1", 0)) as still:
        first = f"http://127.0.0.1:{still.getsockname()[1]}"
        second.on("GET", "/jobs/j1", stands_by(first), job())
        third.on("GET", "/jobs/j1", stands_by(first))
        with Client(f"{first},{second.url},{third.url}", timeout_s=8.0) as client:
            assert client.job("j1").id == "j1"
            assert client.job("j1").id == "j1"
    asked = [request.path for server in pair for request in server.requests]
    assert asked.count("/livez") <= 4


def test_one_that_stands_still_later_is_passed_over_by_the_next_request(pair: Pair) -> None:
    """A request that has waited for it may have been carried out, and is told as it was."""
    _, second = pair
    second.on("GET", "/jobs/j1", job())
    with socket.create_server(("127.0.0.1", 0)) as still:
        first = f"http://127.0.0.1:{still.getsockname()[1]}"
        with Client(f"{first},{second.url}", timeout_s=1.0) as client:
            client._transport._awake = first
            with pytest.raises(Unavailable, match="did not answer within 1 s"):
                client.job("j1")
            assert client.job("j1").id == "j1"


def test_a_leader_that_has_gone_is_followed_by_the_other(pair: Pair) -> None:
    first, second = pair
    first.on("GET", "/jobs/j1", job())
    second.on("GET", "/jobs/j1", job())
    gone = FakeServer()
    with gone:
        url = gone.url
        gone.on("GET", "/jobs/j1", stands_by(first.url))
    with Client(f"{url},{first.url},{second.url}") as client:
        assert client.job("j1").id == "j1"


def test_a_server_on_this_machine_sends_no_client_elsewhere(pair: Pair) -> None:
    """What it names is asked only if it is as near as itself: a token must not leave the machine."""
    first, second = pair
    second.on("GET", "/jobs/j1", job())
    first.on("GET", "/jobs/j1", stands_by("http://192.0.2.1:6278"), stands_by(second.url))
    with Client(first.url) as client:
        assert client.job("j1").id == "j1"
    assert len(first.requests) == 2


def test_a_busy_server_that_leads_is_not_left(pair: Pair) -> None:
    """A 503 that names no leader is an answer like any other."""
    first, second = pair
    body = views.Problem("about:blank", "Unavailable", 503, "starting")
    first.on("GET", "/jobs/j1", Answer(body, 503, {"Content-Type": "application/problem+json"}))
    second.on("GET", "/jobs/j1", job())
    with (
        Client(f"{first.url},{second.url}") as client,
        pytest.raises(Unavailable, match="starting"),
    ):
        client.job("j1")
