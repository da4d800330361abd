"""A page of one element, served with the policy of the dashboard, without a server of Topmast."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.weblab.tools import STATIC

POLICY = "default-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>An element</title>
<meta name="viewport" content="width=device-width"><link rel="icon" href="/icon.svg">
<link rel="stylesheet" href="/topmast.css">
<script type="module" src="/elements/{module}.js"></script></head>
<body><main><h1>An element</h1>{body}</main></body></html>
"""


def page(module: str, body: str) -> str:
    """A document with one element."""
    return PAGE.format(module=module, body=body)


@contextmanager
def stand(answers: Mapping[str, str]) -> Iterator[str]:
    """A server of the static files and of ``answers`` by path; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            file = STATIC / path.lstrip("/")
            if path in answers:
                kind = "application/json" if path.endswith(".json") else "text/html; charset=utf-8"
                data = answers[path].encode()
            elif file.suffix in TYPES and file.is_file():
                kind, data = TYPES[file.suffix], file.read_bytes()
            else:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Security-Policy", POLICY)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
