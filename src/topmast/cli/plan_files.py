"""What the commands of `plan` have in common: the problem's file, and the time a plan may take."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from topmast.cli import values
from topmast.cli.output import note

ProblemArgument = Annotated[
    Path, typer.Argument(metavar="PROBLEM.json", help="The problem to solve; - reads stdin.")
]
TimeOption = Annotated[
    str, typer.Option("--time-limit", metavar="S", help="Seconds (or 5m) that a plan may take.")
]


def limit_s(text: str) -> float:
    """The time limit in seconds; it must be more than 0."""
    seconds = values.duration_s(text, "--time-limit")
    if not seconds:
        raise typer.BadParameter("must be more than 0", param_hint="'--time-limit'")
    return seconds


@contextmanager
def compiling_told(after_s: float = 2.0) -> Iterator[None]:
    """Say that kernels are compiled, unless they load from an earlier run within ``after_s``."""
    text = "compiling the kernels, once on this machine: up to a minute"
    telling = threading.Timer(after_s, note, [text])
    telling.daemon = True
    telling.start()
    try:
        yield
    finally:
        telling.cancel()


def bytes_of(path: Path) -> bytes:
    """What a file, or stdin for -, holds; `InvalidInput` if it cannot be read."""
    from topmast.model.errors import InvalidInput

    try:
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise InvalidInput(error.strerror or "cannot be read", where=str(path)) from None
