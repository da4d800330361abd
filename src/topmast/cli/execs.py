"""`exec`: a command beside a task of a running job."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from topmast.cli.command import Session, command
from topmast.cli.completion import complete_active_jobs
from topmast.cli.groups import CommandBehind
from topmast.cli.output import note

if TYPE_CHECKING:
    from topmast.client.execs import Execution

UNKNOWN = 255
"""The exit code where that of the command is not known."""

JobArgument = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="The id of a job that runs.", autocompletion=complete_active_jobs
    ),
]


def add(app: typer.Typer) -> None:
    """Add the command."""
    command(
        app, "exec", kind=CommandBehind,
        example="topmast exec j17 -- nvidia-smi\ntopmast exec j17 --task 3 -it -- bash\n"
        "topmast exec j17 -i -- tar -x -C data <more.tar",
    )(execute)  # fmt: skip


def execute(
    session: Session,
    job: JobArgument,
    task: Annotated[int, typer.Option(min=0, help="The task, by its number.")] = 0,
    interactive: Annotated[
        bool, typer.Option("--interactive", "-i", help="Give it this command's input.")
    ] = False,
    tty: Annotated[
        bool, typer.Option("--tty", "-t", help="Give it a terminal, as programs like bash want.")
    ] = False,
    behind: Annotated[
        list[str] | None, typer.Option("--behind", hidden=True, help="The command.")
    ] = None,
) -> int:
    """Run a command beside a task of a running job, and exit with its code.

    It runs on the task's host, in its folder and environment, and ends with the task at the latest.
    No shell reads it: for one, run bash.
    """
    words = list(behind or ())
    if not words:
        raise typer.BadParameter("write the command behind --, as in: topmast exec j17 -- ls -l")
    if tty and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise typer.BadParameter("this is no terminal", param_hint="'--tty'")
    with _signals_leave():
        if session.json:
            return _as_document(session, job, task, words)
        return _talk(session, job, task, words, reads=interactive or tty, tty=tty)


def _talk(
    session: Session, job: str, task: int, words: list[str], *, reads: bool, tty: bool
) -> int:
    rows, columns = _size()
    with (
        session.client() as client,
        client.start_command(job, words, task=task, tty=tty, rows=rows, columns=columns) as begun,
        _raw(tty),
    ):
        code, error = _through(begun, reads)
    if error:
        note(f"{job}: the command ended: {error}")
    return code


def _as_document(session: Session, job: str, task: int, words: list[str]) -> int:
    with session.client() as client:
        found = client.execute(job, words, task=task)
    texts = [text.decode(errors="replace") for text in (found.stdout, found.stderr)]
    document = {
        "job": job, "task": task, "code": found.code, "stdout": texts[0], "stderr": texts[1],
        "error": found.error,
    }  # fmt: skip
    session.show(document, lambda: None)
    return found.code


def _through(begun: Execution, reads: bool) -> tuple[int, str]:
    from topmast.model.errors import NotFound

    try:
        page = begun.run(
            _writer(sys.stdout.fileno()), _writer(sys.stderr.fileno()),
            _Typed() if reads else None,
        )  # fmt: skip
    except NotFound:
        begun.forget()
        return UNKNOWN, "the server that it ran through has ended"
    return page.code or 0, page.error


class _Typed:
    """What comes in here, as it comes."""

    def read1(self, size: int, /) -> bytes:
        """Not by way of a buffer: a thread that waits for that would keep Python from ending."""
        return os.read(sys.stdin.fileno(), size)


def _writer(end: int) -> Callable[[bytes], None]:
    """Writes bytes as they are: what a command prints is no text of ours."""

    def write(data: bytes) -> None:
        while data:
            data = data[os.write(end, data) :]

    return write


@contextmanager
def _signals_leave() -> Iterator[None]:
    """A signal that ends this process, or the loss of its terminal, ends the command first."""
    import signal

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    asked = (signal.SIGTERM, signal.SIGHUP)
    before = [(number, signal.signal(number, leave)) for number in asked]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _size() -> tuple[int, int]:
    """Rows and columns of this terminal."""
    import shutil

    found = shutil.get_terminal_size()
    return found.lines, found.columns


@contextmanager
def _raw(tty: bool) -> Iterator[None]:
    """Each key goes to the command as it is typed, Ctrl-C too."""
    if not tty:
        yield
        return
    import termios
    import tty as terminals

    end = sys.stdin.fileno()
    before = termios.tcgetattr(end)
    try:
        terminals.setraw(end, termios.TCSADRAIN)  # what was typed before goes to it too
        yield
    finally:
        termios.tcsetattr(end, termios.TCSADRAIN, before)
