"""A user's day and an operator's day, with the real command line against a real server."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.live import Server, eventually, live
from topmast import Client, __version__
from topmast.model.errors import Conflict

FLEET = """
regions:
  east: {clusters: {east-1: {hosts: [{count: 2, gpu: H100, gpus: 8}]}}}
  west: {clusters: {west-1: {hosts: [{count: 1, gpu: A100, gpus: 4}]}}}
links: [{from: east, to: west, gbps: 100}]
tenants: {vision: {quota: {H100: 16, A100: 4}}, nlp: {quota: {H100: 0}}}
"""
QUICK = "tenant: vision\nresources: {accelerators: H100:1}\nrun: echo done\n"
LONG = "tenant: vision\nresources: {accelerators: H100:8}\nnum_nodes: 2\nrun: exec sleep 600\n"


@dataclass(frozen=True)
class Shell:
    """A shell in the folder of a user."""

    folder: Path
    state: Path

    def file(self, name: str, text: str) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return name

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "topmast.app", "--state", str(self.state), *words]

    def run(self, *words: str, want_code: int = 0) -> str:
        """What a command prints to stdout."""
        done = subprocess.run(
            self.command(*words), cwd=self.folder, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == want_code, (done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done.stdout

    def json(self, *words: str, want_code: int = 0) -> Any:
        """The document that a command prints."""
        return json.loads(self.run(*words, "--json", want_code=want_code))

    def error(self, *words: str, want_code: int) -> str:
        """The one line in which a command says what is wrong."""
        done = subprocess.run(
            self.command(*words), cwd=self.folder, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stdout) == (want_code, "")
        [line] = done.stderr.splitlines()
        return line


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with two regions of processes."""
    with live(tmp_path_factory.mktemp("live"), FLEET) as (running, _):
        yield running


@pytest.fixture
def shell(server: Server, tmp_path: Path) -> Shell:
    """A shell that finds the server by its state folder."""
    return Shell(tmp_path, server.state)


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """The typed client of the same server."""
    with Client(state=server.state, user="ada") as found:
        yield found


def test_from_a_file_to_its_end(shell: Shell) -> None:
    """Launch, wait, read what was written, see the story, see what it cost."""
    shell.file("src/hello.txt", "hello from the workdir\n")
    shell.file("src/notes.tmp", "nobody needs this")
    shell.file("src/.topmastignore", "*.tmp\n")
    shell.file(
        "job.yaml",
        "tenant: vision\nnum_nodes: 2\nworkdir: src\nenvs: {WHO: nobody}\n"
        "resources: {accelerators: H100:1}\n"
        'run: "cat hello.txt; ls; echo $WHO is $TOPMAST_RANK of $TOPMAST_WORLD_SIZE"\n',
    )
    launched = shell.json("launch", "job.yaml", "--wait", "--env", "WHO=ada", "--name", "first")
    job = launched["id"]
    assert launched["job"]["state"] == "SUCCEEDED"
    assert launched["job"]["name"] == "first"
    text = shell.run("logs", job, "--task", "1", "--follow")
    assert text == "hello from the workdir\nhello.txt\nada is 1 of 2\n"
    story = shell.json("status", job)
    assert [attempt["outcome"] for attempt in story["attempts"]] == ["succeeded"]
    assert "east/east-1" in shell.run("status", job)
    assert "SUCCEEDED" in shell.run("explain", job)
    [row] = [row for row in shell.json("usage", "--since", "1h")["usage"] if row["key"] == "vision"]
    assert row["held_gpu_h"] > 0
    assert job in [one["id"] for one in shell.json("queue", "--all")["jobs"]]


def test_a_job_that_fails(shell: Shell) -> None:
    """`wait` and `launch --wait` end with exit code 1, and say why."""
    shell.file("job.yaml", "tenant: vision\nmax_restarts: 0\nrun: echo oh no; exit 3\n")
    launched = shell.json("launch", "job.yaml", "--wait", want_code=1)
    assert launched["job"]["state"] == "FAILED"
    [ended] = shell.json("wait", launched["id"], want_code=1)["jobs"]
    assert ended["cause"]
    assert shell.run("logs", launched["id"]) == "oh no\n"


def test_a_job_that_waits_is_explained(shell: Shell) -> None:
    """While one gang holds the GPUs, another waits: each region and cluster says why."""
    shell.file("long.yaml", LONG)
    holder = shell.run("launch", "long.yaml").strip()
    waiter = shell.run("launch", "long.yaml", "--name", "waiter").strip()
    try:
        explained = shell.json("explain", waiter)
        assert explained["state"] == "PENDING"
        assert explained["reason"]
        assert explained["summary"]
        assert [region["region"] for region in explained["regions"]] == ["east", "west"]
        text = shell.run("explain", waiter)
        for part in ("east-1", "west-1", "NoMatchingHardware", "expected start"):
            assert part in text
        listed = shell.run("queue").splitlines()
        assert [line.split()[0] for line in listed if waiter in line or holder in line]
        dry = shell.json("launch", "long.yaml", "--dry-run")
        assert (dry["job"], dry["state"]) == (None, "NOT SUBMITTED")
    finally:
        cancelled = shell.json("cancel", holder, waiter)["jobs"]
        assert [one["id"] for one in cancelled] == [holder, waiter]
    ended = shell.json("wait", holder, waiter, "--timeout", "30s", want_code=1)["jobs"]
    assert {one["state"] for one in ended} == {"CANCELLED"}


def test_following_shows_lines_as_they_come(shell: Shell) -> None:
    """The first line is there long before the job ends, which a cancellation then ends."""
    shell.file("slow.yaml", "tenant: vision\nrun: echo first; exec sleep 600\n")
    job = shell.run("launch", "slow.yaml").strip()
    following = subprocess.Popen(
        shell.command("logs", job, "--follow"), stdout=subprocess.PIPE, text=True
    )
    assert following.stdout is not None
    assert following.stdout.readline() == "first\n"
    shell.run("cancel", job)
    assert following.wait(timeout=60) == 0
    following.stdout.close()


def test_an_operators_day(shell: Shell) -> None:
    """Hosts put aside and taken back, a dataset added, copied and dropped."""
    assert [one["name"] for one in shell.json("regions")["regions"]] == ["east", "west"]
    assert [one["name"] for one in shell.json("clusters")["clusters"]] == ["east-1", "west-1"]
    assert {one["gpu_model"]: one["total"] for one in shell.json("gpus")["gpus"]} == {
        "H100": 16,
        "A100": 4,
    }
    assert {one["name"] for one in shell.json("tenants")["tenants"]} == {"vision", "nlp"}
    host = shell.json("hosts", "--region", "west")["hosts"][0]["name"]
    assert shell.json("cordon", host)["hosts"][0]["state"] == "cordoned"
    assert shell.json("drain", host)["hosts"][0]["state"] == "draining"
    assert shell.json("uncordon", host)["hosts"][0]["state"] == "healthy"
    shell.file("data/shard-0", "x" * 10_000)
    added = shell.json("datasets", "add", "shards", "--region", "east", "--source", "data")
    assert added["size_bytes"] == 10_000
    assert added["replicas"] == [{"region": "east", "state": "complete", "why": ""}]
    shell.run("datasets", "replicate", "shards", "west")
    shell.file(
        "reads.yaml", "tenant: vision\ndatasets: [shards]\nrun: cat $TOPMAST_DATASET_SHARDS/shard-0\n"
    )  # fmt: skip
    launched = shell.json("launch", "reads.yaml", "--wait")
    assert shell.run("logs", launched["id"]) == "x" * 10_000
    assert "shards" in shell.run("datasets")


def test_mistakes(shell: Shell, tmp_path: Path) -> None:
    """One line each, with the field and the remedy, from the file or from the server."""
    shell.file("bad.yaml", "run: x\nresources: {acelerators: H100:8}\n")
    assert "bad.yaml:2: resources.acelerators" in shell.error("launch", "bad.yaml", want_code=2)
    nowhere = Shell(tmp_path, tmp_path / "nowhere")
    assert "bad.yaml:2" in nowhere.error("launch", "bad.yaml", want_code=2)
    shell.file("job.yaml", QUICK)
    assert "no Topmast server runs on" in nowhere.error("launch", "job.yaml", want_code=1)
    shell.file("tpu.yaml", "tenant: vision\nresources: {accelerators: TPU:8}\nrun: x\n")
    line = shell.error("launch", "tpu.yaml", want_code=2)
    assert "resources.accelerators" in line
    assert "TPU" in line
    assert "tenant" in shell.error("launch", "job.yaml", "--tenant", "nobody", want_code=2)
    assert "j999" in shell.error("status", "j999", want_code=1)
    assert "h999" in shell.error("cordon", "h999", want_code=1)
    for command in ("login", "logout"):
        assert "this server asks for no login" in shell.error(command, want_code=1)
    assert "task" in shell.error(
        "logs", shell.run("launch", "job.yaml").strip(), "--task", "7", want_code=2
    )


def test_the_client(client: Client, server: Server) -> None:
    """A program submits many jobs at once, watches what happens, and waits for them."""
    health = client.health()
    assert health.version == __version__
    documents = [
        {"tenant": "vision", "run": "echo $N", "envs": {"N": str(n)}, "name": f"many-{n}"}
        for n in range(20)
    ]
    receipt = client.submit_many(documents, key="twenty")
    assert client.submit_many(documents, key="twenty") == receipt, "one key, one submission"
    with pytest.raises(Conflict):
        client.submit_many(documents[:1], key="twenty")
    ended = client.wait(receipt.ids, timeout_s=60)
    assert [job.id for job in ended] == list(receipt.ids)
    assert {job.state for job in ended} == {"SUCCEEDED"}
    assert {job.user for job in ended} == {"ada"}
    assert "".join(map(str, client.logs(receipt.ids[7]))) == "7\n"
    listed = [job.id for job in client.jobs(tenant="vision")]
    assert set(receipt.ids) <= set(listed)
    assert len(listed) == len(set(listed))
    with Client(server.url) as other:
        stream = other.events(after=0)
        assert next(stream).seq < next(stream).seq


@pytest.mark.slow
def test_waiting_outlasts_a_killed_server(tmp_path: Path) -> None:
    """The server is killed and started again on another port: `wait` and `logs` go on."""
    with live(tmp_path, FLEET) as (server, _):
        shell = Shell(tmp_path, server.state)
        shell.file(
            "job.yaml",
            "tenant: vision\nrun: for i in 1 2 3 4 5 6; do echo step $i; sleep 1; done\n",
        )
        job = shell.run("launch", "job.yaml").strip()
        told, waited, followed = (tmp_path / name for name in ("told", "waited", "followed"))
        with told.open("wb") as stderr, waited.open("wb") as waits, followed.open("wb") as follows:
            processes = [
                subprocess.Popen(shell.command("wait", job, "--json"), stdout=waits, stderr=stderr),
                subprocess.Popen(shell.command("logs", job, "--follow"), stdout=follows),
            ]
        eventually(lambda: told.read_text() and followed.read_text(), "both have begun")
        server.kill()
        server.start()
        server.wait_ready()
        assert [process.wait(timeout=60) for process in processes] == [0, 0]
        assert json.loads(waited.read_text())["jobs"][0]["state"] == "SUCCEEDED"
        assert followed.read_text() == "".join(f"step {number}\n" for number in range(1, 7))
