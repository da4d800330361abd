"""A database in PostgreSQL that refuses: each error names the part of the URL, and what helps."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.support.live import free_ports
from tests.support.postgresql import Listening, programs
from topmast.adapters.store import JournalFailure, NotAdmitted, follow, open_journal
from topmast.adapters.store.logins import REFUSALS, refusal_of, told

SECRET = "a-secret-password"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    """A server that asks users on TCP for their password, with a few users."""
    if programs() is None:
        pytest.skip("PostgreSQL is not installed")
    (port,) = free_ports(1)
    folder = Path("/tmp") / f"pglogin{os.getpid()}"
    running = Listening(folder, "127.0.0.2/32", port)
    running.start()
    try:
        with psycopg.connect(running.local_url, autocommit=True) as connection:
            for statement in (
                f"CREATE ROLE app LOGIN PASSWORD '{SECRET}'",
                f"CREATE ROLE locked NOLOGIN PASSWORD '{SECRET}'",
                f"CREATE ROLE busy LOGIN PASSWORD '{SECRET}' CONNECTION LIMIT 0",
                "CREATE DATABASE shut",
                "REVOKE CONNECT ON DATABASE shut FROM PUBLIC",
                "CREATE DATABASE fixed OWNER app",
                "ALTER DATABASE fixed SET default_transaction_read_only = on",
                "CREATE DATABASE others",
            ):
                connection.execute(statement)
        hba = folder / "data" / "pg_hba.conf"
        hba.write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
        with psycopg.connect(running.local_url, autocommit=True) as connection:
            connection.execute("SELECT pg_reload_conf()")
        yield running
    finally:
        running.stop("immediate")
        subprocess.run(["rm", "-rf", str(folder)], check=True)


CASES = [
    ("app@HOST/postgres", "wrong", "user 'app': its password is missing or wrong", False),
    ("app@HOST/postgres", "", "user 'app': its password is missing or wrong", False),
    ("locked@HOST/postgres", SECRET, "user 'locked': it may not log in", False),
    ("busy@HOST/postgres", SECRET, "host 'HOST': the server has as many connections", True),
    ("app@HOST/none", SECRET, "database 'none': the server has no such database", False),
    ("app@HOST/shut", SECRET, "user 'app': it lacks rights on the database", False),
    ("app@HOST/others", SECRET, "user 'app': it lacks rights on the database", False),
    ("app@HOST/fixed", SECRET, "host 'HOST': it is a replica, or the database is set", True),
    ("app@HOST/postgres?sslmode=require", SECRET, "sslmode 'require': TLS is asked for", False),
    ("app@nowhere.invalid/postgres", SECRET, "host 'nowhere.invalid': no such host is known", True),
    ("app@127.0.0.1:1/postgres", SECRET, "host '127.0.0.1:1': no server answers there", True),
    ("none@/postgres?host=FOLDER&port=PORT", "", "user 'none': the server has no such role", False),
]


@pytest.mark.parametrize(("url", "password", "want", "waits"), CASES)
def test_a_refusal_names_the_part_of_the_url(
    server: Listening,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    password: str,
    want: str,
    waits: bool,
) -> None:
    """And no password; what may be over by itself is no reason for a standby to end."""
    host = server.url_for("127.0.0.1").partition("@")[2].partition("/")[0]
    for word, value in (("HOST", host), ("PORT", host.partition(":")[2])):
        url, want = url.replace(word, value), want.replace(word, value)
    url = url.replace("FOLDER", server.local_url.partition("host=")[2].partition("&")[0])
    monkeypatch.setenv("PGPASSWORD", password)
    monkeypatch.setenv("PGPASSFILE", "/nonexistent")
    with pytest.raises(JournalFailure) as error:
        open_journal(f"postgresql://{url}").close()
    said = str(error.value)
    assert want in said, said
    assert "\n" not in said
    assert SECRET not in said
    assert isinstance(error.value, NotAdmitted) is not waits
    assert ": " in said.partition(want)[2], "the remedy"


def test_a_look_at_the_leader_tells_it_likewise(
    server: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a connection of its own."""
    monkeypatch.setenv("PGPASSWORD", "wrong")
    url = server.url_for("127.0.0.1").replace("tests@", "app@")
    with closing(follow(url)) as watch, pytest.raises(NotAdmitted, match="user 'app'"):
        watch.leader()


@pytest.mark.parametrize("standby", [False, True])
def test_a_server_that_is_not_admitted_ends_and_leaves_nothing(
    server: Listening, tmp_path: Path, standby: bool
) -> None:
    """A standby too: no waiting helps."""
    url = server.url_for("127.0.0.1").replace("tests@", "app@")
    command = [sys.executable, "-m", "topmast.app", "up", "--port", "0", "--store", url]
    command += ["--state", str(tmp_path / "state"), *(["--standby"] if standby else [])]
    wrong = {**os.environ, "PGPASSWORD": "wrong"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=wrong)
    assert done.returncode != 0
    assert "user 'app': its password is missing or wrong: put the right one into" in done.stderr
    assert "Traceback" not in done.stderr
    assert "stands by" not in done.stderr
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("FATAL: sorry, too many clients already", "host"),
        ("FATAL: the database system is starting up", "host"),
        ("SSL error: certificate verify failed", "sslmode"),
        ('FATAL: no pg_hba.conf entry for host "10.0.0.1", user "app", no encryption', "host"),
        ("connection timeout expired", "host"),
        ('FATAL: Peer authentication failed for user "app"', "user"),
    ],
)
def test_what_is_hard_to_bring_about(text: str, part: str) -> None:
    """By the messages of servers and drivers."""
    refusal = refusal_of(text)
    assert refusal is not None
    assert refusal.part == part
    said = told(refusal, "postgresql://db1/topmast", text)
    assert said.startswith("postgresql://db1/topmast: ")
    assert refusal.remedy in said


def test_every_refusal_has_a_remedy() -> None:
    """And a part that URLs have."""
    assert all(one.remedy and one.why for one in REFUSALS)
    assert {one.part for one in REFUSALS} == {"user", "database", "host", "sslmode"}
