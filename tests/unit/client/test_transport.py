"""Errors that people can read, and repetitions that do no harm."""

import json
import socket
import ssl
import threading
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.certificates import write_certificate
from tests.unit.client.fake import DROP, Answer, FakeServer, job, problem
from topmast.client import Client
from topmast.model.act_views import JobsActed
from topmast.model.errors import Conflict, InvalidInput, NotFound, TopmastError, Unavailable
from topmast.model.views import Fault


@dataclass(frozen=True)
class Case:
    story: str
    answer: Answer
    want: type[TopmastError]
    want_text: str


PAGE = {"Content-Type": "text/html"}
CASES = [
    Case(
        "a field is wrong",
        problem(422, "is not a name", field="name", remedy="use letters"),
        InvalidInput, "name: is not a name (use letters)",
    ),
    Case("not understood", problem(400, "no JSON"), InvalidInput, "no JSON"),
    Case("too large", problem(413, "at most 100 MiB"), InvalidInput, "at most 100 MiB"),
    Case("not there", problem(404, "no job j9"), NotFound, "no job j9"),
    Case("not now", problem(409, "the key was used"), Conflict, "the key was used"),
    Case("busy", problem(503, "starting", remedy="wait"), Unavailable, "starting (wait)"),
    Case("a bug", problem(500, "oops"), TopmastError, "the server at {url} failed: oops"),
    Case("a bug, no more", Answer({}, 500), TopmastError, "500 Internal Server Error"),
    Case("a page", Answer(b"<p>hi", 200, PAGE), Unavailable, "not a Topmast server (200 OK"),
    Case("no such page", Answer(b"<p>no", 404, PAGE), Unavailable, "not a Topmast server (404"),
    Case("moved", Answer(b"", 302, {"Location": "/x"}), Unavailable, "not a Topmast server (302"),
    Case("another form", Answer({"id": 3}), TopmastError, "do both have the same version?"),
    Case("no JSON", Answer(b"{"), TopmastError, "do both have the same version?"),
    Case("problems of a kind", Answer([1], 400), InvalidInput, "400 Bad Request"),
]  # fmt: skip


def test_all_errors_of_a_document_are_told(server: FakeServer, client: Client) -> None:
    """The first is the error, and has the others."""
    faults = (Fault("is no number", "skew", "0.7"), Fault("unknown field", "x"))
    server.on("GET", "/jobs/j1", problem(422, "is no number", "skew", "0.7", faults))
    with pytest.raises(InvalidInput) as caught:
        client.job("j1")
    assert str(caught.value) == "skew: is no number (0.7)"
    assert [str(one) for one in caught.value.more] == ["x: unknown field"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_errors_are_told_apart(case: Case, server: FakeServer, client: Client) -> None:
    """Whatever a server answers becomes one error with one clear line."""
    server.on("GET", "/jobs/j1", case.answer)
    with pytest.raises(TopmastError) as caught:
        client.job("j1")
    assert type(caught.value) is case.want
    assert case.want_text.format(url=server.url) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_server_is_told_at_once() -> None:
    """A refused connection is not retried: the user is told how to start a server."""
    begun_s = time.monotonic()
    with (
        Client("http://127.0.0.1:1") as client,
        pytest.raises(
            Unavailable, match=r"no Topmast server answers at http://127\.0\.0\.1:1; start"
        ),
    ):
        client.health()
    assert time.monotonic() - begun_s < 1


def test_a_silent_server_is_given_up(server: FakeServer) -> None:
    """The time-out bounds a call."""

    def sleepy(_: object) -> Answer:
        time.sleep(0.6)
        return Answer({})

    server.on("GET", "/health", sleepy)
    with (
        Client(server.url, timeout_s=0.2) as client,
        pytest.raises(Unavailable, match=r"did not answer within 0\.2 s"),
    ):
        client.health()


def test_a_request_about_many_jobs_gets_more_time(server: FakeServer) -> None:
    """It would be given up while the server works on it; one about a job is."""

    def sleepy(_: object) -> Answer:
        time.sleep(0.6)
        return Answer({
            "verb": "hold", "dry_run": False, "jobs": [], "effects": [], "counts": {}, "gpus": 0,
            "lost_gpu_h": 0,
        })  # fmt: skip

    server.on("POST", "/jobs/hold", sleepy)
    with Client(server.url, timeout_s=0.2) as client:
        for many in ({"jobs": ["j1", "j2"]}, {"jobs": ["s1"]}, {"selector": "user=ann"}):
            assert client.hold(**many).verb == "hold"
        with pytest.raises(Unavailable, match=r"did not answer within 0\.2 s"):
            client.hold(["j1"])


def test_a_dropped_connection_is_tried_again(server: FakeServer, client: Client) -> None:
    """What only asks may be asked again."""
    server.on("GET", "/jobs/j1", DROP, DROP, job("j1"))
    assert client.job("j1").id == "j1"
    assert len(server.asked("GET", "/jobs/j1")) == 3


def test_a_client_that_asks_too_much_is_told_what_it_waits_for(server: FakeServer) -> None:
    """Before the wait: without a word half a minute is taken for a fault."""
    told, asked = list[tuple[float, str, int]](), ("GET", "/jobs/j1")
    full = Answer({"detail": "too many requests of ann"}, 429, headers={"Retry-After": "1"})
    server.on(*asked, full, job("j1"))

    def on_pause(wait_s: float, why: str) -> None:
        told.append((wait_s, why, len(server.asked(*asked))))

    with Client(server.url, on_pause=on_pause) as client:
        assert client.job("j1").id == "j1"
    assert told == [(1.0, "too many requests of ann", 1)]


@pytest.mark.parametrize(("verb", "want"), [("hold", 2), ("requeue", 1)])
def test_a_server_that_stops_is_asked_again(
    verb: str, want: int, server: FakeServer, client: Client
) -> None:
    """It says when, and starts again or another leads; but no act that would be done twice."""
    acted = {"verb": verb, "dry_run": False, "jobs": [], "effects": [], "counts": {}, "gpus": 0,
             "lost_gpu_h": 0}  # fmt: skip
    stops = Answer({"detail": "the server stops"}, 503, headers={"Retry-After": "1"})
    server.on("POST", f"/jobs/{verb}", stops, Answer(acted))
    act = getattr(client, verb)
    if want == 1:
        with pytest.raises(Unavailable, match="the server stops"):
            act(["j1"])
    else:
        assert act(["j1"]).verb == verb
    assert len(server.asked("POST", f"/jobs/{verb}")) == want
    assert client.asked_again == (("the server stops",) if want == 2 else ())


def test_a_server_that_cannot_answer_and_names_no_time_is_not_asked_again(
    server: FakeServer, client: Client
) -> None:
    server.on("GET", "/jobs/j1", Answer({"detail": "no"}, 503), job("j1"))
    with pytest.raises(Unavailable, match="no"):
        client.job("j1")


def test_dropping_for_ever_ends(server: FakeServer) -> None:
    """The retries end with the time-out."""
    server.on("GET", "/jobs/j1", DROP)
    with (
        Client(server.url, timeout_s=0.5) as client,
        pytest.raises(Unavailable, match="dropped the connection"),
    ):
        client.job("j1")


@pytest.mark.parametrize(
    ("verb", "dry_run", "want"),
    [("hold", False, 2), ("cancel", False, 2), ("preempt", False, 1), ("requeue", False, 1),
     ("preempt", True, 2)],
)  # fmt: skip
def test_no_job_is_stopped_twice_for_a_lost_answer(
    server: FakeServer, client: Client, verb: str, dry_run: bool, want: int
) -> None:
    """It may have started again meanwhile; what repeats without harm is repeated."""
    acted = JobsActed(verb, dry_run, (), (), {}, 0.0, 0.0)
    server.on("POST", f"/jobs/{verb}", DROP, acted)
    lost = pytest.raises(Unavailable, match="before it answered")
    with lost if want == 1 else nullcontext():
        client.act_on_jobs(verb, ["j1"], dry_run=dry_run)
    assert len(server.requests) == want


def test_tls_to_a_port_without_it_is_told(server: FakeServer) -> None:
    """A server is there: to start one is no remedy."""
    url = server.url.replace("http:", "https:")
    says = f"{url} speaks no TLS; write {server.url}"
    with Client(url, timeout_s=2.0) as client, pytest.raises(Unavailable, match=says):
        client.job("j1")


def test_a_port_with_tls_is_told_at_once_to_what_speaks_without(tmp_path: Path) -> None:
    """It drops such a request each time, however often it comes."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    write_certificate(certificate, key)
    greeting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    greeting.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    caller, _ = listener.accept()
                    with suppress(OSError), caller, greeting.wrap_socket(caller, server_side=True):
                        pass

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        secure = url.replace("http:", "https:")
        says = f"{url} asks for TLS; write {secure}"
        begun_s = time.monotonic()
        with Client(url, timeout_s=20.0) as client, pytest.raises(Unavailable, match=says):
            client.job("j1")
        assert time.monotonic() - begun_s < 10.0
        listener.shutdown(socket.SHUT_RDWR)
        serving.join()


def test_authorities_that_cannot_be_read_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """People set the variable for one command, and mistype the file."""
    (broken := tmp_path / "broken.pem").write_text("no certificate")
    for file, why in ((tmp_path / "none.pem", "No such file"), (broken, "")):
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        with pytest.raises(InvalidInput, match=f"{file} cannot be read: {why}") as refused:
            Client("https://localhost:1").health()
        assert refused.value.where == "SSL_CERT_FILE"


def test_what_may_not_be_repeated_is_not(server: FakeServer, client: Client) -> None:
    """Adding a dataset has no key, so a dropped connection is reported."""
    server.on("POST", "/datasets", DROP)
    with pytest.raises(Unavailable, match="dropped the connection"):
        client.add_dataset("imagenet", "east")
    assert len(server.asked("POST", "/datasets")) == 1


def test_a_server_that_restarts_in_the_middle(tmp_path: Path) -> None:
    """After a drop, a refused connection is a restart: the new address is read, the call goes on."""
    with FakeServer() as first, FakeServer() as second:
        second.on("GET", "/jobs/j1", job("j1"))
        note = tmp_path / "server.json"
        note.write_text(json.dumps({"url": first.url}))

        def die(_: object) -> Answer:
            first.on("GET", "/jobs/j1", DROP)
            first._server.socket.close()
            threading.Timer(0.3, note.write_text, [json.dumps({"url": second.url})]).start()
            return DROP

        first.on("GET", "/jobs/j1", die)
        with Client(state=tmp_path, timeout_s=5) as client:
            assert client.job("j1").id == "j1"
            assert client.url == second.url


def test_this_machine_is_reached_without_a_proxy(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy in the environment is for other machines."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    server.on("GET", "/jobs/j1", job("j1"))
    with Client(server.url) as client:
        assert client.job("j1").id == "j1"


CALLS = (
    "job", "sweep", "cordon", "whatif", "remove_webhook", "test_webhook", "revoke_token",
    "remove_account", "pause_tenant", "close_cluster", "end_reservation",
)  # fmt: skip
"""Of each kind of thing that a path names."""


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", ["", ".", ".."])
def test_names_cannot_lead_elsewhere(
    name: str, call: str, server: FakeServer, client: Client
) -> None:
    """A name that is a step in a path is the name of nothing."""
    with pytest.raises(NotFound, match="nothing is named"):
        getattr(client, call)(name)
    assert server.requests == []


def test_names_are_quoted(server: FakeServer, client: Client) -> None:
    """A slash, a question mark or a line break in a name stays in the name."""
    server.on("POST", "/hosts/a%2Fb%3Fc%0Ad/cordon", problem(404, "no such host"))
    with pytest.raises(NotFound, match="no such host"):
        client.cordon("a/b?c\nd")


def test_something_else_listens() -> None:
    """A port that speaks another protocol is not taken for a server."""
    with socket.create_server(("127.0.0.1", 0)) as other:

        def talk() -> None:
            for _ in range(20):
                try:
                    connection, _address = other.accept()
                except OSError:
                    return
                connection.sendall(b"SSH-2.0-x\r\n")
                connection.close()

        threading.Thread(target=talk, daemon=True).start()
        port = other.getsockname()[1]
        with Client(f"127.0.0.1:{port}", timeout_s=0.3) as client, pytest.raises(Unavailable):
            client.health()
