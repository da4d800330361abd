"""Files that appear when they are complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from topmast.model.errors import InvalidInput
from topmast.traces.source import place


@contextmanager
def replacing(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """A file beside ``path`` that takes its place at the end, and is removed if there is no end."""
    if path.is_dir():
        raise InvalidInput("is a folder", where=place(path), remedy="give the path of a file")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        file = temporary.open("xb")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the path is not valid"
        raise InvalidInput(f"cannot be written: {reason}", where=place(path)) from None
    try:
        with file:
            yield temporary, file
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
