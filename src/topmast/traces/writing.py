"""Writing the `topmast` format: every number in full, so that reading gives the same trace."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from topmast.model.job import Band
from topmast.traces.files import replacing
from topmast.traces.formats.topmast import FIELDS
from topmast.traces.source import CHUNK_ROWS
from topmast.traces.trace import Texts, Trace
from topmast.traces.values import Choice, Number

REQUIRED = ("job_id", "submit_s", "duration_s", "gpus")
_WHOLE = ("tasks", "min_tasks", "max_tasks", "preemptible")


def write(trace: Trace, path: Path) -> None:
    """Write ``trace`` to ``path``: Parquet for ``.parquet``, gzipped CSV for ``.gz``, else CSV.

    Columns in which every job has the default are left out. The file appears when it is complete.
    """
    columns = _columns(trace)
    with replacing(path) as (temporary, file):
        if path.suffix == ".parquet":
            _write_parquet(trace, columns, temporary, path)
            return
        # No name and no time in the header of the gzipped file: the same trace, the same bytes.
        packed = gzip.GzipFile("", "wb", 6, file, mtime=0) if path.suffix == ".gz" else None
        stream = cast(BinaryIO, packed) if packed else file
        _write_csv(
            trace, columns, io.TextIOWrapper(stream, "utf-8", newline="", write_through=True)
        )
        if packed:
            packed.close()


def _columns(trace: Trace) -> list[str]:
    """The columns to write: the required ones, and those that say something."""
    return [name for name in FIELDS if name in REQUIRED or _says_something(trace, name)]


def _says_something(trace: Trace, name: str) -> bool:
    value, kind = getattr(trace, name), FIELDS[name]
    if name in ("min_tasks", "max_tasks"):
        return bool(np.any(value != trace.tasks))
    if isinstance(value, Texts):
        default = getattr(kind, "blank", "")
        return any(value.names[code] != default for code in np.unique(value.codes).tolist())
    assert isinstance(kind, Number | Choice)
    assert kind.blank is not None, "a column that may be left out has a default"
    default = kind.blank
    return bool(np.any(~np.isnan(value) if np.isnan(default) else value != default))


def _write_csv(trace: Trace, columns: list[str], file: io.TextIOWrapper) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    for begin in range(0, len(trace), CHUNK_ROWS):
        rows = slice(begin, begin + CHUNK_ROWS)
        texts = [_texts(name, getattr(trace, name), rows) for name in columns]
        writer.writerows(zip(*texts, strict=True))
    file.flush()
    file.detach()


_BANDS = {int(band): band.name.lower() for band in Band}


def _texts(name: str, column: Any, rows: slice) -> list[str]:
    """A part of a column as text; NaN is blank, whole numbers have no point."""
    if isinstance(column, list):
        return column[rows]
    if isinstance(column, Texts):
        names = column.names
        return [names[code] for code in column.codes[rows].tolist()]
    values = column[rows]
    if name == "band":
        return [_BANDS[value] for value in values.tolist()]
    if name in _WHOLE or bool(np.all(values == np.floor(values))):
        return list(map(str, values.astype(np.int64).tolist()))
    return [_number(value) for value in values.tolist()]


def _number(value: float) -> str:
    if value != value:
        return ""
    return repr(value).removesuffix(".0")


def _write_parquet(trace: Trace, columns: list[str], temporary: Path, path: Path) -> None:
    from topmast.traces.parquet import ParquetWriter

    kinds = {name: _type(name, getattr(trace, name)) for name in columns}
    writer = ParquetWriter(temporary, path, kinds)
    for begin in range(0, len(trace), CHUNK_ROWS):
        rows = slice(begin, begin + CHUNK_ROWS)
        writer.write({name: _values(name, getattr(trace, name), rows) for name in columns})
    writer.close()


def _type(name: str, column: Any) -> type:
    if isinstance(column, list | Texts) or name == "band":
        return str
    return int if name in _WHOLE else float


def _values(name: str, column: Any, rows: slice) -> Any:
    if isinstance(column, list | Texts) or name == "band":
        return _texts(name, column, rows)
    return column[rows].astype(np.int64 if name in _WHOLE else np.float64)
