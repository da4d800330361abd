"""A fake server and a client of it."""

from collections.abc import Iterator

import pytest

from tests.unit.client.fake import FakeServer
from topmast.client import Client


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """A server that answers as it is told."""
    with FakeServer() as fake:
        yield fake


@pytest.fixture
def client(server: FakeServer) -> Iterator[Client]:
    """A client of it, for the user ada, that soon loses patience."""
    with Client(server.url, user="ada", timeout_s=2.0) as found:
        yield found
