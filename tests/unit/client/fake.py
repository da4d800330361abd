"""A server that answers what a test tells it to, and builders of what it answers with."""

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

import msgspec

from topmast.model import views


@dataclass(frozen=True)
class Request:
    """What the server was asked."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return msgspec.json.decode(self.body)


@dataclass(frozen=True)
class Answer:
    """What it says: bytes as they are, anything else as JSON."""

    body: object = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


DROP = Answer(status=-1)
"""Close the connection without a word."""

Scripted = Answer | Callable[[Request], Answer]
Document = msgspec.Struct | dict[str, Any] | list[Any] | bytes


def problem(
    status: int,
    detail: str,
    field: str = "",
    remedy: str = "",
    faults: tuple[views.Fault, ...] = (),
) -> Answer:
    """An error in the manner of RFC 9457."""
    errors = faults or msgspec.UNSET
    body = views.Problem("about:blank", "Wrong", status, detail, field, remedy, errors)
    return Answer(body, status, {"Content-Type": "application/problem+json"})


class _Server(ThreadingHTTPServer):
    """Passes over clients that hang up: what it said of one came up in the test after it."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class FakeServer:
    """Serves on a free port, each route by its script; the last answer of a script repeats."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._scripts: dict[tuple[str, str], list[Scripted]] = {}
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def on(self, method: str, path: str, *answers: Scripted | Document) -> Self:
        """Answer ``method`` on ``/api/v1`` + ``path`` with each of ``answers`` in turn."""
        script: list[Scripted] = [
            given if isinstance(given, Answer) or callable(given) else Answer(given)
            for given in answers
        ]
        self._scripts[method, f"/api/v1{path}"] = script
        return self

    def asked(self, method: str, path: str) -> list[Request]:
        """The requests for one route, in order."""
        route = (method, f"/api/v1{path}")
        return [request for request in self.requests if (request.method, request.path) == route]

    def _answer(self, request: Request) -> Answer:
        with self._lock:
            self.requests.append(request)
            script = self._scripts.get((request.method, request.path))
            if not script:
                return problem(404, f"no route {request.method} {request.path}")
            scripted = script.pop(0) if len(script) > 1 else script[0]
        return scripted if isinstance(scripted, Answer) else scripted(request)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                parts = urlsplit(self.path)
                headers = {name.lower(): value for name, value in self.headers.items()}
                answer = fake._answer(
                    Request(
                        self.command, parts.path, dict(parse_qsl(parts.query)), headers,
                        self.rfile.read(length),
                    )
                )  # fmt: skip
                if answer is DROP:
                    self.close_connection = True
                    return
                body = answer.body
                data = body if isinstance(body, bytes) else msgspec.json.encode(body)
                self.send_response(answer.status)
                sent = {"Content-Type": "application/json"} | answer.headers
                for name, value in sent.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _serve

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


# ---------------------------------------------------------------------------------------- builders


def job(id: str = "j1", **changes: Any) -> views.JobView:
    """A job that waits, but for ``changes``."""
    waiting = views.JobView(
        id=id, name="resnet", tenant="vision", user="ada", band="normal", state="PENDING",
        reason="InsufficientCapacity", region=None, cluster=None, gpu_model=None, hosts=(),
        gpus=8.0, tasks=1, attempts=0, preemptions=0, restarts=0, over_quota=False,
        submit_s=1e9, start_s=None, finish_s=None, wait_s=12.0, step=None,
        resumed_from_step=None, metrics={}, datasets=(), group="", cause="",
    )  # fmt: skip
    return msgspec.structs.replace(waiting, **changes)


def running(id: str = "j1", **changes: Any) -> views.JobView:
    """A job that runs in its first attempt."""
    placed: dict[str, Any] = {
        "state": "RUNNING", "reason": None, "region": "east", "cluster": "east-1",
        "gpu_model": "H100", "hosts": ("east-1-h0",), "attempts": 1, "start_s": 1e9 + 12, "step": 40,
    }  # fmt: skip
    return job(id, **(placed | changes))


def ended(id: str = "j1", state: str = "SUCCEEDED", **changes: Any) -> views.JobView:
    """A job that has ended."""
    return running(id, **({"state": state, "finish_s": 1e9 + 100, "step": 90} | changes))


def page(*jobs: views.JobView, cursor: str | None = None) -> views.JobPage:
    """A page of jobs, counted."""
    counts: dict[str, int] = {}
    for one in jobs:
        counts[one.state] = counts.get(one.state, 0) + 1
    return views.JobPage(jobs, cursor, counts)
