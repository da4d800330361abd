"""Traces of requests, as a collector receives them over HTTP."""

from __future__ import annotations

import gzip
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.live import Server, free_ports
from topmast.adapters.otlp import Traces
from topmast.model.errors import InvalidInput

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SECRET = "swordfish"


class Collector(ThreadingHTTPServer):
    """Keeps what it is sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[bytes] = []
        self.paths: set[str] = set()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}"

    def requests(self) -> list[ExportTraceServiceRequest]:
        """What was sent, as the protocol has it."""
        return [ExportTraceServiceRequest.FromString(body) for body in self.bodies]

    def spans(self) -> list[Span]:
        """All spans."""
        found = [r for request in self.requests() for r in request.resource_spans]
        return [span for r in found for scope in r.scope_spans for span in scope.spans]


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        packed = self.headers.get("Content-Encoding") == "gzip"
        self.server.bodies.append(gzip.decompress(body) if packed else body)
        self.server.paths.add(self.path)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    """One that listens."""
    made = Collector()
    yield made
    made.shutdown()
    made.server_close()


def attributes(span: Span) -> dict[str, object]:
    """Of a span, by name."""
    return {a.key: a.value.string_value or a.value.int_value for a in span.attributes}


def test_each_request_is_a_span_of_its_callers_trace(tmp_path: Path, collector: Collector) -> None:
    """With route, status and number, and without anything that the caller wrote."""
    server = Server(tmp_path / "state", None, arguments=("--otlp", collector.url))
    try:
        with server.up() as client:
            job = client.submit(
                {"name": SECRET, "run": "true", "resources": {"accelerators": 1}}
            ).id
            headers = {
                "traceparent": f"00-{TRACE}-{PARENT}-01",
                "authorization": f"Bearer {SECRET}",
            }
            path = f"/api/v1/jobs/{job}"
            answer = httpx.get(f"{server.url}{path}?{SECRET}=1", headers=headers)
            assert answer.status_code == 422, "it takes no such parameter"
            assert httpx.get(f"{server.url}/{SECRET}").status_code == 404
        assert server.stop() == 0, "what is left is sent at the end"
    finally:
        server.end()
    spans = collector.spans()
    (asked,) = [span for span in spans if span.trace_id.hex() == TRACE]
    assert (asked.name, asked.parent_span_id.hex()) == ("GET /jobs/{job}", PARENT)
    assert attributes(asked) == {
        "http.request.method": "GET", "http.route": "/jobs/{job}",
        "http.response.status_code": 422, "topmast.request_id": answer.headers["x-request-id"],
    }  # fmt: skip
    assert asked.end_time_unix_nano > asked.start_time_unix_nano
    submitted = [span for span in spans if span.name == "POST /jobs"]
    assert [attributes(span)["http.response.status_code"] for span in submitted] == [201]
    assert any(attributes(s)["http.response.status_code"] == 404 for s in spans)
    assert not any(SECRET.encode() in body for body in collector.bodies)
    assert collector.paths == {"/v1/traces"}
    (resource,) = {
        a.value.string_value
        for request in collector.requests()
        for r in request.resource_spans
        for a in r.resource.attributes
        if a.key == "service.name"
    }
    assert resource == "topmast"


def test_a_collector_that_is_gone_keeps_no_request_and_no_end_waiting(tmp_path: Path) -> None:
    """Spans are lost, and that is all."""
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    server = Server(tmp_path / "state", None, arguments=("--otlp", url))
    try:
        with server.up() as client:
            for _ in range(20):
                client.health()
            begun_s = time.monotonic()
            client.health()
            assert time.monotonic() - begun_s < 5
        begun_s = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begun_s < 30
    finally:
        server.end()


def test_without_the_extra_the_option_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing else needs it: the library is not even read without the option."""
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(InvalidInput, match="opentelemetry is missing") as caught:
        Traces("http://127.0.0.1:4318", "1")
    assert (caught.value.field, caught.value.remedy) == ("--otlp", "pip install 'topmast[otel]'")


def test_nothing_is_read_or_sent_by_default(tmp_path: Path) -> None:
    """A server without the option has no library of traces in its memory."""
    server = Server(tmp_path / "state", None)
    try:
        with server.up() as client:
            client.health()
            maps = Path(f"/proc/{server.pid}/maps").read_text()
            assert "protobuf" not in maps
            assert "google/_upb" not in maps
    finally:
        server.end()


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tester's environment says of traces is not meant for these."""
    for name in ("OTEL_TRACES_SAMPLER", "OTEL_SDK_DISABLED", "OTEL_EXPORTER_OTLP_HEADERS"):
        monkeypatch.delenv(name, raising=False)
