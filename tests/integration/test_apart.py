"""The queue and the placers of its regions as processes of their own, killed and started again."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.support.held import Held
from tests.support.live import Server, eventually, free_ports, is_alive
from topmast import Client
from topmast.adapters.link import Peer
from topmast.adapters.link.peer import NotUnderstood
from topmast.model.errors import TopmastError
from topmast.model.views import RegionVerdict

FLEET = """
regions:
  east: {clusters: {east-a: {hosts: [{count: 2, gpu: H100, gpus: 2}]}}}
  west: {clusters: {west-a: {hosts: [{count: 2, gpu: A100, gpus: 2}]}}}
  home: {clusters: {home-a: {hosts: [{count: 1, gpu: L4, gpus: 2}]}}}
"""
SETTINGS = {"min_runtime_s": "0", "backoff_s": "0.2", "suspect_s": "1"}


class Apart:
    """A queue with one region of its own, and the placers of two regions elsewhere."""

    def __init__(self, folder: Path, text: str = FLEET, hosts: int = 5, **settings: str) -> None:
        """``text``: the fleet file, with so many ``hosts``; ``settings`` are added."""
        fleet = folder / "fleet.yaml"
        fleet.write_text(text, encoding="utf-8")
        self.hosts = hosts
        settings = SETTINGS | {name.replace("__", "."): value for name, value in settings.items()}
        ports = dict(zip(("queue", "east", "west"), free_ports(3), strict=True))
        urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        names = [f"--placer={region}={urls[region]}" for region in ("east", "west")]
        self.queue = Server(
            folder / "queue", fleet, settings, arguments=["--role", "queue", *names],
            port=ports["queue"],
        )  # fmt: skip
        self.placers = {
            region: Server(
                folder / region, None, settings, port=ports[region],
                arguments=["--role", "placer", "--region", region, "--queue", urls["queue"]],
            )
            for region in ("east", "west")
        }  # fmt: skip
        self.all = [self.queue, *self.placers.values()]
        self.client = Client(urls["queue"], user="ann")

    def start(self) -> None:
        """Start all of them; returns when every region has said which hosts it has."""
        for server in self.all:
            server.start()
        for server in self.all:
            server.wait_ready()
        eventually(lambda: len(self.client.hosts()) == self.hosts, "all regions are linked")

    def verdict(self, job: str, region: str) -> RegionVerdict:
        """The row of a region when a job is explained."""
        return next(r for r in self.client.explain(job).regions if r.region == region)


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[Apart]:
    """All three processes, and afterwards nothing of them."""
    with running(tmp_path) as processes:
        yield processes


@contextmanager
def running(folder: Path, text: str = FLEET, hosts: int = 5, **settings: str) -> Iterator[Apart]:
    """All three processes; afterwards nothing is left."""
    processes = Apart(folder, text, hosts, **settings)
    try:
        processes.start()
        yield processes
    finally:
        processes.client.close()
        for server in processes.all:
            server.end()


def test_a_region_out_of_reach_loses_nothing_and_holds_up_nobody(
    apart: Apart, tmp_path: Path
) -> None:
    """Its jobs run on; the others go on; explain says so; when it is back all is accounted once."""
    client, east = apart.client, apart.placers["east"]
    stays, ends, there, here = (
        Held(client, tmp_path, model, 2, name=name)
        for model, name in (("H100", "stays"), ("H100", "ends"), ("A100", "there"), ("L4", "here"))
    )
    tasks = [held.started() for held in (stays, ends, there, here)]
    for held in (stays, ends, there, here):
        held.until("RUNNING")
    assert {client.job(h.id).region for h in (stays, there, here)} == {"east", "west", "home"}
    eventually(lambda: client.job(stays.id).step, "steps are shown from afar")
    east.kill()

    later = Held(client, tmp_path, "A100", 2, name="later")
    later.started()
    waits = Held(client, tmp_path, "H100", 2, name="waits")
    row = eventually(
        lambda: found if not (found := apart.verdict(waits.id, "east")).reachable else None,
        "the region is known to be out of reach",
    )
    assert "unreachable since" in (row.barred or "")
    assert "out of reach: east" in client.explain(waits.id).summary
    assert "out of reach: east" in client.explain(stays.id).summary
    shown = {job.id: job.reachable for job in client.jobs()}
    assert {id for id, reachable in shown.items() if not reachable} == {stays.id, ends.id}
    assert len(shown) == 6
    there.end()
    with pytest.raises(TopmastError, match="out of reach"):
        client.cordon("east-a-0")

    (ends.folder / "go").touch()
    eventually(lambda: not is_alive(tasks[1].pid), "it ends, and nobody sees it")
    client.cancel(stays.id)
    assert is_alive(tasks[0].pid)
    east.start()
    assert ends.until("SUCCEEDED").attempts == 1
    stays.until("CANCELLED")
    waits.started()
    assert waits.until("RUNNING").reachable
    for held in (waits, here, later):
        held.end()
    assert [len(h.starts()) for h in (stays, ends, there, here, waits, later)] == [1] * 6
    assert client.job(waits.id).attempts == 1


def test_the_queue_dies_and_what_happened_meanwhile_is_told_to_the_next(
    apart: Apart, tmp_path: Path
) -> None:
    """Regions need no queue to go on; what ended unheard is heard, once, by the one after."""
    client = apart.client
    ends = Held(client, tmp_path, "H100", 2, name="ends")
    stays = Held(client, tmp_path, "A100", 2, name="stays")
    first = [ends.started(), stays.started()]
    ends.until("RUNNING")
    stays.until("RUNNING")
    apart.queue.kill()
    (ends.folder / "go").touch()
    eventually(lambda: not is_alive(first[0].pid), "it ends without a queue")
    apart.placers["west"].kill()
    apart.placers["west"].start()
    apart.queue.start()
    apart.queue.wait_ready()
    assert ends.until("SUCCEEDED").attempts == 1
    assert (stays.until("RUNNING").attempts, is_alive(first[1].pid)) == (1, True)
    assert stays.end().attempts == 1
    assert [len(ends.starts()), len(stays.starts())] == [1, 1]


def test_a_region_apart_is_one_like_the_others_to_those_who_look(
    apart: Apart, tmp_path: Path
) -> None:
    """Hosts, GPUs, logs, work folders and operators' orders pass through the queue."""
    client = apart.client
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "words.txt").write_text("brought along\n")
    job = {"name": "reader", "run": "cat words.txt", "resources": {"accelerators": "H100:1"}}
    receipt = client.submit(job, workdir=folder)
    client.wait(receipt.id)
    assert client.job(receipt.id).state == "SUCCEEDED"
    assert "brought along" in "".join(chunk.text for chunk in client.logs(receipt.id))
    assert client.cordon("east-a-0").state == "cordoned"
    assert {h.name for h in client.hosts() if h.region == "east"} == {"east-a-0", "east-a-1"}
    assert sum(gpu.total for gpu in client.gpus() if gpu.region == "east") == 4
    assert client.dry_run(job).regions[0].reachable


NOT_THE_TOKEN = (
    None, "", "Bearer", "Bearer wrong", "a-token-for-tests-only",
    "Bearer a-token-for-tests-onl", "Bearer a-token-for-tests-only2", "Bearer A-TOKEN-FOR-TESTS-ONLY",
)  # fmt: skip
"""What is shown by those who do not have it: nothing, another one, a part of it, or more."""


def test_a_region_of_another_name_is_told_with_what_to_do(tmp_path: Path) -> None:
    """A misspelt region does not wait for its placer in silence, on either side."""
    processes = Apart(tmp_path)
    placer = processes.placers["east"]
    placer.arguments = ("--role", "placer", "--region", "esat", *placer.arguments[4:])
    try:
        for server in (processes.queue, placer):
            server.start()
        for server, region in ((processes.queue, "east"), (placer, "esat")):
            eventually(partial(_is_refused, server), "it is told")
            told = server.log_tail()
            assert f"no link to region '{region}' ends here" in told
            assert "start both sides with the name of the region in the fleet file" in told
    finally:
        processes.client.close()
        for server in processes.all:
            server.end()


def _is_refused(server: Server) -> bool:
    return "the link is refused" in server.log_tail()


def test_a_link_asks_for_its_token_and_a_folder_keeps_its_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strangers get 401, whatever they ask and show; the state of a placer is no state for another region."""
    (port,) = free_ports(1)
    arguments = ["--role", "placer", "--region", "east", "--queue", "http://127.0.0.1:9"]
    placer = Server(tmp_path / "east", None, port=port, arguments=arguments)
    os.environ["TOPMAST_TOKEN"] = "a-token-for-tests-only"
    try:
        placer.start()
        url = placer.wait_ready()
    finally:
        del os.environ["TOPMAST_TOKEN"]
    try:
        for shown in NOT_THE_TOKEN:
            stranger_says = {} if shown is None else {"Authorization": shown}
            for path in ("/api/link/v2/east/books", "/api/link/v2/east/log", "/api/link/v2/west"):
                assert httpx.get(url + path, headers=stranger_says).status_code == 401, shown
            link = f"{url}/api/link/v2/east"
            assert httpx.post(link, content=b"{}", headers=stranger_says).status_code == 401, shown
        good = {"Authorization": "Bearer a-token-for-tests-only"}
        assert httpx.get(f"{url}/api/link/v2/east/books", headers=good).status_code == 200
        assert httpx.post(f"{url}/api/link/v2/east", content=b"{", headers=good).status_code == 422
        monkeypatch.setattr("topmast.adapters.link.peer.PREFIX", "/api/link/v1")
        older = Peer("east", url, "a-token-for-tests-only")
        with pytest.raises(NotUnderstood, match="is of another version, without a link"):
            older.post(b"{}")
        older.close()
        assert httpx.get(f"{url}/health").json()["role"] == "placer"
        assert "the queue is at" in httpx.get(f"{url}/api/v1/jobs").text
        assert placer.stop() == 0
        other = [*arguments[:3], "west", *arguments[4:]]
        stranger = Server(tmp_path / "east", None, port=port, arguments=other)
        stranger.start()
        assert stranger.ended() == 2
        assert "belongs to the placer of region east" in stranger.log_tail()
    finally:
        placer.end()
