"""`topmast down`: stop the server of a state folder in good order."""

from __future__ import annotations

import shlex
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from topmast.cli import values
from topmast.cli.command import FOLDER, Session, command
from topmast.cli.output import say
from topmast.cli.text import plural

LOOK_S = 0.05


def add(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "down", asks=FOLDER, example="topmast down\ntopmast down --state ./state")(down)


def down(
    session: Session,
    timeout: Annotated[
        str, typer.Option(metavar="TIME", help="Stop waiting for its end after this time.")
    ] = "60s",
) -> int:
    """Stop the server of a state folder. Jobs run on, and the next `topmast up` takes them over.

    It stops as by Ctrl-C: it saves a snapshot of its state first. A process of one region is
    stopped in the same way, by its own state folder.
    """
    from topmast.adapters.engines.local import processes
    from topmast.client.address import written_server
    from topmast.model.errors import TopmastError, Unavailable
    from topmast.model.states import HOLDING, WAITING

    folder, timeout_s = session.state_folder(), values.duration_s(timeout, "--timeout") or 0.0
    known = written_server(folder)
    counts: dict[str, int] | None = None
    with (
        suppress(TopmastError),
        Session(session.root, state=folder).client(timeout_s=5.0) as client,
    ):
        counts = client.job_page(limit=1).counts
    _require_here(known, folder)
    pid, ticks = int(known["pid"]), int(known["start_ticks"])
    try:
        processes.send_if_same(known, signal.SIGTERM)
    except PermissionError:
        raise Unavailable(f"the server, process {pid}, belongs to another user") from None
    deadline_s = time.monotonic() + timeout_s
    while not processes.has_ended(pid, ticks):
        if time.monotonic() > deadline_s:
            raise Unavailable(
                f"the server, process {pid}, was told to stop, and still runs after {timeout}"
            )
        time.sleep(LOOK_S)
    document = {
        "pid": pid, "state": str(folder),
        "running_jobs": _count(counts, HOLDING), "waiting_jobs": _count(counts, WAITING),
    }  # fmt: skip
    session.show(document, lambda: _say(document))
    return 0


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


def _say(document: dict[str, Any]) -> None:
    from topmast.client.address import default_state

    is_usual = document["state"] == str(default_state())
    where = "" if is_usual else f" --state {shlex.quote(document['state'])}"
    say(f"The server of {document['state']}, process {document['pid']}, has stopped.")
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
    say(f"{told}; `topmast up{where}` goes on with them.")
    if running:
        say(
            f"To end them: `topmast up{where}`, `topmast cancel{where} --selector 'name=*'`, "
            f"`topmast down{where}`."
        )
