"""Where the journal of a state folder is: a file in it, or a database that it names."""

from __future__ import annotations

import os
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from topmast.adapters.store.postgresql import Watch
from topmast.model.errors import InvalidInput, NotFound

JOURNAL = "journal.sqlite"
"""The name of the file in a state folder."""
PROFILE = "profile.json"
"""The file in a state folder with the policies that its server last ran with."""
_NAMING = ("host", "port", "user", "dbname", "service")
"""What the query of a URL may have of the database itself; the rest is how it is reached."""
STORE = "store"
"""The file in a state folder that names its database."""


def is_database(target: str | Path) -> bool:
    """Whether a target is a database that several processes can reach."""
    return isinstance(target, str) and target.startswith("postgresql")


def store_of(state: Path, named: str | None = None) -> str | Path:
    """The target of a state folder for `open_journal`, which `remember_store` keeps.

    Raises InvalidInput for a URL with a password, which every user of the machine could read, and
    for another store than the folder had before.
    """
    known = _remembered(state)
    if named is None:
        return known or state / JOURNAL
    place = checked(named)
    if (known and _which(known) != _which(place)) or (state / JOURNAL).exists():
        raise InvalidInput(
            f"the journal of {state} is in {known or state / JOURNAL}", field="--store",
            remedy="leave out --store, or name another state folder",
        )  # fmt: skip
    return place


def remember_store(state: Path, target: str | Path) -> None:
    """Keep the database of a folder once its journal was opened, for starts without its URL.

    A standby does so at each look: it writes nothing that is there, as the disk may be full.
    """
    if isinstance(target, str) and _remembered(state) != target:
        part = state / f"{STORE}.{os.getpid()}.part"
        part.write_text(f"{target}\n", encoding="utf-8")
        part.replace(state / STORE)


def _remembered(state: Path) -> str:
    """What `remember_store` kept; empty: nothing."""
    file = state / STORE
    return file.read_text("utf-8").strip() if file.is_file() else ""


def _which(url: str) -> URL:
    """Which database a URL names, without how it is reached, as by TLS."""
    parts = make_url(url)
    return parts.set(query={key: parts.query[key] for key in _NAMING if key in parts.query})


def existing_store(state: Path) -> str | Path:
    """The target of a state folder with a journal. Raises NotFound."""
    target = store_of(state)
    if isinstance(target, Path) and not target.is_file():
        raise NotFound(f"no journal in '{state}' (give the folder of a server with --state)")
    return target


def checked(url: str, field: str = "--store") -> str:
    """The URL of a database in PostgreSQL, which ``field`` names. Raises InvalidInput."""
    try:
        parts = make_url(url)
    except (ArgumentError, ValueError):  # a port that is no number
        parts = None
    if parts is None or parts.get_backend_name() != "postgresql":
        raise InvalidInput(
            f"{url} is not a URL of PostgreSQL", field=field,
            remedy="write postgresql://USER@HOST/DATABASE",
        )  # fmt: skip
    if parts.password is not None or "password" in parts.query:
        raise InvalidInput(
            "a password may not be in the URL: other users can read the arguments of a process",
            field=field,
            remedy="put it into ~/.pgpass, or name a file with ?passfile=FILE, or set PGPASSWORD",
        )
    try:
        driven = parts.set(drivername="postgresql+psycopg")
        driven.get_dialect()().create_connect_args(driven)
    except ArgumentError:
        raise InvalidInput(
            f"the hosts and ports in {url} are not one for one",
            field=field,
            remedy="write several as ?host=db1,db2&port=5432,5432, or all without a port",
        ) from None
    return url


def follow(target: str) -> Watch:
    """A look at the leader of a database."""
    url = make_url(target)
    return Watch(url, url.render_as_string(hide_password=True))
