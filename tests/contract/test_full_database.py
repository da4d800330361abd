"""The disk of a real PostgreSQL is full: one clear line, and nothing that was acknowledged is lost."""

import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from topmast.adapters.store import (
    JournalFailure,
    SqlJournal,
    copy_database,
    examined,
    open_journal,
)
from topmast.ports import Audit, Record

SIZE_MB = 40


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
