"""Pages of tasks' output that is kept in files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from topmast.model.errors import NotFound
from topmast.ports import LogPage

MOST_BYTES = 1 << 20
"""Of one page, however many are asked for."""


def read_page(file: Path, offset: int, limit: int) -> LogPage | None:
    """A piece of a file, complete at its end; None without the file.

    Raises NotFound when it is no file: a task may have put a link or a pipe in its place.
    """
    try:
        number = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise NotFound(f"the output cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise NotFound("the output cannot be read: the task put something else in its place")
    with os.fdopen(number, "rb") as content:
        size_bytes = content.seek(0, os.SEEK_END)
        content.seek(min(max(0, offset), size_bytes))
        data = content.read(max(0, min(limit, MOST_BYTES)))
        end = content.tell()
    return LogPage(data, end, end >= size_bytes)
