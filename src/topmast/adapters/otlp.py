"""Traces by OTLP over HTTP: a span for each request, sent to a collector in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from topmast.model.errors import InvalidInput

if TYPE_CHECKING:
    from opentelemetry.trace import Span

TIMEOUT_S = 2.0
"""How long a collector may take; also how long the end of the process may wait for it."""
_FORWARDED = (b"traceparent", b"tracestate")
"""By what a caller says that its request belongs to a trace."""
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class Traces:
    """What sends spans to the collector at ``url``.

    A queue of bounded length and a thread of its own stand between requests and the collector: if
    it is slow or gone, spans are lost, and no request waits. A span has the method, the route, the
    status and the number of a request, and nothing that a stranger wrote: no path, no query, no
    header. ``OTEL_...`` of the environment say the rest: headers for the collector, sampling.
    Raises InvalidInput if the extra is not installed.
    """

    def __init__(self, url: str, version: str) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError:
            raise InvalidInput(
                "the module opentelemetry is missing", field="--otlp",
                remedy="pip install 'topmast[otel]'",
            ) from None  # fmt: skip
        resource = Resource.create({"service.name": "topmast", "service.version": version})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=f"{url.rstrip('/')}/v1/traces", timeout=TIMEOUT_S)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("topmast", version)

    def of(self, app: ASGIApp) -> ASGIApp:
        """The application, with a span for each of its requests."""
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        tracer, propagator = self._tracer, TraceContextTextMapPropagator()

        async def traced(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            said = {k.decode(): v.decode("latin-1") for k, v in scope["headers"] if k in _FORWARDED}
            method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
            with tracer.start_as_current_span(
                method, propagator.extract(said), SpanKind.SERVER,
                {"http.request.method": method}, record_exception=False,
            ) as span:  # fmt: skip

                async def sending(message: Message) -> None:
                    if message["type"] == "http.response.start":
                        _tell(span, method, scope, message)
                    await send(message)

                await app(scope, receive, sending)

        return traced

    def close(self) -> None:
        """Send what is left, and end; waits for the collector for a moment only."""
        self._provider.shutdown()


def _tell(span: Span, method: str, scope: Scope, message: Message) -> None:
    """What is known when an answer begins."""
    from opentelemetry.trace import StatusCode

    route = getattr(scope.get("route"), "path", "")
    if route:
        span.update_name(f"{method} {route}")
        span.set_attribute("http.route", route)
    span.set_attribute("http.response.status_code", message["status"])
    for name, value in message.get("headers", ()):
        if name.lower() == b"x-request-id":
            span.set_attribute("topmast.request_id", value.decode("latin-1"))
    if message["status"] >= 500:
        span.set_status(StatusCode.ERROR)
