"""`topmast down`: stop the server of a state folder in good order."""

from __future__ import annotations

import os
import shlex
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from topmast.cli import values
from topmast.cli.command import Session, command
from topmast.cli.output import say
from topmast.cli.text import plural

LOOK_S = 0.05
BY_STATE = "`down` ends a process of this machine: name its state folder by --state"
NOTHING_THERE = "there is nothing to stop"
ANOTHER = "--state names another folder"


def add(app: typer.Typer) -> None:
    """Add the command."""
    command(
        app, "down",
        example="topmast down\ntopmast down --state ./state\n"
        "topmast down --state ./state --server http://127.0.0.1:6279",
    )(down)  # fmt: skip


def down(
    session: Session,
    timeout: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Stop waiting for its end after this time.",
            callback=values.DURATION,
        ),
    ] = "60s",
) -> int:
    """Stop the server of a state folder. Jobs run on, and the next `topmast up` takes them over.

    It stops as by Ctrl-C: it saves a snapshot of its state first. A process of one region is
    stopped in the same way, by its own state folder. So is a server that stands by; where several
    servers have one folder, --server URL names one of them.
    """
    from topmast.adapters.engines.local import processes
    from topmast.client.address import STANDBY
    from topmast.model.errors import TopmastError, Unavailable
    from topmast.model.states import HOLDING, WAITING

    folder, timeout_s = session.state_folder(), values.duration_s(timeout, "--timeout") or 0.0
    known = _meant(session, folder)
    url, role = str(known["url"]), str(known.get("role") or "")
    counts: dict[str, int] | None = None
    has_login = False
    with suppress(TopmastError), Session(session.root, server=url).client(timeout_s=5.0) as client:
        if role != STANDBY:
            counts = client.job_page(limit=1).counts
            has_login = client.whoami().login
    _require_here(known, folder)
    _require_own(known, folder)
    pid, ticks = int(known["pid"]), int(known["start_ticks"])
    named = f"the {role or 'server'} of {folder}, process {pid},"
    try:
        processes.send_if_same(known, signal.SIGTERM)
    except PermissionError:
        raise Unavailable(f"{named} belongs to another user") from None
    deadline_s = time.monotonic() + timeout_s
    while not processes.has_ended(pid, ticks):
        if time.monotonic() > deadline_s:
            raise Unavailable(
                f"{named} was told to stop, and still runs after {timeout_s:g} s; "
                f"run this again with a longer --timeout"
            )
        time.sleep(LOOK_S)
    document = {
        "pid": pid, "state": str(folder), "role": role or "server", "url": url,
        "running_jobs": _count(counts, HOLDING), "waiting_jobs": _count(counts, WAITING),
    }  # fmt: skip
    session.show(document, lambda: _say(document, has_login=has_login))
    return 0


def _meant(session: Session, folder: Path) -> dict[str, Any]:
    """What the server wrote that the caller means. Raises InvalidInput where that is not clear."""
    from topmast.client.address import checked_urls, written_beside, written_server
    from topmast.model.errors import InvalidInput, Unavailable

    standbys = written_beside(folder)
    named, where = session.server or "", "--server"
    if not named and session.state is None:
        named, where = os.environ.get("TOPMAST_SERVER", ""), "TOPMAST_SERVER"
    by_url = BY_STATE if named else f"{NOTHING_THERE} ({ANOTHER})"
    none = NOTHING_THERE if session.state is not None else by_url
    try:
        found = [written_server(folder, none), *standbys]
    except Unavailable:
        if not standbys:
            raise
        found = standbys
    if named:
        url = checked_urls(named, where)
        found, there = [one for one in found if _same(str(one["url"]), url)], found
        if not found:
            raise InvalidInput(
                f"no server of {folder} is at {url}: there {_are(there)}", field=where,
                remedy=BY_STATE,
            )  # fmt: skip
    if len(found) > 1:
        raise InvalidInput(
            f"of {folder}, there {_are(found)}", field="--server",
            remedy="name the one to stop; if it leads, another takes over",
        )  # fmt: skip
    return found[0]


def _same(one: str, other: str) -> bool:
    return one.replace("//localhost", "//127.0.0.1") == other.replace("//localhost", "//127.0.0.1")


def _are(servers: list[dict[str, Any]]) -> str:
    told = [
        f"a {known.get('role') or 'server'} at {known['url']} (process {known.get('pid')})"
        for known in servers
    ]
    return f"{'is' if len(told) == 1 else 'are'} {' and '.join(told)}"


def _count(counts: dict[str, int] | None, states: tuple[str, ...]) -> int | None:
    """The jobs in some states; None if the server did not say."""
    return None if counts is None else sum(counts.get(state, 0) for state in states)


def _require_here(known: dict[str, Any], folder: Path) -> None:
    """Raises Unavailable if the server is no process that can be signalled from here."""
    from topmast.adapters.engines.local import processes
    from topmast.model.errors import Unavailable

    here = (processes.boot_id(), processes.namespace())
    if (known.get("boot"), known.get("pid_namespace")) != here or not all(
        isinstance(known.get(name), int) for name in ("pid", "start_ticks")
    ):
        raise Unavailable(f"the server of {folder} runs on another machine, or in a container")


def _require_own(known: dict[str, Any], folder: Path) -> None:
    """Raises Unavailable if another may have written that the process serves this folder.

    A copy of a folder has the file of the server of the first one; and a user with the right to
    write into a folder could name any process there.
    """
    from topmast.client.address import OWNER
    from topmast.model.errors import Unavailable

    pid, written = known["pid"], known.get("state")
    is_here = written is None  # by an older version
    process = known[OWNER]  # of one that has ended meanwhile nothing is to be stopped
    with suppress(OSError):
        is_here = is_here or Path(str(written)).samefile(folder)
    with suppress(FileNotFoundError):
        process = Path(f"/proc/{pid}").stat().st_uid
    if not is_here:
        raise Unavailable(
            f"process {pid} serves {written}, and {folder} is a copy, or was moved: "
            f"`topmast down --state {shlex.quote(str(written))}` stops it"
        )
    if known[OWNER] != process:
        raise Unavailable(
            f"a file in {folder} names process {pid}, which belongs to another user than the "
            f"file: it is not stopped"
        )


def _say(document: dict[str, Any], *, has_login: bool) -> None:
    from topmast.client.address import LEADER, STANDBY, default_state

    is_usual = document["state"] == str(default_state())
    where = "" if is_usual else f" --state {shlex.quote(document['state'])}"
    role = document["role"]
    say(f"The {role} of {document['state']}, process {document['pid']}, has stopped.")
    if role == STANDBY:
        say("The leader, if there is one, goes on.")
    running, waiting = document["running_jobs"], document["waiting_jobs"]
    if running is None:
        return
    if not running and not waiting:
        say("No job runs or waits.")
        return
    waits = f"{waiting} {'waits' if waiting == 1 else 'wait'}"
    if running:
        told = f"{plural(running, 'job')} {'runs' if running == 1 else 'run'} on, {waits}"
    else:
        told = f"No job runs, {waits}"
    # What has had a login is not started without one.
    up = f"`topmast up{where}{' --accounts FILE' if has_login else ''}`"
    then = f"a standby, or {up}," if role == LEADER else up
    say(f"{told}; {then} goes on with them.")
    if running:
        say(
            f"To end them: {up}, `topmast cancel{where} --selector 'name=*'`"
            f"{' with the role of an operator' if has_login else ''}, `topmast down{where}`."
        )
