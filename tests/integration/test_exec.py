"""Commands beside tasks, as people run them: on the command line, by programs, with a terminal."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import cast

import httpx
import pytest

from tests.integration.test_apart import running
from tests.support.entrance import ROOT, Entrance, entrance, run
from tests.support.live import end_agents, eventually, live, until_state
from topmast import Client
from topmast.adapters.engines.execs import LiveExec
from topmast.adapters.engines.local.engine import LocalEngine
from topmast.model.access import Role
from topmast.model.errors import Conflict, TopmastError

FLEET = "regions: {local: {clusters: {local: {hosts: [{count: 1, gpu: H100, gpus: 2}]}}}}"
JOB = {
    "run": "echo mine >note; exec sleep 600",
    "num_nodes": 2,
    "resources": {"accelerators": "H100:1"},
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, str, str]]:
    """A server with a job of two tasks that runs: a client, its URL, the job."""
    with live(tmp_path_factory.mktemp("exec"), FLEET) as (server, client):
        job = client.submit(JOB).id
        until_state(client, job, "RUNNING")
        eventually(lambda: client.execute(job, ["test", "-e", "note"]).code == 0, "it has begun")
        yield client, server.url, job


def topmast(url: str, *words: str, typed: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """A command of ours."""
    command = [sys.executable, "-m", "topmast.app", *words[:1], "--server", url, *words[1:]]
    return subprocess.run(command, input=typed, capture_output=True, timeout=60, check=False)


def test_a_command_runs_beside_a_task(served: tuple[Client, str, str]) -> None:
    """Its streams are ours, its code is ours, its input only with -i."""
    _, url, job = served
    script = "cat note; echo $RANK; echo there >&2; cat; exit 5"
    done = topmast(
        url, "exec", job, "--task", "1", "-i", "--", "bash", "-c", script, typed=b"\x00in"
    )
    assert (done.returncode, done.stdout, done.stderr) == (5, b"mine\n1\n\x00in", b"there\n")
    without = topmast(url, "exec", job, "--", "cat", typed=b"not for it")
    assert (without.returncode, without.stdout) == (0, b"")
    told = json.loads(
        topmast(url, "exec", job, "--json", "--", "sh", "-c", "echo out; exit 3").stdout
    )
    assert (told["code"], told["stdout"], told["task"]) == (3, "out\n", 0)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("exec", "JOB"), 2, "write the command behind --"),
        (("exec", "JOB", "--task", "2", "--", "true"), 2, "the job has tasks 0 to 1"),
        (("exec", "j99", "--", "true"), 1, "no job 'j99'"),
        (("exec", "JOB", "-t", "--", "bash"), 2, "this is no terminal"),
        (("exec", "JOB", "--", "no-such-program"), 127, "no-such-program"),
    ],
)
def test_what_cannot_run_is_said(
    served: tuple[Client, str, str], words: tuple[str, ...], code: int, said: str
) -> None:
    """On one line, with the field and what would be right."""
    _, url, job = served
    done = topmast(url, *(job if word == "JOB" else word for word in words))
    assert (done.returncode, said in done.stderr.decode()) == (code, True), done.stderr
    assert b"Traceback" not in done.stderr


def test_a_program_runs_commands_and_talks_with_them(served: tuple[Client, str, str]) -> None:
    """What it wants more of it asks for; what it leaves is ended."""
    client, _, job = served
    found = client.execute(job, ["sort"], stdin=b"b\na\n")
    assert (found.code, found.stdout, found.stderr) == (0, b"a\nb\n", b"")
    big = client.execute(job, ["cat"], stdin=bytes(range(256)) * 8192)
    assert big.stdout == bytes(range(256)) * 8192
    with client.start_command(
        job, ["bash", "-c", "echo $$; read line; echo got $line; sleep 600"]
    ) as one:
        pid = int(eventually(lambda: one.next(5.0).stdout, "it tells its number"))
        one.write(b"this\n")
        assert eventually(lambda: one.next(5.0).stdout, "it answers") == b"got this\n"
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "it was ended")


def test_a_shell_has_a_terminal(served: tuple[Client, str, str]) -> None:
    """Keys arrive as they are typed, Ctrl-C too; its code is that of the command."""
    _, url, job = served
    pid, end = pty.fork()
    if pid == 0:
        words = [sys.executable, "-m", "topmast.app", "exec", job, "--server", url, "-t", "--"]
        os.execv(sys.executable, [*words, "bash", "--norc", "--noprofile"])
    seen = b""

    def until(text: bytes) -> None:
        nonlocal seen
        deadline_s = time.monotonic() + 60
        while text not in seen:
            assert time.monotonic() < deadline_s, seen
            if select.select([end], [], [], 1.0)[0]:
                seen += os.read(end, 4096)

    os.write(end, b"PS1=ready_; echo $((6*7))_$RANK\n")
    until(b"42_0\r\n")
    os.write(end, b"sleep 600\n")
    time.sleep(0.5)
    os.write(end, b"\x03")
    os.write(end, b"echo code_$?; test -t 0 && exit 4\n")
    until(b"code_130\r\n")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
    os.close(end)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_command_ends_when_its_client_is_ended(
    served: tuple[Client, str, str], tmp_path: Path, number: signal.Signals, more: tuple[str, ...]
) -> None:
    """By a signal, or with its terminal: at once, not when nothing has asked for a minute."""
    _, url, job = served
    told = tmp_path / "pid"
    words = [sys.executable, "-m", "topmast.app", "exec", job, "--server", url, *more, "--"]
    with subprocess.Popen(
        [*words, "bash", "-c", f"echo $$ >{told}; sleep 600"], stderr=subprocess.DEVNULL
    ) as client:
        eventually(lambda: told.exists() and told.read_text(), "it runs")
        pid = int(told.read_text())
        assert Path(f"/proc/{pid}").exists()
        client.send_signal(number)
        assert client.wait(20) == 128 + number
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "it was ended", 20)


def test_a_command_ends_with_its_job(served: tuple[Client, str, str]) -> None:
    """What it wrote last is told, and that it was ended; then no other begins."""
    client, _, _ = served
    job = client.submit({"run": "sleep 600", "name": "short"}).id
    until_state(client, job, "RUNNING")
    with client.start_command(job, ["bash", "-c", "echo up; sleep 600"]) as one:
        assert eventually(lambda: one.next(5.0).stdout, "it runs") == b"up\n"
        client.cancel(job)
        page = eventually(lambda: p if (p := one.next(5.0)).code is not None else None, "it ends")
        assert page.code in (129, 137, 143, 255)
    until_state(client, job, "CANCELLED")
    with pytest.raises(Conflict, match="it is CANCELLED"):
        client.execute(job, ["true"])


def test_a_command_that_was_ended_before_it_began_never_runs(
    served: tuple[Client, str, str], tmp_path: Path
) -> None:
    """While a job sets itself up its commands wait; what was ended meanwhile is not run after it."""
    client, _, _ = served
    ready, ran, other = tmp_path / "ready", tmp_path / "ran", tmp_path / "other"
    setup = f"until test -e {ready}; do sleep 0.05; done"
    job = client.submit({"setup": setup, "run": "sleep 600", "name": "slow"}).id
    until_state(client, job, "RUNNING")
    with client.start_command(job, ["touch", str(ran)]) as one:
        one.end()
        page = one.next(5.0)
        assert (page.code, page.error) == (255, "it was ended before it began")
    with client.start_command(job, ["touch", str(other)]) as waiting:
        ready.touch()
        page = eventually(lambda: p if (p := waiting.next(5.0)).code is not None else None, "ends")
        assert page.code == 0
    assert other.exists()
    assert not ran.exists(), "orders are begun oldest first, or both at once"
    client.cancel(job)


def test_a_user_that_may_no_more_has_no_command(tmp_path: Path) -> None:
    """A role that is revoked ends what runs by it within seconds; others go on."""

    async def story(door: Entrance) -> None:
        ann = door.client(await door.token("ann", (Role.SUBMITTER, "vision")))
        boss = door.client(await door.token("boss", (Role.TENANT_ADMIN, "vision")))
        path = f"/jobs/{await _running(ann)}/exec"
        wanted = {"command": ["sh", "-c", "echo up; sleep 600"]}
        mine, theirs = [(await c.post(path, json=wanted)).json()["id"] for c in (ann, boss)]
        for client, id in ((ann, mine), (boss, theirs)):
            assert (await client.get(f"{path}/{id}", params={"wait_s": 15})).json()["stdout"]
        directory = door.service.directory
        await directory.grant(ROOT, "sa:boss", "submitter", "vision")
        await directory.revoke(ROOT, "sa:boss", "tenant-admin", "vision")
        for method, more in (("GET", ""), ("POST", "/input")):
            assert (await boss.request(method, f"{path}/{theirs}{more}")).status_code == 403
        assert door.service.execs is not None
        live = cast(LiveExec, door.service.execs._open[theirs].command)
        for _ in range(200):
            if live.finished:
                break
            await asyncio.sleep(0.1)
        assert live.finished, "the server ended it, which nothing asked about"
        assert (await ann.get(f"{path}/{mine}")).json()["code"] is None

    _with_accounts(tmp_path, story)


def test_one_account_leaves_commands_to_others(tmp_path: Path) -> None:
    """It has some at a time; more are refused with the time to try again, and no other's are lost."""

    async def story(door: Entrance) -> None:
        ann = door.client(await door.token("ann", (Role.SUBMITTER, "vision")))
        boss = door.client(await door.token("boss", (Role.TENANT_ADMIN, "vision")))
        path = f"/jobs/{await _running(ann)}/exec"
        wanted = {"command": ["sleep", "600"]}
        theirs = (await boss.post(path, json=wanted)).json()["id"]
        answers = await asyncio.gather(*(ann.post(path, json=wanted) for _ in range(12)))
        begun = [answer.json()["id"] for answer in answers if answer.status_code == 201]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert (len(begun), len(refused)) == (8, 4)
        assert refused[0].headers["retry-after"]
        assert (await ann.post(f"{path}/{begun[0]}/end")).status_code == 200
        assert (await ann.post(path, json=wanted)).status_code == 201
        assert (await boss.get(f"{path}/{theirs}")).json()["code"] is None

    _with_accounts(tmp_path, story)


def _with_accounts(folder: Path, story: Callable[[Entrance], Awaitable[None]]) -> None:
    """A story at a server with accounts and real tasks."""
    with entrance(folder, engine=LocalEngine) as door:
        try:
            run(lambda: story(door))
        finally:
            end_agents(folder)


async def _running(client: httpx.AsyncClient) -> str:
    """A job of the client that runs."""
    body = {"job": {"run": "sleep 600", "tenant": "vision"}}
    job: str = (await client.post("/jobs", json=body)).json()["id"]
    for _ in range(600):
        if (await client.get(f"/jobs/{job}")).json()["state"] == "RUNNING":
            return job
        await asyncio.sleep(0.05)
    raise AssertionError("it does not run")


def test_who_may_run_commands_beside_a_job(tmp_path: Path) -> None:
    """The one that submitted it, and those that act for others; each beginning is audited once."""

    async def story(door: Entrance) -> None:
        roles = {
            "ann": (Role.SUBMITTER, "vision"), "bob": (Role.SUBMITTER, "vision"),
            "eve": (Role.VIEWER, "vision"), "sue": (Role.SUBMITTER, "speech"),
            "boss": (Role.TENANT_ADMIN, "vision"),
        }  # fmt: skip
        tokens = {name: await door.token(name, role) for name, role in roles.items()}
        clients = {name: door.client(token) for name, token in tokens.items()}
        job = await _running(clients["ann"])
        path, wanted = f"/jobs/{job}/exec", {"command": ["echo", "it is", "$(id)"]}
        answers = {
            name: (await client.post(path, json=wanted)).status_code
            for name, client in clients.items()
        }
        assert answers == {"ann": 201, "bob": 403, "eve": 403, "sue": 404, "boss": 201}
        lines = {(a.actor, a.outcome.split(":")[0]): a for a in door.acts(verb="exec")}
        done, refused = (
            (("sa:ann", "done"), ("sa:boss", "done")),
            (("sa:bob", "refused"), ("sa:eve", "refused")),
        )
        assert set(lines) == {*done, *refused}
        told = json.loads(lines["sa:ann", "done"].after)
        assert told == {"task": 0, "tty": False, "command": "echo it is $(id)"}
        mine = (await clients["ann"].post(path, json=wanted)).json()["id"]
        assert await _whole(clients["ann"], f"{path}/{mine}") == ("it is $(id)\n", 0)
        for name, status in (("bob", 404), ("boss", 404), ("eve", 403), ("sue", 404)):
            for method, more in (("GET", ""), ("POST", "/input"), ("POST", "/end")):
                answer = await clients[name].request(method, f"{path}/{mine}{more}")
                assert answer.status_code == status, (name, method, more, answer.text)
        for wrong, field in (
            ({"command": []}, "command"), ({"command": ["a\0"]}, "command"), ({"command": "ls"}, "command"),
            ({"command": ["x"] * 1001}, "command"), ({"command": ["x" * 9_000] * 8}, "command"),
            ({"command": ["ls"], "task": 1}, "task"), ({"command": ["ls"], "task": "0"}, "task"),
            ({"command": ["ls"], "rows": 0}, "rows"), ({"command": ["ls"], "root": True}, "root"),
        ):  # fmt: skip
            answer = await clients["ann"].post(path, json=wrong)
            assert (answer.status_code, answer.json()["field"]) == (422, field), wrong

    _with_accounts(tmp_path, story)


async def _whole(client: httpx.AsyncClient, path: str) -> tuple[str, int]:
    out, offset = b"", 0
    while True:
        answer = await client.get(path, params={"stdout": offset, "wait_s": 5})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        out, offset = out + base64.b64decode(page["stdout"]), page["stdout_next"]
        if page["code"] is not None:
            return out.decode(), page["code"]


def test_a_command_runs_in_a_region_with_a_process_of_its_own(tmp_path: Path) -> None:
    """By way of the link; while that is cut it cannot be asked about, and that is said."""
    with running(tmp_path) as apart:
        client = apart.client
        job = client.submit({"run": "sleep 600", "resources": {"accelerators": "A100:1"}}).id
        until_state(client, job, "RUNNING")
        found = client.execute(
            job, ["sh", "-c", "cat; echo $TOPMAST_CLUSTER; exit 6"], stdin=b"in "
        )
        assert (found.stdout, found.code) == (b"in west-a\n", 6)
        apart.placers["west"].kill()
        with pytest.raises(TopmastError, match="cannot be reached"):
            client.execute(job, ["true"])
