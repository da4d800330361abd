"""What ends with a real server, or with a client that leaves it: what waits, not what has begun."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import socket
import tarfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import uvicorn

from tests.integration.test_verbs import submit
from tests.support.entrance import Entrance, entrance, run
from tests.support.live import Server, Tuning, eventually, free_ports, until_state
from topmast import Client
from topmast.adapters.connections import BoundedServer, Connections
from topmast.model.access import Role
from topmast.model.act_views import JobsActed
from topmast.service.core import MANY_AT_ONCE

FLEET = "regions: {local: {clusters: {local: {hosts: [{count: 1, gpu: H100, gpus: 2}]}}}}"
WAITING = 400
PATIENT = """
from topmast.adapters import connections
connections.STOP_S = 60.0  # what ends earlier is not cut off by that
from topmast.app import main
main()
"""


IN_PIECES = """
from topmast.service import verbs
verbs.ACTED_AT_ONCE = 20
from topmast.app import main
main()
"""


class InPieces(Tuning):
    """A server whose acts on many jobs have many pieces."""

    @property
    def program(self) -> str:
        """As of any."""
        return IN_PIECES


class Patient(Tuning):
    """A server that waits long for requests that have begun."""

    @property
    def program(self) -> str:
        """As of any."""
        return PATIENT


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(FLEET)
    found = Server(tmp_path / "state", fleet, tuning=Patient())
    yield found
    found.end()


def test_a_stop_ends_requests_that_wait_at_once_and_says_so_in_one_line(
    server: Server,
) -> None:
    """400 wait for the output of one command; the job runs on."""
    with server.up() as client:
        job = client.submit({"run": "sleep 600", "resources": {"accelerators": "H100:1"}}).id
        until_state(client, job, "RUNNING")
        asked = f"/api/v1/jobs/{job}/exec"
        made = httpx.post(server.url + asked, json={"command": ["sleep", "300"]}, timeout=60)
        address = httpx.URL(server.url)
        head = f"GET {asked}/{made.json()['id']}?wait_s=20 HTTP/1.1\r\nHost: {address.netloc.decode()}\r\n\r\n"
        waiting = [socket.create_connection((address.host, address.port)) for _ in range(WAITING)]
        for one in waiting:
            one.sendall(head.encode())
        time.sleep(5)
        begun_s = time.monotonic()
        assert server.stop() == 0
        assert (
            time.monotonic() - begun_s < 12
        )  # 2 s where nothing else runs; each would wait for 20
        answers = [one.makefile("rb").read() for one in waiting]
        for one in waiting:
            one.close()
        log = server.log.read_text()
        assert log.count("cut requests off") == 1
        assert f"requests={WAITING}" in log
        assert "Traceback" not in log
        assert len(log.splitlines()) < 10, log
        assert {answer[:12] for answer in answers} == {b"HTTP/1.1 503"}
        assert {json.loads(answer.partition(b"\r\n\r\n")[2])["detail"] for answer in answers} == {
            "the server stops: ask again"
        }


def test_a_client_whose_act_a_stop_cuts_has_it_done_by_the_next_server(tmp_path: Path) -> None:
    """It asks again by itself, as after a dropped connection."""
    fleet, whole = tmp_path / "fleet.yaml", {"resources": {"accelerators": "H100:2"}}
    fleet.write_text(FLEET)
    (port,) = free_ports(1)
    server, told = Server(tmp_path / "state", fleet, None, InPieces(), port=port), list[JobsActed]()
    with Client(f"http://127.0.0.1:{port}") as patient:
        asks = threading.Thread(target=lambda: told.append(patient.hold(selector="name=x*")))
        with server.up() as client:
            client.submit({"run": "sleep 600", "priority": "critical", **whole})
            client.submit_many([{"run": "true", "name": f"x{n}", **whole} for n in range(4_000)])
            asks.start()
            eventually(lambda: client.audit(verb="hold").acts, "it has begun")
            server.stop()
        with server.up():
            asks.join()
    server.end()
    (acted,) = told
    assert acted.counts["done"] + acted.counts["unchanged"] == len(acted.jobs) == 4_000
    assert 0 < acted.counts["unchanged"] < 4_000, "the first server did a part"
    assert all(job.hold for job in acted.jobs)


def test_a_stop_ends_uploads_that_are_read_and_those_behind_them(server: Server) -> None:
    """Each would be read for seconds; all are told at once to come again, and no process is left."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for number in range(50_000):
            tar.addfile(tarfile.TarInfo(f"{number}"))
    contents = [out.getvalue() + bytes([0, number]) for number in range(8)]
    with server.up():
        url, answers = server.url, list[httpx.Response]()

        def upload(content: bytes) -> None:
            digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
            answers.append(
                httpx.put(f"{url}/api/v1/workdirs/{digest}", content=content, timeout=60)
            )

        clients = [threading.Thread(target=upload, args=(content,)) for content in contents]
        for client in clients:
            client.start()
        eventually(lambda: len(_readers(server)) == 2, "all that one tenant may have are read")
        begun_s = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begun_s < 12
        for client in clients:
            client.join()
        log = server.log.read_text()
        assert "Traceback" not in log, log
        assert [answer.status_code for answer in answers].count(503) >= 5, answers
        assert {answer.status_code for answer in answers} <= {201, 503}


def _readers(server: Server) -> list[int]:
    return [
        one.pid
        for one in psutil.Process(server.pid).children()
        if any("archive_readers" in word for word in one.cmdline())
    ]


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Entrance]:
    with entrance(tmp_path) as found:
        yield found


class Real:
    """The same application behind a socket."""

    def __init__(self, port: int, token: str) -> None:
        self._port, self._token = port, token

    async def ask(
        self, path: str, method: str = "POST", **body: object
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A client that has asked for something."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        text = json.dumps(body).encode()
        head = (
            f"{method} /api/v1{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self._token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        )
        writer.write(head.encode() + text)
        await writer.drain()
        return reader, writer


@asynccontextmanager
async def served(door: Entrance, token: str) -> AsyncIterator[Real]:
    """A real server, which stops in the end."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = BoundedServer(uvicorn.Config(door.app, lifespan="off", ws="none"), Connections(200))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield Real(listener.getsockname()[1], token)
    finally:
        server.should_exit = True
        await task


async def until(what: Callable[[], object]) -> None:
    """Wait for something."""
    for _ in range(20_000):
        if what():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not come")


async def asked(door: Entrance, count: int) -> None:
    """Wait until so many acts have come to their turn, or wait for it."""
    turns = door.service.acting._turns
    await until(lambda: sum(turn.asked for turn in turns.values()) == count)


def held(door: Entrance) -> list[str]:
    """The jobs that acts have held, the first one first."""
    return [line.object for line in door.acts(verb="hold")][::-1]


def test_an_act_whose_client_leaves_before_its_turn_is_not_begun(door: Entrance) -> None:
    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client, served(door, token) as real:
            jobs = await submit(client, 7, name="x", resources={"accelerators": "H100:2"})
            caller = await door.service.logins.by_token(token, "", "")
            assert caller is not None
            async with door.service.acting.turn(caller):
                leaves = [await real.ask("/jobs/hold", jobs=[job, jobs[6]]) for job in jobs[:5]]
                stays, stayed = await real.ask("/jobs/hold", jobs=[jobs[5], jobs[6]])
                await asked(door, 7)
                for _, writer in leaves:
                    writer.transport.abort()
                await asked(door, 2)
            assert (await stays.read(12)) == b"HTTP/1.1 200"
            stayed.close()
            assert held(door) == [f"{jobs[5]}..{jobs[6]}"]

    run(story)


@pytest.mark.parametrize("is_begun", [False, True])
def test_an_act_ends_with_its_client_while_it_looks_for_its_jobs_but_not_in_the_middle(
    door: Entrance, is_begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topmast.service.verbs.ACTED_AT_ONCE", 2)  # it has several pieces

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client, served(door, token) as real:
            jobs = await submit(client, 30, name="x", resources={"accelerators": "H100:2"})
            async with door.service._walking:
                _, writer = await real.ask("/jobs/hold", selector="name=x*")
                await asked(door, 1)
                await asyncio.sleep(0.1)
                if not is_begun:
                    writer.transport.abort()
                    await asked(door, 0)
            await until(lambda: held(door) or not is_begun)
            writer.transport.abort()
            await asked(door, 0)
            states = [(await client.get(f"/jobs/{job}")).json()["hold"] for job in jobs]
            assert sum(map(bool, states)) == (30 if is_begun else 0)

    run(story)


def test_an_act_on_many_jobs_waits_for_its_turn_and_ends_with_its_client_until_then(
    door: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acts on few jobs do not wait."""
    monkeypatch.setattr("topmast.service.verbs.FEW_JOBS", 2)

    async def story() -> None:
        token, other = [await door.token(name, (Role.ADMIN, "/")) for name in ("chief", "other")]
        async with door.client(other) as client, served(door, token) as real:
            jobs = await submit(client, 3, name="x", resources={"accelerators": "H100:2"})
            async with AsyncExitStack() as others:
                for _ in range(MANY_AT_ONCE):
                    await others.enter_async_context(door.service._begun)
                _, writer = await real.ask("/jobs/hold", selector="name=x*")
                await until(lambda: door.service._begun._waiters)
                few = await client.post("/jobs/release", json={"jobs": jobs[:2]})
                assert few.status_code == 200
                writer.transport.abort()
                await asked(door, 0)
            await asyncio.sleep(0.05)
            assert held(door) == []
            many = await client.post("/jobs/hold", json={"jobs": jobs})
            assert many.json()["counts"]["done"] == 3

    run(story)


def test_a_look_for_a_client_that_left_is_not_taken(door: Entrance) -> None:
    """It would take the thread that decides, and nothing would read it."""

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client, served(door, token) as real:
            (job,) = await submit(client, 1, resources={"accelerators": "H100:2"})
            runtime, go_on, answers = door.system.runtime, threading.Event(), list[Future[Any]]()
            ask = runtime.ask

            def noted(question: Callable[[], Any]) -> Future[Any]:
                answers.append(ask(question))
                return answers[-1]

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(runtime, "ask", noted)
                ask(lambda: go_on.wait(30))
                try:
                    _, writer = await real.ask(f"/jobs/{job}", method="GET")
                    await until(lambda: answers)
                    writer.transport.abort()
                    await until(answers[0].cancelled)
                finally:
                    go_on.set()
            assert (await client.get(f"/jobs/{job}")).status_code == 200

    run(story)


def test_files_of_hosts_are_read_by_neither_thread_that_all_wait_for(door: Entrance) -> None:
    """The list of hosts and the map of the fleet tell of the process of each host."""

    async def story() -> None:
        threads = list[str]()

        def process_of(cluster: str, host: str) -> tuple[int, bool]:
            threads.append(threading.current_thread().name)
            return 7, True

        door.service.process_of = door.service.fleet_maps._process_of = process_of
        async with door.client(await door.token("chief", (Role.ADMIN, "/"))) as client:
            hosts = (await client.get("/hosts")).json()["hosts"]
            assert {(host["state"], host["agent_pid"]) for host in hosts} == {("stopped", 7)}
            fleet = (await client.get("/fleet/map")).json()
        cells = [
            host
            for region in fleet["regions"]
            for cluster in region["clusters"]
            for host in cluster["hosts"]
        ]
        assert {cell["state"] for cell in cells} == {"stopped"}
        assert len(threads) == len(hosts) + len(cells) > 0
        assert not {"topmast-runtime", threading.current_thread().name}.intersection(threads)

    run(story)


def test_a_stop_ends_an_act_between_two_pieces_and_tells_how_far_it_came(
    door: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked again, it comes to the rest."""
    monkeypatch.setattr("topmast.service.verbs.ACTED_AT_ONCE", 2)

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            jobs = await submit(client, 60, name="x", resources={"accelerators": "H100:2"})
            async with served(door, token) as real:
                reader, writer = await real.ask("/jobs/hold", selector="name=x*")
                await until(lambda: held(door))
            answer = await reader.read()
            writer.close()
            assert answer.startswith(b"HTTP/1.1 503")
            head, _, body = answer.partition(b"\r\n\r\n")
            assert b"retry-after: 1" in head.lower().splitlines(), (
                "clients come again by themselves"
            )
            told = json.loads(body)["detail"]
            states = [(await client.get(f"/jobs/{job}")).json()["hold"] for job in jobs]
            done = sum(map(bool, states))
            assert 0 < done < 60
            assert told == (
                f"the server stops: hold came to {done} of 60 jobs: ask again for the rest"
            )
            again = await client.post("/jobs/hold", json={"selector": "name=x*"})
            assert again.json()["counts"] == {"done": 60 - done, "unchanged": done, "refused": 0}

    run(story)


def test_an_act_whose_client_left_before_its_jobs_were_found_is_not_begun(door: Entrance) -> None:
    """Also one that names its jobs; a list reads no more jobs than it had."""

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client, served(door, token) as real:
            jobs = await submit(client, 3, name="x", resources={"accelerators": "H100:2"})
            go_on, looked = threading.Event(), list[object]()

            def look(*given: object) -> None:
                looked.append(given)
                go_on.wait()

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("topmast.service.core.PORTION", 1)
                patch.setattr("topmast.service.listing.find", look)
                _, writer = await real.ask("/jobs?selector=name=x*", method="GET")
                await until(lambda: looked)
                writer.transport.abort()
                _, writer = await real.ask("/jobs/hold", jobs=jobs)
                await asked(door, 1)
                await asyncio.sleep(0.1)
                writer.transport.abort()
                await asyncio.sleep(0.1)
                go_on.set()
                await asked(door, 0)
                await until(lambda: not door.service._walking.locked())
                assert len(looked) == 1
            assert held(door) == []

    run(story)
