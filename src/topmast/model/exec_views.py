"""Commands beside tasks: what is asked for, and what they write."""

from __future__ import annotations

from msgspec import Struct

MOST_WORDS = 1_000
"""Of a command."""
MOST_BYTES = 65_536
"""Of all words of a command together, as UTF-8."""


class ExecSpec(Struct, frozen=True):
    """A command that is to run beside a task: on its host, in its folder, in its environment."""

    job: str
    epoch: int
    rank: int
    command: tuple[str, ...]
    """The program and its arguments. No shell reads them."""
    tty: bool = False
    """It gets a terminal; all that it writes is output then."""
    rows: int = 24
    columns: int = 80
    """Of the terminal."""


class ExecStarted(Struct, frozen=True):
    """A command beside a task, as it begins."""

    id: str
    job: str
    attempt: int
    task: int
    cluster: str


class ExecPage(Struct, frozen=True):
    """What a command has written since; of each stream from an offset on."""

    stdout: bytes = b""
    stderr: bytes = b""
    stdout_next: int = 0
    stderr_next: int = 0
    """The offsets to go on from."""
    code: int | None = None
    """How it ended, once all that it wrote was given; None: it runs, or there is more."""
    error: str = ""
    """Why it ended, if not by itself."""


class ExecInput(Struct, frozen=True):
    """How much of its input a command has been given."""

    next: int
    """The offset to go on from."""
