"""Where the server is: named by the caller, by the environment, or by the server's own file."""

from __future__ import annotations

import json
import math
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from topmast.model.errors import InvalidInput, Unavailable

AGE_VARIABLE = "TOPMAST_MOST_AGE_S"
REMEDY = "start one with `topmast up`"
OR_ANOTHER = f"{REMEDY}, or name another with --server URL"
SERVER_FILE = "server.json"
OWNER = "owner"
"""Where what was read has the user that owns the file."""
LARGEST_BYTES = 65_536
"""Of what a server writes about itself; the rest of a larger file is left out."""
"""What the server of a state folder tells of itself."""
LEADER, STANDBY = "leader", "standby"
"""The roles of servers on one database."""
STARTING = "starting"
"""What a server says of itself until it has one."""


def default_state() -> Path:
    """The state folder of a server without options."""
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not base.is_absolute():
        base = Path.home() / ".local" / "state"
    return base / "topmast"


def find_server(server: str | None = None, state: str | os.PathLike[str] | None = None) -> str:
    """The URL of the server: ``server``, or that of ``state``, ``$TOPMAST_SERVER`` or the default.

    What the caller names goes before the environment. Several servers, of which one leads, are
    named with commas between them, and answered so.
    """
    if server:
        return checked_urls(server, "--server")
    named = os.environ.get("TOPMAST_SERVER", "")
    if named and state is None:
        return checked_urls(named, "TOPMAST_SERVER")
    return written_url(Path(state) if state else default_state())


def most_age_s_of(given: float | None) -> float:
    """How old an answer of a standby may be: as given, or as ``$TOPMAST_MOST_AGE_S`` says, or 0."""
    text = os.environ.get(AGE_VARIABLE, "") if given is None else str(given)
    try:
        found = float(text or 0.0)
    except ValueError:
        found = -1.0
    if not 0.0 <= found < math.inf:
        raise InvalidInput(
            f"'{text}' is no number of seconds", where=AGE_VARIABLE if given is None else "",
            field="" if given is None else "most_age_s", remedy="write it like 5",
        )  # fmt: skip
    return found


def written_url(state: Path) -> str:
    """The URL that the server of the folder ``state`` wrote into ``server.json``."""
    return str(written_server(state)["url"])


def _meant(state: Path) -> str:
    """A hint for those that look for jobs in a state: ``--state RUNNING`` names a folder."""
    from difflib import get_close_matches

    from topmast.model.states import JobState

    near = get_close_matches(str(state).upper(), list(JobState), n=1)
    return f"; jobs in a state are found by --selector state={near[0]}" if near else ""


def process_file(kind: str, pid: int | str) -> str:
    """The name of what a process that is a `STANDBY` or `STARTING` tells in its state folder."""
    return f"{kind}.{pid}.json"


def written_beside(state: Path, kind: str = STANDBY) -> list[dict[str, Any]]:
    """What its running processes wrote that are `STANDBY` or `STARTING`, as `written_server`."""
    found = []
    for file in sorted(state.glob(process_file(kind, "*"))):
        with suppress(OSError, ValueError, RecursionError, InvalidInput):
            text, owner = _read(file)
            told = json.loads(text)
            if isinstance(told, dict) and not _has_ended(told):
                url = checked_url(str(told.get("url")), str(file))
                found.append({**told, "url": url, OWNER: owner})
    return found


def written_server(state: Path, remedy: str = OR_ANOTHER) -> dict[str, Any]:
    """What it wrote there: its URL, and the identity of its process.

    Raises Unavailable; ``remedy``: what helps where none runs there.
    """
    file = state / SERVER_FILE
    # `state` alone reads like a word of the message.
    folder = state if state.is_absolute() else f"./{state}"
    try:
        text, owner = _read(file)
        found = json.loads(text)
    except FileNotFoundError:
        _refuse_starting(state, folder)
        absent = "" if state.exists() or state == default_state() else ", which is not there"
        message = f"no Topmast server runs on {folder}{absent}; {remedy}"
        raise Unavailable(f"{message}{_meant(state)}") from None
    except NotADirectoryError:
        raise InvalidInput(
            f"{folder} is not a folder", where="--state", remedy="name the state folder of a server"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise Unavailable(f"{file} cannot be read ({error}); {REMEDY}") from None
    if isinstance(found, dict) and _has_ended(found):
        _refuse_starting(state, folder)
        raise Unavailable(f"no Topmast server runs on {folder}: the last one was killed; {remedy}")
    url = found.get("url") if isinstance(found, dict) else None
    if not isinstance(url, str):
        raise Unavailable(f"{file} names no server; {REMEDY}")
    return {**found, "url": checked_url(url, str(file)), OWNER: owner}


def _refuse_starting(state: Path, folder: str | Path) -> None:
    """Raises Unavailable if a server is being started on a folder, since this machine started."""
    from topmast.adapters.engines.local import processes

    with suppress(OSError):
        boot = processes.boot_id()
        for told in written_beside(state, STARTING):
            own = state / process_file(STARTING, str(told.get("pid")))
            if told.get("boot") == boot and own.exists():
                message = f"the Topmast server on {folder} is starting"
                raise Unavailable(f"{message}; try again in some seconds")


def _read(file: Path) -> tuple[bytes, int]:
    """A small file, and the user that owns it. Raises OSError for a pipe, which has no end."""
    # Asked of what is open: another file could stand there a moment later.
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as opened:
        found = os.fstat(opened.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError("it is no regular file")
        return opened.read(LARGEST_BYTES), found.st_uid


def _has_ended(server: dict[str, object]) -> bool:
    """Whether the process that wrote this is gone: another program may have its port by now."""
    from topmast.adapters.engines.local import processes

    pid, started = server.get("pid"), server.get("start_ticks")
    if not isinstance(pid, int) or not isinstance(started, int) or not processes.namespace():
        return False
    try:
        here = (processes.boot_id(), processes.namespace())
    except OSError:
        return False
    # On another machine, or in a container, the number says nothing.
    same = (server.get("boot"), server.get("pid_namespace")) == here
    return same and processes.has_ended(pid, started)


def checked_url(text: str, where: str) -> str:
    """``text`` as the base URL of a server, without a trailing slash."""
    url = text if "://" in text else f"http://{text}"
    refusal = InvalidInput(
        f"{text!r} is not the address of a server",
        where=where,
        remedy="write it like http://127.0.0.1:6278",
    )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise refusal from None
    if "@" in parts.netloc:
        raise InvalidInput(
            "the address of a server has no name or password in it", where=where,
            remedy="write it like http://127.0.0.1:6278, and log in by `topmast login` or a token",
        )  # fmt: skip
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise refusal
    if parts.query or parts.fragment or not url.isprintable() or " " in url:
        raise refusal
    return url.rstrip("/")


def checked_urls(text: str, where: str) -> str:
    """The same of several, with commas between them."""
    return ",".join(checked_url(part, where) for part in text.split(","))


def is_loopback(url: str) -> bool:
    """Whether ``url`` names this machine, so that no proxy may stand between."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")
