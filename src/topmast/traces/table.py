"""A table read by its layout: which columns a file has, what they hold, and what rows must satisfy.

`read_table` is the one way from a file to columns. Bad rows are told together, with file, line and
column, or left out and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from topmast.model.errors import MOST_TOLD, InvalidInput, Refused, refuse_all
from topmast.model.units import show
from topmast.traces.source import Chunk, chunks, is_parquet, place
from topmast.traces.trace import Bools, Ints, Texts, same_text
from topmast.traces.values import Kind, Text, Values, Wrong


class Check(Struct, frozen=True):
    """A rule over the columns of one row. ``bad`` gives the rows that break it."""

    column: str
    message: str
    bad: Callable[[Mapping[str, Any]], Bools]
    remedy: str = ""


class Layout(Struct, frozen=True):
    """How a file is laid out.

    ``columns`` names the columns of files that come without a header; such a file may have one all
    the same. A file with a ``closed`` layout may have no column that is not known.
    """

    fields: Mapping[str, Kind]
    columns: tuple[str, ...] = ()
    delimiter: str = ","
    checks: tuple[Check, ...] = ()
    closed: bool = False
    parquet: bool = False

    def required(self) -> list[str]:
        """The columns that a file has to have."""
        return [name for name, kind in self.fields.items() if kind.absent(0) is None]


class Table(Struct, frozen=True):
    """The columns of a file: numbers as arrays, text as `Texts`, ids as a list."""

    where: str
    columns: dict[str, Any]
    lines: Ints
    skipped: int = 0

    def __len__(self) -> int:
        return len(self.lines)

    def wrong(self, row: int, column: str, message: str, remedy: str = "") -> InvalidInput:
        """An error about a row."""
        where = f"{self.where}:{self.lines[row]}"
        return InvalidInput(message, field=column, where=where, remedy=remedy)

    def take(self, rows: Any, skipped: int = 0) -> Table:
        """Some of the rows, ``skipped`` more having been left out as bad."""
        kept = np.arange(len(self))[rows]
        columns = {name: _take(column, kept) for name, column in self.columns.items()}
        return Table(self.where, columns, self.lines[kept], self.skipped + skipped)


def _take(column: Any, rows: Ints) -> Any:
    if isinstance(column, Texts):
        return column.take(rows)
    return [column[i] for i in rows.tolist()] if isinstance(column, list) else column[rows]


def read_table(
    path: Path, layout: Layout, *, skip_bad_rows: bool = False, hint: Callable[[list[str]], str]
) -> Table:
    """The table in the file at ``path``. ``hint`` says what a file with other columns may be."""
    where = place(path)
    columns: dict[str, _Growing] = {}
    lines: list[Ints] = []
    skipped, reader, refused = 0, None, Refused()
    try:
        for chunk in _chunks_of(path, layout):
            if reader is None:
                reader = _Reader(where, layout, chunk, hint)
                chunk = reader.without_header(chunk)
                columns = {name: _growing(layout.fields[name]) for name in reader.at}
            kept, values = reader.read(chunk, None if skip_bad_rows else refused)
            skipped += len(chunk.rows) - len(kept)
            lines.append(kept)
            for name, growing in columns.items():
                growing.add(values[name])
            if len(refused) > MOST_TOLD:
                break
    except InvalidInput as error:
        refused.add(error)
    refused.refuse()
    if reader is None:
        raise InvalidInput("the file is empty", where=where, remedy="is the path right?")
    found = np.concatenate(lines) if lines else np.zeros(0, np.int64)
    if not len(found):
        problem = "no row is left: all are bad" if skipped else "has a header, but no rows"
        raise InvalidInput(problem, where=where, remedy="there has to be one at least")
    whole = {
        name: columns[name].column() if name in columns else _all_blank(kind, len(found))
        for name, kind in layout.fields.items()
    }
    return Table(where, whole, found, skipped)


def _all_blank(kind: Kind, rows: int) -> Any:
    if isinstance(kind, Text) and not kind.id and kind.blank is not None:
        return same_text(kind.blank, rows)
    return kind.absent(rows)


def _chunks_of(path: Path, layout: Layout) -> Iterator[Chunk]:
    if layout.parquet and is_parquet(path):
        from topmast.traces.parquet import parquet_chunks

        return parquet_chunks(path)
    return chunks(path, layout.delimiter)


class _WithBlanks(dict[str, Any]):
    """The columns of a chunk, those that the file does not have being blank."""

    def __init__(self, values: dict[str, Values], layout: Layout, rows: int) -> None:
        super().__init__(values)
        self.layout = layout
        self.rows = rows

    def __missing__(self, name: str) -> Any:
        """A column that is not in the file."""
        return self.layout.fields[name].absent(self.rows)


class _Reader:
    """Reads the chunks of one file with a known header."""

    def __init__(
        self, where: str, layout: Layout, first: Chunk, hint: Callable[[list[str]], str]
    ) -> None:
        self.where = where
        self.layout = layout
        names = [name.strip() for name in first.rows[0]]
        known = layout.columns or tuple(layout.fields)
        self.has_header = not layout.columns or (
            names[0] in known and sum(name in known for name in names) > len(names) / 2
        )
        self.names = names if self.has_header else list(layout.columns)
        self.line = first.line(0)
        self._check_names(hint)
        self.at = {name: self.names.index(name) for name in layout.fields if name in self.names}

    def without_header(self, chunk: Chunk) -> Chunk:
        """The first chunk without the row that names the columns."""
        if not self.has_header:
            return chunk
        return Chunk(chunk.rows[1:], chunk.first_line + 1, chunk.even, chunk.lines[1:])

    def _check_names(self, hint: Callable[[list[str]], str]) -> None:
        """Raises InvalidInput, with each column that is missing, named twice, or not known."""
        missing = [name for name in self.layout.required() if name not in self.names]
        unknown = [name for name in self.names if name and name not in self.layout.fields]
        if missing and (other := hint(self.names)):
            raise self._wrong("the column is missing", missing[0], remedy=other)
        errors, shown = [], ", ".join(show(name) for name in self.names[:12])
        for name in missing:
            near = get_close_matches(name, unknown, 1)
            remedy = f"is it {show(near[0])}?" if near else f"the columns are {shown}"
            errors.append(self._wrong("the column is missing", name, remedy=remedy))
            unknown = [other for other in unknown if other not in near]
        twice = dict.fromkeys(n for i, n in enumerate(self.names) if n in self.names[:i] and n)
        remedy = "remove or rename one"
        errors += [self._wrong(f"{show(name)} names two columns", remedy=remedy) for name in twice]
        if self.layout.closed:
            errors += [self._unknown(name) for name in unknown]
        refuse_all(errors)

    def _unknown(self, name: str) -> InvalidInput:
        near = get_close_matches(name, list(self.layout.fields), 1)
        remedy = f"did you mean '{near[0]}'?" if near else "remove the column"
        return self._wrong(f"no column {show(name)} is known", remedy=remedy)

    def _wrong(self, message: str, field: str = "", *, remedy: str) -> InvalidInput:
        where = f"{self.where}:{self.line}"
        return InvalidInput(message, field=field, where=where, remedy=remedy)

    def read(self, chunk: Chunk, refused: Refused | None) -> tuple[Ints, dict[str, Values]]:
        """The lines of the good rows of a chunk, and their values by column.

        ``refused`` takes what is wrong with the others.
        """
        rows = chunk.rows
        at: Ints = np.arange(len(rows))
        width = len(self.names)
        uneven = [i for i, row in enumerate(rows) if len(row) != width]
        faults: list[tuple[int, Wrong | None]] = [(row, None) for row in uneven]
        if uneven:
            at = np.delete(at, uneven)
            rows = [rows[i] for i in at.tolist()]
        values, wrong = self._values(rows)
        while wrong:
            faults += [(int(at[found.row]), found) for found in wrong]
            at = np.delete(at, sorted({found.row for found in wrong}))
            rows = [chunk.rows[i] for i in at.tolist()]
            values, wrong = self._values(rows)
        if refused is not None:
            for row, found in sorted(faults, key=lambda fault: fault[0]):
                refused.add(self._error(chunk, row, found) if found else self._uneven(chunk, row))
        lines = chunk.first_line + at if chunk.even else np.array(chunk.lines, np.int64)[at]
        return lines, values

    def _values(self, rows: list[list[str]]) -> tuple[dict[str, Values], list[Wrong]]:
        values: dict[str, Values] = {}
        wrong: list[Wrong] = []
        for name, index in self.at.items():
            values[name], found = self.layout.fields[name].read(name, [row[index] for row in rows])
            wrong += found
        if not wrong and rows:
            whole = _WithBlanks(values, self.layout, len(rows))
            for check in self.layout.checks:
                bad = np.flatnonzero(check.bad(whole)).tolist()
                wrong += [Wrong(row, check.column, check.message, check.remedy) for row in bad]
        return values, wrong

    def _error(self, chunk: Chunk, row: int, wrong: Wrong) -> InvalidInput:
        where = f"{self.where}:{chunk.line(row)}"
        return InvalidInput(wrong.message, field=wrong.column, where=where, remedy=wrong.remedy)

    def _uneven(self, chunk: Chunk, row: int) -> InvalidInput:
        found, width = len(chunk.rows[row]), len(self.names)
        column = self.names[found] if found < width else ""
        source = "the header names" if self.has_header else "the format has"
        message = f"the row has {found} columns, and {source} {width}"
        remedy = (
            "is the row cut off?" if found < width else "quote a value that holds the separator"
        )
        where = f"{self.where}:{chunk.line(row)}"
        return InvalidInput(message, field=column, where=where, remedy=remedy)


# --------------------------------------------------------------------------- columns of many chunks


class _Growing:
    """A column of numbers to which chunks are added."""

    def __init__(self) -> None:
        self.parts: list[Any] = []

    def add(self, values: Values) -> None:
        """Take the values of one more chunk."""
        self.parts.append(values)

    def column(self) -> Any:
        """The whole column."""
        return np.concatenate(self.parts)


class _GrowingIds(_Growing):
    """A column of ids, kept as they are."""

    def column(self) -> Any:
        """The whole column."""
        return [text for part in self.parts for text in part]


class _GrowingTexts(_Growing):
    """A column of text, encoded chunk by chunk."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, int] = {}

    def add(self, values: Values) -> None:
        """Encode the values of one more chunk; names are numbered by first appearance."""
        known = self.known
        for value in dict.fromkeys(values):
            known.setdefault(value, len(known))
        self.parts.append(np.fromiter(map(known.__getitem__, values), np.int32, len(values)))

    def column(self) -> Any:
        """The whole column."""
        return Texts(np.concatenate(self.parts), list(self.known))


def _growing(kind: Kind) -> _Growing:
    if isinstance(kind, Text):
        return _GrowingIds() if kind.id else _GrowingTexts()
    return _Growing()
