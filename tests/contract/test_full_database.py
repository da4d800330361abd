"""The disk of a real PostgreSQL is full: one clear line, and nothing that was acknowledged is lost."""

import hashlib
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa

from tests.support.live import Server, eventually, free_ports
from tests.support.stores import Store
from topmast.adapters.store import (
    Full,
    JournalFailure,
    SqlJournal,
    copy_database,
    examined,
    open_journal,
)
from topmast.api.standby import MOST_AGE
from topmast.ports import Audit, Record

SIZE_MB = 40
EMPTY = bytes(1024)
"""An archive with nothing in it."""


@pytest.fixture
def small(postgres: str | None) -> Iterator[tuple[str, Path]]:
    """A database with a little room, and the disk that it is on."""
    if postgres is None:
        pytest.skip("PostgreSQL is not installed")
    server = sa.make_url(postgres).set(drivername="postgresql+psycopg")
    folder = Path(tempfile.mkdtemp(prefix="pgsmall"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m,mode=755", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        folder.rmdir()
        pytest.skip("mounting a small disk is not permitted here")
    data = folder / "data"
    data.mkdir(mode=0o700)
    owner = Path(str(server.query["host"])) / "data"
    shutil.chown(data, owner.stat().st_uid, owner.stat().st_gid)
    admin = sa.create_engine(server, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    try:
        with admin.connect() as connection:
            connection.exec_driver_sql(f"CREATE TABLESPACE small LOCATION '{data}'")
            connection.exec_driver_sql("CREATE DATABASE small TABLESPACE small")
            url = server.set(database="small").render_as_string(hide_password=False)
            yield url, folder
            connection.exec_driver_sql("DROP DATABASE small WITH (FORCE)")
            connection.exec_driver_sql("DROP TABLESPACE small")
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


@pytest.mark.parametrize("at_once", [50, 1_500], ids=["one by one", "by COPY"])
def test_a_full_disk_of_the_database_loses_nothing(small: tuple[str, Path], at_once: int) -> None:
    url, folder = small
    acknowledged = 0

    def write(journal: SqlJournal) -> None:
        nonlocal acknowledged
        for first in range(1, 50_000, at_once):
            rows = [
                Record(seq, 1.0, "queue", b"%d" % seq * 200, b"[]")
                for seq in range(first, first + at_once)
            ]
            journal.append(rows, Audit())
            acknowledged = first + at_once - 1

    with closing(open_journal(url)) as journal:
        with pytest.raises(JournalFailure, match="the disk of the database is full"):
            write(journal)
        with pytest.raises(JournalFailure, match="an earlier write failed"):
            journal.append([], Audit())
    assert acknowledged >= at_once
    fill(folder)
    with pytest.raises(Full, match="make room there"):
        open_journal(url)
    subprocess.run(["mount", "-o", "remount,size=400m", str(folder)], check=True)
    report = examined(url)
    assert (report.faults, report.last) == ((), acknowledged)
    with closing(open_journal(url)) as journal:
        journal.append([Record(acknowledged + 1, 2.0, "queue", b"", b"")], Audit())


def test_a_copy_into_a_full_database_can_be_made_again(
    small: tuple[str, Path], tmp_path: Path
) -> None:
    url, folder = small
    source = tmp_path / "journal.sqlite"
    with closing(open_journal(source)) as journal:
        event = random.Random(1).randbytes(10_000)  # which PostgreSQL cannot compress
        journal.append([Record(n, 1.0, "queue", event, b"") for n in range(1, 5_001)], Audit())
    with pytest.raises(JournalFailure, match="the disk of the database is full"):
        copy_database(source, url, ())
    subprocess.run(["mount", "-o", "remount,size=400m", str(folder)], check=True)
    assert copy_database(source, url, ())["journal"].rows == 5_000


def fill(folder: Path) -> None:
    """Leave no room on a disk."""
    with suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
        while file.write(bytes(65_536)):
            pass


FLEET = """
regions: {east: {clusters: {east-a: {hosts: [{count: 1, gpu: H100, gpus: 1}]}}}}
tenants: {default: {quota: {H100: 1}}}
"""


def test_a_server_answers_reads_until_there_is_room(
    small: tuple[str, Path], tmp_path: Path
) -> None:
    """The same process, which never closes its port: what writes is told why, and to come again."""
    url, folder = small
    (tmp_path / "fleet.yaml").write_text(FLEET)
    (port,) = free_ports(1)
    arguments = ["--store", url, "--standby"]
    server = Server(tmp_path / "state", tmp_path / "fleet.yaml", arguments=arguments, port=port)
    server.start()
    try:
        base = f"{server.wait_ready()}/api/v1"
        jobs = [_submitted(base, "first").json()["id"]]
        fill(folder)
        refused = eventually(lambda: _refused(base, jobs), "a refusal")
        assert "nothing can be written" in refused.json()["detail"]
        assert "the disk of the database is full" in refused.json()["detail"]
        assert refused.headers["Retry-After"] == "5"
        pid = server.pid
        eventually(lambda: httpx.get(f"{base}/jobs").status_code == 200, "reads are answered")
        for _ in range(40):  # longer than it takes to look for room
            time.sleep(0.2)
            told = httpx.get(f"{base}/jobs", timeout=1.0)
            assert (told.status_code, told.json()["jobs"][0]["id"]) == (200, jobs[-1])
        assert "is full" in httpx.get(f"{base}/health").json()["why"]
        assert httpx.get(f"{base}/jobs", headers={MOST_AGE: "0"}).status_code == 503
        (folder / "filler").unlink()
        eventually(lambda: httpx.get(f"{base}/health").json()["role"] == "leader", "it leads")
        for job in [*jobs, _submitted(base, "last").json()["id"]]:
            assert httpx.get(f"{base}/jobs/{job}").status_code == 200
        assert server.running
        assert server.pid == pid
    finally:
        server.end()


def test_a_pair_goes_on_once_there_is_room_in_its_state_folder(
    database: Store, tmp_path: Path
) -> None:
    """Of which the engine needs some before it takes orders; neither process ends meanwhile."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m,mode=700", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk is not permitted here")
    (tmp_path / "fleet.yaml").write_text(FLEET)
    arguments = ["--store", database.target, "--standby"]
    servers = [
        Server(disk / "state", tmp_path / "fleet.yaml", arguments=arguments, port=port)
        for port in free_ports(2)
    ]
    first, second = (f"http://127.0.0.1:{server.port}/api/v1" for server in servers)
    try:
        for server, base, role in zip(servers, (first, second), ("leader", "standby"), strict=True):
            server.log = tmp_path / f"{role}.log"
            server.start()
            eventually(partial(_has_role, base, role), role)
        fill(disk)
        job = _submitted(first, "first").json()["id"]
        refused = _uploaded(first)
        assert refused.status_code == 507
        assert "its disk would have less than" in refused.json()["detail"]
        time.sleep(2.0)  # some looks of the standby
        assert _has_role(second, "standby")
        servers[0].kill()
        eventually(lambda: b"cannot take over" in servers[1].log.read_bytes(), "it is tried")
        time.sleep(6.0)  # longer than it takes to try again
        assert servers[1].running, servers[1].log_tail()
        (disk / "filler").unlink()
        eventually(partial(_has_role, second, "leader"), "it takes over")
        assert _uploaded(second).is_success
        eventually(lambda: httpx.get(f"{second}/jobs/{job}").json()["state"] == "SUCCEEDED", "ends")
    finally:
        for server in servers:
            server.end()
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def _has_role(base: str, role: str) -> bool:
    with suppress(httpx.TransportError):
        return bool(httpx.get(f"{base}/health").json()["role"] == role)
    return False


def _uploaded(base: str) -> httpx.Response:
    digest = hashlib.sha256(EMPTY).hexdigest()
    return httpx.put(f"{base}/workdirs/sha256:{digest}", content=EMPTY, timeout=10.0)


def _submitted(base: str, name: str) -> httpx.Response:
    job = {"name": name, "run": f"true # {random.Random(name).randbytes(40_000).hex()}"}
    return httpx.post(f"{base}/jobs", json={"job": job}, timeout=10.0)


def _refused(base: str, jobs: list[str]) -> httpx.Response | None:
    """Submit until the disk is full; what is acknowledged is in ``jobs``. The port is always open."""
    try:
        answer = _submitted(base, f"more-{len(jobs)}")
    except (httpx.ReadError, httpx.RemoteProtocolError):
        return None  # the one that found the disk full
    if answer.status_code == 201:
        jobs.append(answer.json()["id"])
        return None
    return answer if "is full" in answer.text else None
