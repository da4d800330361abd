"""Clients that mean no good, and a patient one that measures what the others have of it.

    python -m tests.support.hostile --open-files 1024

prints, for every kind of them, how long other requests took at most.
"""

import argparse
import multiprocessing
import resource
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.support.live import Server

HEAD = b"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
BULK = HEAD.replace(b"/jobs ", b"/jobs/bulk ")
EVENTS = b"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def allow_open_files(count: int) -> None:
    """Let this process, which plays all the clients, have so many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


def connect(url: str) -> socket.socket:
    """A connection on which nothing was said yet."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    return socket.create_connection((parts.hostname, parts.port or 80), timeout=30)


@contextmanager
def many(url: str, count: int, said: bytes, drip: bytes = b"") -> Iterator[list[socket.socket]]:
    """So many connections that say this and no more, or ``drip`` once a second from then on."""
    with ExitStack() as stack:
        found: list[socket.socket] = []
        for _ in range(count):
            one = stack.enter_context(connect(url))
            with suppress(OSError):
                one.sendall(said)
            found.append(one)
        over = threading.Event()

        def go_on() -> None:
            while drip and not over.wait(1.0):
                for one in found:
                    with suppress(OSError):
                        one.sendall(drip)

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield found
        finally:
            over.set()
            thread.join()


def send_bulk(url: str, body: bytes) -> bytes:
    """What is answered to a bulk submission; empty if the connection was closed."""
    with connect(url) as one:
        answer = b""
        with suppress(OSError):
            one.sendall(BULK + b"Content-Length: %d\r\n\r\n" % len(body))
            one.sendall(body)
        one.settimeout(120)
        with suppress(OSError):
            answer = one.recv(65_536)
        return answer


class Patient:
    """Asks every 20 ms for `/health` and, less often, submits a job; notes how long each answer takes."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.waits_s: list[float] = []
        self.failures: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Patient":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        turn = 0
        with httpx.Client(base_url=f"{self.url}/api/v1", timeout=60.0, trust_env=False) as http:
            while not self._over.wait(0.02):
                turn += 1
                begun_s = time.monotonic()
                try:
                    if turn % 5:
                        answer = http.get("/health")
                    else:
                        answer = http.post("/jobs", json={"job": {"run": "true"}})
                    if answer.status_code >= 300:
                        self.failures.append(f"{answer.status_code} {answer.text[:200]}")
                except httpx.HTTPError as error:
                    self.failures.append(repr(error))
                self.waits_s.append(time.monotonic() - begun_s)

    @property
    def longest_s(self) -> float:
        """The longest wait of all."""
        return max(self.waits_s)


def _during(server: Server, name: str, attack: Callable[[], object]) -> None:
    """What others have of it while ``attack`` goes on, in a process of its own."""
    with Patient(server.url) as patient:
        time.sleep(1.0)
        begun_s = time.monotonic()
        enemy = multiprocessing.get_context("fork").Process(target=attack)
        enemy.start()
        enemy.join()
        took_s = time.monotonic() - begun_s
    waits_s = sorted(patient.waits_s)
    middle_s = waits_s[len(waits_s) // 2]
    memory = Path(f"/proc/{server.pid}/status").read_text("ascii") if server.running else ""
    peak = next((line for line in memory.splitlines() if line.startswith("VmHWM")), "DIED")
    sys.stdout.write(
        f"{name}: {len(waits_s)} requests of others, median {middle_s * 1000:.0f} ms,"
        f" longest {waits_s[-1] * 1000:.0f} ms, {len(patient.failures)} failed"
        f" {patient.failures[:1]}; took {took_s:.1f} s; {' '.join(peak.split())}\n"
    )
    sys.stdout.flush()


def _hold(url: str, count: int, said: bytes, drip: bytes, for_s: float) -> None:
    with many(url, count, said, drip):
        time.sleep(for_s)


def _send(url: str, bodies: list[bytes]) -> None:
    for body in bodies:
        answer = send_bulk(url, body)
        sys.stdout.write(f"  {answer[:12]!r} {answer.partition(b'detail')[2][:80]!r}\n")
    sys.stdout.flush()


def large_bodies() -> dict[str, bytes]:
    """Requests of 127 MiB: of as many values as there is room for, and of as few."""
    size = 127 << 20
    return {
        "empty jobs": (b'{"jobs":[' + b"{}," * (size // 3))[:size],
        "numbers": (b'{"jobs":[' + b"1" * 9 + b"," * size)[:size],
        "1,000,000 jobs of text": b'{"jobs":['
        + (b'{"run":"%s"},' % (b"x" * 110)) * 1_000_000
        + b"{}]}",
        "text": b'{"jobs":[{"run":"' + b"x" * size + b'"}]}',
        "commas": b'{"jobs":[{"run":"' + b"," * size + b'"}]}',
    }


def main() -> None:
    """All of it, against a server of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--open-files", type=int)
    parser.add_argument("--for-s", type=float, default=15.0)
    given = parser.parse_args()
    allow_open_files(8_192)
    slow_body = HEAD + b"Content-Length: 100000\r\n\r\n{"
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "state", None, open_files=given.open_files)
        server.start()
        url = server.wait_ready(120)
        for name, count, said, drip in (
            ("nothing", 0, b"", b""),
            ("1,100 idle connections", 1_100, b"", b""),
            ("1,100 streams of events", 1_100, EVENTS, b""),
            ("200 slow heads", 200, HEAD, b"X-A: b\r\n"),
            ("200 slow bodies", 200, slow_body, b" "),
            ("1,100 slow bodies", 1_100, slow_body, b" "),
        ):
            _during(server, name, partial(_hold, url, count, said, drip, given.for_s))
        for name, body in large_bodies().items():
            _during(server, f"127 MiB of {name}", partial(_send, url, [body]))
        server.end()


if __name__ == "__main__":
    main()
