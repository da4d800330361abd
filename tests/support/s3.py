"""A real S3 server on this machine (moto), and what a process needs to find it."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import obstore
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from obstore.store import from_url
from werkzeug.serving import WSGIRequestHandler, make_server

from tests.support.signatures import Environ, fault

KEY = "test"
SECRET = "the-secret-of-the-bucket"
"""Must be found nowhere but in the environment of the server."""


@dataclass
class S3:
    """One server."""

    url: str
    secrets: dict[str, str] = field(default_factory=lambda: {KEY: SECRET})
    """The secret of each access key."""
    refused: dict[str, str] = field(default_factory=dict)
    """The error for all that is below a path, by the path."""

    @contextmanager
    def refusing(self, path: str, code: str) -> Iterator[None]:
        """Refuse whatever is asked below a path, ``BUCKET`` or ``BUCKET/KEY``, for a while."""
        self.refused[path] = code
        try:
            yield
        finally:
            del self.refused[path]

    def fault(self, environ: Environ) -> str:
        """The error for a request, as S3 has it; empty: there is none."""
        path = environ["PATH_INFO"].strip("/")
        if path.startswith("moto-api"):
            return ""
        found = next((self.refused[at] for at in self.refused if path.startswith(at)), "")
        return found or fault(environ, self.secrets)

    def bucket(self, name: str) -> str:
        """Make a bucket; returns its URL."""
        assert httpx.put(f"{self.url}/{name}").status_code == 200
        return f"s3://{name}"

    def put(self, key: str, content: bytes) -> None:
        """Write an object, by ``BUCKET/KEY``."""
        bucket, _, name = key.partition("/")
        obstore.put(from_url(f"s3://{bucket}"), name, content)

    def get(self, key: str) -> bytes:
        """Read an object."""
        bucket, _, name = key.partition("/")
        return bytes(obstore.get(from_url(f"s3://{bucket}"), name).bytes())

    def delete(self, key: str) -> None:
        """Delete an object, or an empty bucket."""
        bucket, _, name = key.partition("/")
        if name:
            obstore.delete(from_url(f"s3://{bucket}"), name)
        else:
            assert httpx.delete(f"{self.url}/{bucket}").status_code == 204

    def keys(self, bucket: str) -> list[str]:
        """All objects of a bucket."""
        found = obstore.list(from_url(f"s3://{bucket}")).collect()
        return sorted(str(one["path"]) for one in found)


@dataclass
class _Door:
    """Before moto, which takes every signature: lets in what S3 would."""

    app: Callable[..., Iterable[bytes]]
    s3: S3

    def __call__(self, environ: Environ, start: Callable[..., Any]) -> Iterable[bytes]:
        if not (code := self.s3.fault(environ)):
            return self.app(environ, start)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        said = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
        start("403 Forbidden", [("Content-Type", "text/xml"), ("Content-Length", str(len(said)))])
        return [said]


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, *_: object, **__: object) -> None:
        return


@contextmanager
def s3_server(address: str = "127.0.0.1") -> Iterator[S3]:
    """A server on an address of this machine; this process finds it as its own."""
    s3 = S3("")
    door = _Door(DomainDispatcherApplication(create_backend_app), s3)
    server = make_server(address, 0, door, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = s3.url = f"http://{address}:{server.server_port}"
    ours = {
        "AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
    }  # fmt: skip
    httpx.post(f"{url}/moto-api/reset")  # servers of one process share what they hold
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield s3
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
        server.shutdown()
        thread.join()
