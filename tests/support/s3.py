"""A real S3 server on this machine (moto), and what a process needs to find it."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import obstore
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from obstore.store import from_url
from werkzeug.serving import WSGIRequestHandler, make_server

SECRET = "the-secret-of-the-bucket"
"""Must be found nowhere but in the environment of the server."""


@dataclass
class S3:
    """One server."""

    url: str

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


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, *_: object, **__: object) -> None:
        return


@contextmanager
def s3_server(address: str = "127.0.0.1") -> Iterator[S3]:
    """A server on an address of this machine; this process finds it as its own."""
    app = DomainDispatcherApplication(create_backend_app)
    server = make_server(address, 0, app, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http://{address}:{server.server_port}"
    ours = {
        "AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": SECRET,
    }  # fmt: skip
    httpx.post(f"{url}/moto-api/reset")  # servers of one process share what they hold
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield S3(url)
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
        server.shutdown()
        thread.join()
