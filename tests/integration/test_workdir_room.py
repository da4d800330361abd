"""Uploaded work folders: what they may take of the server, all together and of one account."""

import asyncio
import hashlib
import io
import os
import tarfile
import threading
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.entrance import FLEET as LOGIN_FLEET
from tests.support.entrance import Entrance, entrance, run
from tests.support.live import eventually, is_alive, kill, live
from topmast.adapters import archive_readers
from topmast.adapters.archive_readers import Readers
from topmast.adapters.engines.local.processes import children
from topmast.model.access import Role
from topmast.model.errors import Full, Unavailable
from topmast.service import judging, room
from topmast.service.blobs import Blobs
from topmast.service.turns import ASKED_AT_ONCE

FLEET = """
regions: {east: {clusters: {east-a: {hosts: [{count: 1, gpu: H100, gpus: 1}]}}}}
"""
FOLDER_BYTES = 10_240
"""Of an archive: `tarfile` fills it up to so many."""


def archive(number: int) -> bytes:
    """A work folder that no other number has."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(f"file-{number}"))
    assert len(packed.getvalue()) == FOLDER_BYTES
    return packed.getvalue()


def digest_of(number: int) -> str:
    return f"sha256:{hashlib.sha256(archive(number)).hexdigest()}"


async def upload(client: httpx.AsyncClient, number: int) -> httpx.Response:
    return await client.put(f"/workdirs/{digest_of(number)}", content=archive(number))


async def _clients(door: Entrance) -> tuple[httpx.AsyncClient, httpx.AsyncClient]:
    first, second = [
        door.client(await door.token(name, (Role.SUBMITTER, "vision"))) for name in ("ada", "bob")
    ]
    return first, second


def test_an_account_has_as_much_as_it_leaves_free_of_what_its_tenant_has(tmp_path: Path) -> None:
    """Also after a restart, and with several uploads at once; what was removed counts no more."""

    async def fill(door: Entrance) -> None:
        ada, bob = await _clients(door)
        answers = await asyncio.gather(*(upload(ada, number) for number in range(6)))
        assert sorted(answer.status_code for answer in answers) == [201] * 4 + [507] * 2
        refused = next(answer for answer in answers if answer.status_code == 507).json()
        assert refused["detail"] == (
            "the server does not take this work folder: it keeps 41kB of sa:ada and has 0B left for "
            "it: no account and no tenant may have more than it leaves free (leave out what the job "
            "does not need, or ask for old ones to be removed)"
        )
        assert (await upload(bob, 10)).status_code == 201

    async def after_a_restart(door: Entrance) -> None:
        ada, bob = await _clients(door)
        kept = [n for n in range(6) if (await ada.head(f"/workdirs/{digest_of(n)}")).is_success]
        assert len(kept) == 4
        assert (await upload(ada, kept[0])).status_code == 200, "it is here already"
        assert (await upload(ada, 20)).status_code == 507
        assert (await upload(bob, 11)).status_code == 201
        assert (await upload(bob, 12)).status_code == 507
        for number in kept[:2]:
            (tmp_path / "workdirs" / digest_of(number).removeprefix("sha256:")).unlink()
        assert (await upload(ada, 20)).status_code == 201
        door.service.blobs.room.most_bytes = 5 * FOLDER_BYTES
        full = (await upload(ada, 21)).json()
        assert full["status"] == 507
        assert "it keeps 51.2kB of at most 51.2kB (ask for old ones to be removed" in full["detail"]

    for story in (fill, after_a_restart):
        with entrance(tmp_path) as door:
            door.service.blobs.room.most_bytes = 16 * FOLDER_BYTES

            run(partial(story, door))
    files = list((tmp_path / "workdirs").iterdir())
    assert sum(file.stat().st_size for file in files) == 5 * FOLDER_BYTES


async def _account(boss: httpx.AsyncClient, name: str, tenant: str) -> str:
    """The token of an account that a tenant-admin makes."""
    made = await boss.post("/accounts", json={"name": name, "tenant": tenant})
    role = {"subject": f"sa:{name}", "role": "submitter", "tenant": tenant}
    given = await boss.post("/roles/grant", json=role)
    token = await boss.post("/tokens", json={"account": name})
    assert made.is_success
    assert given.is_success
    return str(token.json()["token"])


async def _taken(client: httpx.AsyncClient, first: int) -> int:
    """How many folders of one account are taken."""
    for number in range(first, first + 100):
        answer = await upload(client, number)
        if answer.status_code == 507:
            return number - first
        assert answer.status_code == 201
    raise AssertionError("there is no end")


def test_accounts_that_a_tenant_admin_makes_leave_room_to_other_tenants(tmp_path: Path) -> None:
    """However many, below the tenant too, after their removal, and after a restart."""

    async def fill(door: Entrance) -> None:
        boss = door.client(await door.token("boss", (Role.TENANT_ADMIN, "vision")))
        taken = []
        for number, tenant in enumerate(("vision", "nlp", "vision", "nlp", "vision")):
            client = door.client(await _account(boss, f"copy{number}", tenant))
            taken.append(await _taken(client, 100 * number))
            if number == 1:
                assert (await boss.delete(f"/accounts/copy{number}")).is_success
        assert 16 <= sum(taken) <= 32, taken
        told = [(act.tenant, act.after) for act in door.acts(verb="upload", actor="sa:copy1")]
        assert told == [("", '{"tenant":"nlp"}')] * taken[1]
        seen = (await boss.get("/audit", params={"verb": "upload"})).json()["acts"]
        assert seen == [], "a digest is the key to the content"

    async def others(door: Entrance) -> None:
        boss = door.client(await door.token("boss", (Role.TENANT_ADMIN, "vision")))
        again = door.client(await _account(boss, "again", "vision"))
        assert await _taken(again, 500) <= 1
        dan = door.client(await door.token("dan", (Role.SUBMITTER, "speech")))
        role = {"subject": "sa:dan", "role": "submitter", "tenant": "vision"}
        assert (await boss.post("/roles/grant", json=role)).status_code == 404, "sa:dan is hidden"
        await door.token("dan", (Role.SUBMITTER, "vision"))  # as to a person or a group
        assert await _taken(dan, 600) >= 8

    for story in (fill, others):
        with entrance(tmp_path) as door:
            door.service.blobs.room.most_bytes = 64 * FOLDER_BYTES

            run(partial(story, door))


def test_an_account_whose_tenants_have_left_the_fleet_uploads_nothing(tmp_path: Path) -> None:
    """It can submit no job, and would else count beside the tenants."""

    async def story(door: Entrance) -> None:
        ada = door.client(await door.token("ada", (Role.SUBMITTER, "vision")))
        assert (await upload(ada, 0)).status_code == 201

    async def later(door: Entrance) -> None:
        ada = door.client(await door.token("ada"))
        assert (await upload(ada, 1)).status_code == 403
        assert (await ada.head(f"/workdirs/{digest_of(0)}")).status_code == 403
        boss = door.client(await door.token("boss", (Role.SUBMITTER, "/")))
        assert (await upload(boss, 1)).status_code == 201

    with entrance(tmp_path) as door:
        run(partial(story, door))
    without = {**LOGIN_FLEET, "tenants": {"speech": {}}}
    with entrance(tmp_path, without) as door:
        run(partial(later, door))


def test_no_upload_takes_what_a_disk_keeps_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the disk should have more free than it has; other accounts are refused as well."""
    blobs = Blobs(tmp_path)
    assert blobs.put(digest_of(0), archive(0), "sa:ada")
    monkeypatch.setattr(room, "LEAST_FREE_BYTES", 2**62)
    monkeypatch.setattr(room, "LEAST_FREE_PART", 1)
    for owner in ("sa:ada", "sa:bob", ""):
        with pytest.raises(Full, match=r"its disk would have less than .* free"):
            blobs.put(digest_of(1), archive(1), owner)
    assert not blobs.put(digest_of(0), archive(0), "sa:bob")
    assert len(list(tmp_path.iterdir())) == 1


def test_what_could_not_be_written_takes_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = Blobs(tmp_path)
    blobs.room.most_bytes = 2 * FOLDER_BYTES
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", lambda number: os.close(-1))
        for _ in range(3):
            with pytest.raises(Full, match="cannot keep the work folder"):
                blobs.put(digest_of(0), archive(0), "sa:ada")
    assert blobs.put(digest_of(0), archive(0), "sa:ada")


def test_the_bound_that_a_server_is_given_holds_for_later_starts(tmp_path: Path) -> None:
    """Without a login there is one account, and it may have all."""
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
        (folder / "weights").write_bytes(os.urandom(FOLDER_BYTES))
    with live(tmp_path, FLEET, arguments=("--keep-workdirs", "20kB")) as (server, client):
        assert client.upload_workdir(folders[0])
        told = r"it keeps 10\.\dkB of at most 20kB .*topmast up --keep-workdirs"
        with pytest.raises(Unavailable, match=told):
            client.upload_workdir(folders[1])
        assert server.stop() == 0
        server.arguments = ()
        with server.up() as again, pytest.raises(Unavailable, match=told):
            again.upload_workdir(folders[1])


def test_an_upload_is_read_beside_the_server(tmp_path: Path) -> None:
    """By a process that it begins again if it is killed, and that ends with it."""

    def readers(server: int) -> list[int]:
        return [pid for pid in children(server) if b"archive_readers" in _command(pid)]

    def folder(number: int) -> Path:
        found = tmp_path / f"folder-{number}"
        found.mkdir()
        (found / "file").write_text(str(number))
        return found

    with live(tmp_path, FLEET) as (server, client):
        assert readers(server.pid) == []
        client.upload_workdir(folder(0))
        (first,) = readers(server.pid)
        kill(first)
        client.upload_workdir(folder(1))
        (second,) = readers(server.pid)
        assert first != second
        server.kill()
        eventually(lambda: not is_alive(second), "it has ended", 10.0)
        with server.up() as again:
            again.upload_workdir(folder(2))
            (third,) = readers(server.pid)
            assert server.stop() == 0
            eventually(lambda: not is_alive(third), "it has ended", 10.0)


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_an_upload_that_no_process_reads_is_refused_for_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is taken later; what its account pays is the time of the process."""

    async def story(door: Entrance) -> None:
        ada, _ = await _clients(door)
        with monkeypatch.context() as patched:
            patched.setattr(archive_readers, "LAUNCH", "")
            answer = await upload(ada, 0)
            assert answer.status_code == 503
            assert "the work folder cannot be read now" in answer.json()["detail"]
        assert (await upload(ada, 0)).status_code == 201
        monkeypatch.setattr(Readers, "fault", lambda self, data: ("", 1e9))
        assert (await upload(ada, 1)).status_code == 201
        assert (await upload(ada, 2)).status_code == 429

    with entrance(tmp_path) as door:
        run(partial(story, door))


def test_uploads_of_an_account_that_wait_have_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each holds a connection."""
    go, put = threading.Event(), Blobs.put

    def wait(self: Blobs, digest: str, *upload: Any) -> bool:
        assert go.wait(60)
        return put(self, digest, *upload)

    async def story(door: Entrance) -> None:
        ada, bob = await _clients(door)
        monkeypatch.setattr(Blobs, "put", wait)
        tasks = [asyncio.create_task(upload(ada, n)) for n in range(ASKED_AT_ONCE + 5)]
        while sum(task.done() for task in tasks) < 5:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        go.set()
        codes = [(await task).status_code for task in tasks]
        assert (codes.count(429), codes.count(201)) == (5, ASKED_AT_ONCE)
        assert (await upload(bob, 1000)).status_code == 201

    with entrance(tmp_path) as door:
        run(partial(story, door))


def test_what_one_account_or_tenant_uploads_leaves_a_thread_to_others_and_counts_as_it_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive of a MiB may take seconds to read; what is here already is not read again."""
    go, put, read = threading.Event(), Blobs.put, Readers.fault
    slow = {digest_of(number) for number in (0, 1, 2, 1000, 1001, 1002)}
    looked: list[bytes] = []

    def wait(self: Blobs, digest: str, *upload: Any) -> bool:
        if digest in slow:
            assert go.wait(60)
        return put(self, digest, *upload)

    async def story(door: Entrance) -> None:
        ada, bob = await _clients(door)
        monkeypatch.setattr(Blobs, "put", wait)
        waiting = [asyncio.create_task(upload(ada, number)) for number in range(3)]
        await asyncio.sleep(0.1)
        quick = await asyncio.wait_for(upload(bob, 3), 30)
        assert (quick.status_code, go.is_set()) == (201, False)
        for name, number in (("carl", 1000), ("cora", 1001), ("cleo", 1002)):
            one = door.client(await door.token(name, (Role.SUBMITTER, "nlp")))
            waiting.append(asyncio.create_task(upload(one, number)))
        await asyncio.sleep(0.1)
        dan = door.client(await door.token("dan", (Role.SUBMITTER, "speech")))
        await door.token("dan", (Role.SUBMITTER, "vision"))
        quick = await asyncio.wait_for(upload(dan, 2000), 30)
        assert (quick.status_code, go.is_set()) == (201, False)
        go.set()
        assert [(await task).status_code for task in waiting] == [201] * 6

        def note(self: Readers, data: bytes) -> tuple[str, float]:
            looked.append(data)
            return read(self, data)

        monkeypatch.setattr(Readers, "fault", note)
        assert (await upload(bob, 0)).status_code == 200
        assert (await upload(bob, 4)).status_code == 201
        assert looked == [archive(4)]
        monkeypatch.setattr(judging, "TAKES_PER_S", 1e12)
        assert (await upload(bob, 5)).status_code == 201
        assert (await upload(bob, 6)).status_code == 429
        assert (await upload(ada, 6)).status_code == 201

    with entrance(tmp_path) as door:
        run(partial(story, door))
