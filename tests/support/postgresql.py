"""A PostgreSQL server of the tests' own: in a folder, on a socket there, without a port."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAMED = "TOPMAST_TEST_POSTGRESQL"
"""The variable with the URL of a server to use instead."""
PLACES = ("/usr/lib/postgresql", "/usr/pgsql", "/usr/local/pgsql")
"""Where packages put programs that are in no search path."""


def programs() -> Path | None:
    """The folder of ``initdb`` and ``pg_ctl`` of the newest version there is."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    near = [file.parent for place in PLACES for file in Path(place).glob("**/bin/initdb")]
    return max(near, key=lambda folder: [int(p) for p in folder.parts if p.isdigit()], default=None)


@contextmanager
def server() -> Iterator[str | None]:
    """The URL of a server, which ends with the block; None where there is no PostgreSQL."""
    if NAMED in os.environ:
        yield os.environ[NAMED]
        return
    folder = programs()
    if folder is None:
        yield None
        return
    # A socket's path may have 107 characters, and those of pytest's folders are longer.
    with tempfile.TemporaryDirectory(prefix="pg") as place:
        as_user = _unprivileged(place)
        data = f"{place}/data"
        _run([*as_user, f"{folder}/initdb", "-D", data, "-U", "tests", "-A", "trust", "-N"])
        options = f"-c listen_addresses='' -c unix_socket_directories={place}"
        control = [*as_user, f"{folder}/pg_ctl", "-D", data, "-w", "-t", "100"]
        _run([*control, "-l", f"{data}/server.log", "-o", options, "start"])
        try:
            yield f"postgresql://tests@/postgres?host={place}"
        finally:
            if Path(data, "postmaster.pid").exists():  # else a test has stopped it
                _run([*control, "-m", "immediate", "stop"])


def _unprivileged(place: str) -> list[str]:
    """The words before a command that root may not run: PostgreSQL refuses to be root."""
    if os.geteuid() != 0:
        return []
    shutil.chown(place, "nobody")
    return ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]


def _run(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, cwd="/", check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"


class Listening:
    """A server that listens on TCP, for clients of a network; may be restarted. Needs a free port."""

    def __init__(self, folder: Path, network: str, port: int = 54977) -> None:
        found = programs()
        assert found is not None, "PostgreSQL is not installed"
        self._programs = found
        self._folder = folder
        self._network = network
        self._port = port
        self._as_user: list[str] = []

    def url_for(self, address: str) -> str:
        """The URL of its database, at one of the addresses of this machine."""
        return f"postgresql://tests@{address}:{self._port}/postgres"

    @property
    def local_url(self) -> str:
        """The same through its socket."""
        return f"postgresql://tests@/postgres?host={self._folder}&port={self._port}"

    def start(self) -> None:
        """Make the database, the first time, and start the server."""
        data = self._folder / "data"
        if not data.exists():
            self._folder.mkdir(mode=0o755)
            self._as_user = _unprivileged(str(self._folder))
            made = [f"{self._programs}/initdb", "-D", str(data), "-U", "tests", "-A", "trust", "-N"]
            _run([*self._as_user, *made])
            with (data / "pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {self._network} trust\n")
        options = f"-c listen_addresses='*' -c port={self._port}"
        options += f" -c unix_socket_directories={self._folder}"
        self._control("-l", f"{data}/server.log", "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop it; ``immediate`` is a crash."""
        self._control("-m", mode, "stop")

    def _control(self, *words: str) -> None:
        data = f"{self._folder}/data"
        _run([*self._as_user, f"{self._programs}/pg_ctl", "-D", data, "-w", "-t", "100", *words])
