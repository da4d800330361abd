"""Clients that mean no good, at a real server with few descriptors: it lives, and others are served.

`python -m tests.support.hostile` measures more of them; the limits here are for busy machines.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hostile import (
    EVENTS,
    HEAD,
    Patient,
    allow_open_files,
    large_bodies,
    many,
    send_bulk,
)
from tests.support.live import Server, eventually
from topmast import Client

OPEN_FILES = 1_024
PATIENCE_S = 10.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that may open as many files as most systems allow by default."""
    allow_open_files(4_096)
    one = Server(tmp_path_factory.mktemp("hostile") / "state", None, open_files=OPEN_FILES)
    try:
        one.start()
        one.wait_ready()
        yield one
    finally:
        one.end()


def memory_bytes(pid: int) -> int:
    """The most memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    (peak,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    return int(peak) * 1024


@pytest.mark.parametrize(
    ("said", "drip"),
    [
        (b"", b""),
        pytest.param(EVENTS, b"", marks=pytest.mark.slow),
        pytest.param(HEAD, b"X-A: b\r\n", marks=pytest.mark.slow),
        (HEAD + b"Content-Length: 100000\r\n\r\n{", b" "),
    ],
    ids=["idle", "streams", "slow heads", "slow bodies"],
)
def test_more_connections_than_descriptors_harm_nobody(
    server: Server, said: bytes, drip: bytes
) -> None:
    """Whatever 1,100 of them say: no request of others fails, and jobs are taken."""
    with Patient(server.url) as patient, many(server.url, 1_100, said, drip):
        time.sleep(3.0)
        eventually(lambda: len(patient.waits_s) > 10, "others are answered meanwhile")
    assert server.running, server.log_tail()
    assert patient.failures == []
    assert patient.longest_s < PATIENCE_S
    assert "Traceback" not in server.log.read_text("utf-8")


@pytest.mark.parametrize(
    "name",
    [
        "empty jobs",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("numbers", "text", "commas")),
    ],
)
def test_the_largest_requests_harm_nobody(server: Server, name: str) -> None:
    """127 MiB, of whatever: refused, within bounded memory, and without making others wait."""
    with Patient(server.url) as patient:
        time.sleep(0.5)
        answer = send_bulk(server.url, large_bodies()[name])
        eventually(lambda: len(patient.waits_s) > 10, "others are answered")
    assert answer[:12] in (b"HTTP/1.1 413", b"HTTP/1.1 422"), answer
    assert patient.failures == []
    assert patient.longest_s < PATIENCE_S
    assert memory_bytes(server.pid) < 1 << 30


def test_many_jobs_in_one_large_request_are_still_taken(server: Server) -> None:
    """Limits are for those who mean no good: a body of 20 MiB of true jobs is served."""
    with Client(server.url) as client:
        found = client.submit_many([{"run": "true # " + "x" * 1_000}] * 20_000)
    assert len(found.ids) == 20_000
