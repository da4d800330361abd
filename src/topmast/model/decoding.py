"""JSON of other processes: whatever is wrong with it is one kind of error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

T = TypeVar("T")


def decode(data: bytes | bytearray, kind: type[T]) -> T:
    """A JSON text as a ``kind``; raises `msgspec.DecodeError` for anything else."""
    with as_decode_error():
        return msgspec.json.decode(data, type=kind)


@contextmanager
def as_decode_error() -> Iterator[None]:
    """Raise `msgspec.DecodeError` also for text that is nested without end, or not UTF-8.

    msgspec has errors of other kinds for these two.
    """
    try:
        yield
    except RecursionError:
        raise msgspec.DecodeError("the JSON is nested too deeply") from None
    except UnicodeError as error:
        raise msgspec.DecodeError(f"the JSON is not UTF-8: {error}") from None
