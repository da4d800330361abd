"""Parquet, where pyarrow is installed: values become text and go the way of CSV, so that both are
held to the same rules and refused in the same words. A row is named by its number, from 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from topmast.model.errors import InvalidInput
from topmast.model.units import show
from topmast.traces.source import CHUNK_ROWS, MAX_BYTES, MAX_ROWS, Chunk, open_regular, place


def _pyarrow(where: str) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InvalidInput(
            "Parquet needs pyarrow, which is not installed", where=where,
            remedy="pip install 'topmast[parquet]', or use CSV",
        ) from None  # fmt: skip
    return pyarrow


def parquet_chunks(path: Path) -> Iterator[Chunk]:
    """The rows of a Parquet file, its column names first. One chunk in memory at a time."""
    where = place(path)
    arrow = _pyarrow(where)
    try:
        with open_regular(path) as file, arrow.parquet.ParquetFile(file) as table:
            _check_size(table, where)
            names = [field.name for field in table.schema_arrow]
            for field in table.schema_arrow:
                _check_type(arrow, field, where)
            yield Chunk([names], 0, True, [])
            row = 1
            for batch in table.iter_batches(batch_size=CHUNK_ROWS):
                columns = [_texts(column.to_pylist()) for column in batch.columns]
                rows = [list(values) for values in zip(*columns, strict=True)]
                yield Chunk(rows, row, True, [])
                row += len(rows)
    except (arrow.ArrowException, OSError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        reason = str(error).splitlines()[0][:200]
        raise InvalidInput(f"is no Parquet that can be read: {show(reason)}", where=where) from None


def _check_size(table: Any, where: str) -> None:
    groups = [table.metadata.row_group(i) for i in range(table.metadata.num_row_groups)]
    if table.metadata.num_rows > MAX_ROWS:
        raise InvalidInput(f"has more than {MAX_ROWS:,} rows", where=where, remedy="cut the file")
    if sum(group.total_byte_size for group in groups) > MAX_BYTES:
        raise InvalidInput(f"expands to more than {MAX_BYTES // 2**30} GiB", where=where)


def _check_type(arrow: Any, field: Any, where: str) -> None:
    kind = field.type.value_type if arrow.types.is_dictionary(field.type) else field.type
    tests = (
        "is_floating", "is_integer", "is_boolean", "is_string", "is_large_string", "is_null",
    )  # fmt: skip
    if not any(getattr(arrow.types, test)(kind) for test in tests):
        raise InvalidInput(
            f"is of type {field.type}", field=show(field.name)[1:-1], where=where,
            remedy="numbers, text or true and false",
        )  # fmt: skip


def _texts(values: list[Any]) -> list[str]:
    return [
        value
        if isinstance(value, str)
        else ""
        if value is None
        else repr(int(value) if isinstance(value, bool) else value)
        for value in values
    ]


class ParquetWriter:
    """Writes chunks of columns, numbers as numbers."""

    def __init__(self, path: Path, target: Path, kinds: Mapping[str, type]) -> None:
        """Write to ``path`` what is to be ``target`` in messages."""
        self.arrow = _pyarrow(place(target))
        types = {float: self.arrow.float64(), int: self.arrow.int64(), str: self.arrow.string()}
        self.schema = self.arrow.schema([(name, types[kind]) for name, kind in kinds.items()])
        self.writer = self.arrow.parquet.ParquetWriter(path, self.schema)

    def write(self, columns: Mapping[str, Any]) -> None:
        """Add rows. NaN is written as null: no value."""
        arrays = [
            self.arrow.array(columns[field.name], type=field.type, from_pandas=True)
            for field in self.schema
        ]
        self.writer.write_table(self.arrow.Table.from_arrays(arrays, schema=self.schema))

    def close(self) -> None:
        """Write the end of the file."""
        self.writer.close()
