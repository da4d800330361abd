"""What the commands of `plan` have in common: the problem's file, and the time a plan may take."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from topmast.cli import values

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


def bytes_of(path: Path) -> bytes:
    """What a file, or stdin for -, holds; `InvalidInput` if it cannot be read."""
    from topmast.model.errors import InvalidInput

    try:
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise InvalidInput(error.strerror or "cannot be read", where=str(path)) from None
