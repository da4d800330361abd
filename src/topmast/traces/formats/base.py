"""What every reader of a format shares: how it is declared, and how its rows become jobs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from topmast.model.errors import Refused
from topmast.model.units import show
from topmast.traces.table import Layout, Table, read_table
from topmast.traces.trace import DEFAULT_HOST_GPUS, Floats, Trace, gangs, trace_of


class Options(Struct, frozen=True):
    """How to read. ``throughputs``: the table for formats that count steps, not seconds."""

    host_gpus: int = DEFAULT_HOST_GPUS
    skip_bad_rows: bool = False
    throughputs: Path | None = None
    hint: Callable[[list[str]], str] = lambda names: ""


class Format(Struct, frozen=True):
    """A format of traces. ``layouts`` are those that its files may have."""

    name: str
    about: str
    layouts: tuple[Layout, ...]
    read: Callable[[Path, Options], Trace]


def table_of(path: Path, layout: Layout, options: Options) -> Table:
    """The table in a file, as the options want it."""
    return read_table(path, layout, skip_bad_rows=options.skip_bad_rows, hint=options.hint)


def with_ids(table: Table, options: Options, column: str = "job_id") -> Table:
    """Name the jobs without an id by their row, and refuse an id that comes twice. O(n)."""
    ids: list[str] = [text or str(row) for row, text in enumerate(table.columns[column])]
    table = Table(table.where, table.columns | {column: ids}, table.lines, table.skipped)
    if len(dict.fromkeys(ids)) == len(ids):
        return table
    seen: dict[str, int] = {}
    again = np.array([seen.setdefault(text, row) != row for row, text in enumerate(ids)])
    if options.skip_bad_rows:
        return table.take(~again, int(again.sum()))
    refused = Refused()
    for row in np.flatnonzero(again).tolist():
        message = f"{show(ids[row])} is the id of line {table.lines[seen[ids[row]]]} too"
        refused.add(table.wrong(row, column, message, "give each job an id of its own"))
    refused.refuse()
    return table


def from_zero(times_s: Floats) -> Floats:
    """Times counted from the earliest."""
    return times_s - times_s.min(initial=np.inf) if len(times_s) else times_s


def jobs(
    path: Path, table: Table, options: Options, *, counts: Floats | None = None, **given: Any
) -> Trace:
    """The jobs of a table; ``counts`` are GPUs in one number, to be split into tasks.

    ``skipped_elsewhere``: bad rows of tables that were joined.
    """
    if counts is not None:
        given["gpus"], given["tasks"] = gangs(counts, options.host_gpus)
    given["submit_s"] = from_zero(given["submit_s"])
    skipped = table.skipped + given.pop("skipped_elsewhere", 0)
    return trace_of(trace_name(path), skipped=skipped, **given)


def trace_name(path: Path) -> str:
    """The file's name without its endings."""
    name = path.resolve().name
    for ending in (".gz", ".csv", ".parquet", ".trace", ".txt"):
        name = name.removesuffix(ending)
    return name
