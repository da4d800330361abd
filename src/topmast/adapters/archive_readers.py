"""Archives that are read by processes beside the server.

Reading keeps the interpreter busy. Were it done by threads of the server, its event loop would get
the interpreter back only some milliseconds after each call of the system, and make many of these
for each request. Standard library only: the processes load nothing else.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from topmast.adapters import archive

LAUNCH = (
    "import sys; sys.path.append(sys.argv[1]);"
    "from topmast.adapters.archive_readers import main; main()"
)
NICE = 5
"""On a machine that is busy they leave the server its time."""
LONGEST_S = 120.0
"""One that has not read an archive by then hangs, and is ended."""
LOOK_S = 0.5
"""How often one that reads looks whether the server is there."""
_SIZE = struct.Struct("=Q")
"""Of an archive, before it."""
_ANSWER = struct.Struct("=dQ")
"""Seconds that it took, and the size of what is wrong, before that."""


class Readers:
    """As many processes as threads ask at a time; each of them may.

    They begin when they are needed, and end when this is used no more, or with the process that
    uses it, however that ends.
    """

    def __init__(self) -> None:
        self._idle: list[subprocess.Popen[bytes]] = []
        self._busy: list[subprocess.Popen[bytes]] = []
        self._is_closed = False
        weakref.finalize(self, _end, self._idle)

    def fault(self, content: bytes) -> tuple[str, float]:
        """As `archive.fault`, and the seconds of a processor that it took.

        Raises OSError if no process can be had, if two end over it, or once this is closed.
        """
        for begin in (self._idle_one, _begin):
            if self._is_closed:
                break
            reader = begin()
            try:
                found = self._asked(reader, content)
            except OSError:  # something has ended it, perhaps long ago
                _end([reader])
                continue
            self._idle.append(reader)
            return found
        raise ChildProcessError("the processes that read archives are ended")

    def close(self) -> None:
        """End those that read, and let none begin: what they read is refused."""
        self._is_closed = True
        for reader in list(self._busy):
            reader.kill()

    def _asked(self, reader: subprocess.Popen[bytes], content: bytes) -> tuple[str, float]:
        limit = threading.Timer(LONGEST_S, reader.kill)
        limit.daemon = True
        self._busy.append(reader)
        limit.start()
        try:
            if self._is_closed:
                raise ChildProcessError("the server stops")
            return _ask(reader, content)
        finally:
            limit.cancel()
            self._busy.remove(reader)

    def _idle_one(self) -> subprocess.Popen[bytes]:
        try:
            return self._idle.pop()
        except IndexError:
            return _begin()


def main() -> None:
    """Read archives that come one behind the other, until no more can."""
    os.nice(NICE)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    asked, told = sys.stdin.buffer, sys.stdout.buffer
    with suppress(OSError):  # the server has ended
        while head := asked.read(_SIZE.size):
            content = _exactly(asked, *_SIZE.unpack(head))
            begun_s = time.process_time()
            wrong = archive.fault(content).encode(errors="backslashreplace")
            del content
            told.write(_ANSWER.pack(time.process_time() - begun_s, len(wrong)) + wrong)
            told.flush()
    os._exit(0)


def _end_with(server: int) -> None:
    """End at once when the server does: an archive may take long."""
    while os.getppid() == server:
        time.sleep(LOOK_S)
    os._exit(0)


def _begin() -> subprocess.Popen[bytes]:
    """One more process. A signal to the server's group, as of Ctrl-C, does not reach it."""
    folder = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", LAUNCH, str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0,
    )  # fmt: skip


def _ask(reader: subprocess.Popen[bytes], content: bytes) -> tuple[str, float]:
    assert reader.stdin is not None
    assert reader.stdout is not None
    reader.stdin.write(_SIZE.pack(len(content)))
    reader.stdin.write(content)
    reader.stdin.flush()
    took_s, size_bytes = _ANSWER.unpack(_exactly(reader.stdout, _ANSWER.size))
    return _exactly(reader.stdout, size_bytes).decode(), took_s


def _exactly(file: IO[bytes], size_bytes: int) -> bytes:
    data = file.read(size_bytes)
    if len(data) < size_bytes:
        raise ChildProcessError("the other side has ended")
    return data


def _end(readers: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes that read nothing."""
    for reader in readers:
        with suppress(OSError), reader:
            reader.kill()
