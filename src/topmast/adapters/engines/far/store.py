"""What a far engine keeps on disk: its facts, its identity, and the output of tasks."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path

import msgspec

from topmast.adapters.engines.far.events import Fact
from topmast.adapters.engines.local import files
from topmast.model.errors import Unavailable

REWRITE_BYTES = 4 << 20
"""The file of facts is written anew when it is larger than that, and twice what it was then."""
ID_BYTES = 4
KINDS = ("log", "progress")
"""What a task writes that is kept."""


class FactLog:
    """A file of facts, one on a line. Once `append` returns, they are on the disk."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._decode = msgspec.json.Decoder(Fact).decode
        self._encode = msgspec.json.Encoder().encode
        self._fd = -1
        self._written_bytes = 0

    def load(self) -> list[Fact]:
        """Everything that was recorded. Raises Unavailable if a line cannot be read.

        A last line without its end was never acted upon.
        """
        files.make_folder(self._file.parent)
        try:
            content = self._file.read_bytes() if self._file.exists() else b""
        except OSError as error:
            raise Unavailable(f"{self._file} cannot be read: {error.strerror}") from None
        facts: list[Fact] = []
        for number, line in enumerate(content.split(b"\n")[:-1], 1):
            try:
                facts.append(self._decode(line))
            except (msgspec.DecodeError, ValueError) as error:
                raise Unavailable(
                    f"{self._file}, line {number}: {error}; restore the file from a copy, or move "
                    "the folder away if nothing of it runs any more"
                ) from None
        return facts

    def rewrite(self, facts: Iterable[Fact]) -> None:
        """Have these facts, and no others, in the file."""
        content = b"".join(self._encode(fact) + b"\n" for fact in facts)
        files.write_file(self._file, content)
        self.close()
        self._fd = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._written_bytes = len(content)
        self._least_bytes = max(REWRITE_BYTES, 2 * len(content))

    def append(self, facts: Iterable[Fact]) -> None:
        """Record more. When it raises, none of them may be acted upon, and it is tried again."""
        content = b"".join(self._encode(fact) + b"\n" for fact in facts)
        try:
            files.write_all(self._fd, content)
            os.fsync(self._fd)
        except OSError:
            os.ftruncate(self._fd, self._written_bytes)
            raise
        self._written_bytes += len(content)

    @property
    def is_long(self) -> bool:
        """Whether it is worth to write it anew."""
        return self._written_bytes > self._least_bytes

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Identity:
    """What we are to the scheduler and to runners: made once, in the engine's folder."""

    def __init__(self, folder: Path) -> None:
        self._secret = bytes.fromhex(_once(folder / "secret", lambda: secrets.token_hex(32)))
        self.fleet = _once(folder / "id", lambda: secrets.token_hex(ID_BYTES))
        """The second word in the names of parts: no other engine has it."""

    def token(self, part: str) -> str:
        """What the runners of a part show."""
        return hmac.new(self._secret, part.encode(), hashlib.sha256).hexdigest()


def _once(file: Path, make: object) -> str:
    """What a file says; the first time, what ``make`` gives, durably and for our eyes only."""
    if not file.exists():
        assert callable(make)
        files.write_file(file, f"{make()}\n".encode())
    content = (files.read_bytes(file) or b"").decode(errors="replace").strip()
    if not content.isascii() or not content.isalnum():
        raise Unavailable(f"{file} is damaged: restore it from a copy")
    return content


class Outputs:
    """What tasks wrote, as their runners sent it."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes

    def file(self, job: str, epoch: int, rank: int, kind: str = "log") -> Path:
        """Where it is."""
        return file_of(self._folder, job, epoch, rank, kind)

    def add(self, file: Path, offset: int, page: bytes) -> tuple[int, bool]:
        """Append a page that begins where the file ends; returns from where on more is wanted.

        Any other page is left out: the runner begins again where we are. Beyond the most that is
        kept, pages are dropped; true: so will all be that come.
        """
        files.make_folder(file.parent)
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            size_bytes = os.fstat(fd).st_size
            if size_bytes >= self._max_bytes:
                return offset + len(page), True
            if offset != size_bytes:
                return size_bytes, False
            files.write_all(fd, page)
            return size_bytes + len(page), False
        finally:
            os.close(fd)

    def delete(self, job: str, epoch: int) -> None:
        """Delete what an attempt wrote."""
        shutil.rmtree(self.file(job, epoch, 0).parent, ignore_errors=True)


def file_of(folder: Path, job: str, epoch: int, rank: int, kind: str = "log") -> Path:
    """The file with a task's output in the folder of outputs."""
    return folder / f"{job}.{epoch}" / f"{rank}.{kind}"
