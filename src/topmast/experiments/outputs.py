"""The files of a run: CSV tables, a row as soon as it is known, and the summary."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from topmast.model.errors import InvalidInput
from topmast.sim.books import ALLOCATIONS, COPIES, JOBS, Tables, Write
from topmast.sim.timeline import HEADER as TIMELINE

SUMMARY = "summary.json"


@contextmanager
def tables_in(folder: Path | None, overview: Write) -> Iterator[Tables]:
    """The tables of a run in ``folder``, closed in the end; None keeps no rows.

    ``overview`` gets the rows of the timeline as well.
    """
    if folder is None:
        yield Tables(_nowhere, _nowhere, overview, _nowhere)
        return
    folder_for(folder)
    with ExitStack() as stack:

        def table(name: str, header: Sequence[str]) -> Any:
            path = folder / f"{name}.csv"
            file = stack.enter_context(path.open("w", encoding="utf-8", newline=""))
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            return writer.writerow

        timeline = table("timeline", TIMELINE)

        def both(row: Sequence[object]) -> None:
            timeline(row)
            overview(row)

        yield Tables(
            jobs=table("jobs", JOBS),
            allocations=table("allocations", ALLOCATIONS),
            timeline=both,
            copies=table("copies", COPIES),
        )


def _nowhere(row: Sequence[object]) -> None:
    """Rows that are not written."""


def folder_for(path: Path) -> None:
    """Make the folder of ``--out``, if it is not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or "the path is not valid"
        message = f"cannot be made a folder: {reason}"
        raise InvalidInput(message, field="--out", where=str(path)) from error


def write_json(path: Path, document: object) -> None:
    """A document, indented for eyes."""
    encoded = msgspec.json.format(msgspec.json.encode(document), indent=2)
    path.write_bytes(encoded + b"\n")
