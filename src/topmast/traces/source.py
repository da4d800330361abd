"""Where tables come from: text files, plain or gzipped, read in chunks of rows and never as a
whole.

A file is judged by what it holds, not by its name. What is not text, does not end, or expands
beyond reason is refused while it is read; nothing but a regular file is opened.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from topmast.model.errors import InvalidInput
from topmast.model.files.source import kind_of_file
from topmast.model.units import show

CHUNK_ROWS = 8_192
"""So few that the texts of a chunk stay in the cache of a processor."""
MAX_ROWS = 20_000_000
MAX_BYTES = 8 * 2**30
MAX_LINE_BYTES = 2**20
MAX_EXPANSION = 100
"""A gzipped file may expand to so many times its size, or to `SMALL_BYTES` if that is more."""
SMALL_BYTES = 2**28
_BLOCK_BYTES = 2**18
_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
_OTHERS = {
    b"PK\x03\x04": "a zip archive", b"BZh": "a bzip2 file", b"\xfd7zXZ": "an xz file",
    b"(\xb5/\xfd": "a zstandard file", b"%PDF": "a PDF", b"SQLite format 3": "a database",
}  # fmt: skip


class Chunk(NamedTuple):
    """Rows of a table as text, and the line on which each begins (for Parquet, its row from 1)."""

    rows: list[list[str]]
    first_line: int
    even: bool
    """Whether each row is one line, so that row i stands on ``first_line + i``."""
    lines: list[int]
    """If not even: the line of each row."""

    def line(self, row: int) -> int:
        """The line on which a row of this chunk stands."""
        return self.first_line + row if self.even else self.lines[row]


def place(path: Path) -> str:
    """A path for a message."""
    return str(path) if str(path).isprintable() else show(str(path))


def open_regular(path: Path) -> BinaryIO:
    """The regular file at ``path``; nothing else is opened, so that nothing can block."""
    where = place(path)
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            remedy = "give the path of a file"
            raise InvalidInput(f"is {kind_of_file(mode)}", where=where, remedy=remedy)
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        return os.fdopen(descriptor, "rb")
    except FileNotFoundError:
        raise InvalidInput("no such file", where=where, remedy="check the path") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the path is not valid"
        raise InvalidInput(f"cannot be read: {reason}", where=where) from None


def unreadable(path: Path) -> Iterator[InvalidInput]:
    """Why there is no file at ``path`` to read, if there is none."""
    try:
        open_regular(path).close()
    except InvalidInput as error:
        yield error


def is_parquet(path: Path) -> bool:
    """Whether the file begins as Parquet does."""
    with open_regular(path) as file:
        return file.read(4) == _PARQUET


def chunks(path: Path, delimiter: str = ",", *, rows: int = CHUNK_ROWS) -> Iterator[Chunk]:
    """The rows of a text table, blank lines left out. O(bytes), one chunk in memory."""
    where = place(path)
    with open_regular(path) as file:
        lines = chain.from_iterable(_lines(file, where))
        # Tab-separated traces hold commands, in which a quote is a character like any other.
        if delimiter == "\t":
            reader = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE, strict=True)
        else:
            reader = csv.reader(lines, delimiter=delimiter, strict=True)
        found = 0
        while True:
            before = reader.line_num
            try:
                batch = list(islice(reader, rows))
            except csv.Error as error:
                raise _csv_error(error, f"{where}:{reader.line_num}") from None
            if not batch:
                return
            even = reader.line_num - before == len(batch) and all(batch)
            ends = [] if even else _line_numbers(batch, before)
            kept = batch if even else [row for row in batch if row]
            found += len(kept)
            if found > MAX_ROWS:
                raise InvalidInput(
                    f"has more than {MAX_ROWS:,} rows", where=where, remedy="cut the file"
                )
            if kept:
                yield Chunk(kept, before + 1, even, ends)


def _line_numbers(batch: list[list[str]], before: int) -> list[int]:
    """The line of each row that is not blank, where quoted values may span lines."""
    lines, line = [], before
    for row in batch:
        line += 1
        if row:
            lines.append(line)
        line += sum(value.count("\n") for value in row)
    return lines


def _csv_error(error: csv.Error, where: str) -> InvalidInput:
    if "end of data" in str(error):
        return InvalidInput(
            "a quote that is opened is never closed", where=where, remedy='add the "'
        )
    if "new-line" in str(error):
        message = "a carriage return stands alone"
        return InvalidInput(message, where=where, remedy="end lines with line feeds")
    if "field larger" in str(error):
        return InvalidInput(
            "a value is longer than 128 KiB", where=where, remedy="is a quote open?"
        )
    return InvalidInput(f"is not CSV: {error}", where=where, remedy="check the quotes of this row")


# ----------------------------------------------------------------------------------- bytes to lines


def _lines(file: BinaryIO, where: str) -> Iterator[list[str]]:
    """The lines of a file, block by block, each with its line end."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    rest, line = "", 1
    for block, last in _blocks(file, where):
        try:
            text = rest + decoder.decode(block, final=last)
        except UnicodeDecodeError as error:
            line += rest.count("\n") + block.count(b"\n", 0, error.start)
            raise InvalidInput(
                "this is not UTF-8 text", where=f"{where}:{line}", remedy="save the file as UTF-8"
            ) from None
        if "\0" in text:
            line += text.count("\n", 0, text.index("\0"))
            raise InvalidInput("this is a binary file, not text", where=f"{where}:{line}")
        lines = text.splitlines(keepends=True) if _only_plain_breaks(text) else _split(text)
        rest = "" if last or not lines or lines[-1].endswith("\n") else lines.pop()
        if len(rest) > MAX_LINE_BYTES:
            raise InvalidInput(
                f"a line is longer than {MAX_LINE_BYTES // 2**20} MiB",
                where=f"{where}:{line + len(lines)}",
            )
        line += len(lines)
        yield lines


def _only_plain_breaks(text: str) -> bool:
    """Whether `splitlines` breaks this text at line feeds alone."""
    return text.isascii() and not any(mark in text for mark in "\r\v\f\x1c\x1d\x1e")


def _split(text: str) -> list[str]:
    """Lines by line feed alone; what else Unicode calls a line break is a character of a value."""
    return list(io.StringIO(text, newline="\n"))


def _blocks(file: BinaryIO, where: str) -> Iterator[tuple[bytes, bool]]:
    """Blocks of the file, unpacked if it is gzipped, each with whether it is the last."""
    start = file.read(512)
    file.seek(0)
    stream: BinaryIO = file
    limit = MAX_BYTES
    if start.startswith(_GZIP):
        size = os.fstat(file.fileno()).st_size
        limit = min(MAX_BYTES, max(SMALL_BYTES, MAX_EXPANSION * size))
        stream = gzip.GzipFile(fileobj=file)  # type: ignore[assignment]
    total, block = 0, _read(stream, where)
    _refuse_other_kinds(block, where)
    while True:
        following = _read(stream, where) if block else b""
        yield block, not following
        total += len(block)
        if total > limit:
            raise InvalidInput(
                f"expands to more than {limit // 2**20:,} MiB", where=where,
                remedy="cut the file into parts",
            )  # fmt: skip
        if not following:
            return
        block = following


def _read(stream: BinaryIO, where: str) -> bytes:
    try:
        return stream.read(_BLOCK_BYTES)
    except EOFError:
        raise InvalidInput(
            "the gzipped file ends in the middle", where=where, remedy="fetch it again"
        ) from None
    except (zlib.error, gzip.BadGzipFile) as error:
        raise InvalidInput(
            f"the gzipped file is damaged: {error}", where=where, remedy="fetch it again"
        ) from None


def _refuse_other_kinds(block: bytes, where: str) -> None:
    if block[257:262] == b"ustar":
        raise InvalidInput("is a tar archive", where=where, remedy="unpack it first: tar -xf FILE")
    if block.startswith(_PARQUET):
        raise InvalidInput("is Parquet", where=where, remedy="only --format topmast reads Parquet")
    for start, kind in _OTHERS.items():
        if block.startswith(start):
            raise InvalidInput(f"is {kind}", where=where, remedy="unpack or export it as CSV")
    if block[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InvalidInput("is UTF-16 text", where=where, remedy="save the file as UTF-8")
