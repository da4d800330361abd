"""JSON of other processes: whatever is wrong with it is one kind of error.

msgspec looks at a struct when one is decoded for the first time, and other threads see what is half
made: a second one that decodes it then ends the process (msgspec 0.22: segmentation fault). So one
thread decodes at a time, as in the client, or one has looked at all before there are others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import msgspec

T = TypeVar("T")


def decode(data: bytes | bytearray, kind: type[T]) -> T:
    """A JSON text as a ``kind``; raises `msgspec.DecodeError` for anything else."""
    with as_decode_error():
        return msgspec.json.decode(data, type=kind)


def learn_structs() -> None:
    """Let msgspec look at every struct that is loaded: 70 us for each new one."""
    above: list[type] = [msgspec.Struct]
    while above:
        below: list[type] = above.pop().__subclasses__()
        above += below
        for kind in below:
            with suppress(TypeError):  # it need not know the types of what is never decoded
                msgspec.json.Decoder(kind)


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
