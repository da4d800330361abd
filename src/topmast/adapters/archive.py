"""Archives of work folders: what may be in one, and how it is unpacked.

The archive comes from the submitter of a job, so nothing in it is trusted: not its names, links or
sizes. Standard library only: the small processes of tasks unpack it.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import tarfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

MAX_BYTES = 100 * 2**20
"""Of all files together, unpacked."""
MAX_ENTRIES = 100_000
NAME_MAX_BYTES = 1024
STREAM_MAX_BYTES = MAX_BYTES + MAX_ENTRIES * 4096
"""Of the archive when it is decompressed: the files, and room for their headers."""
READ_BYTES = 1 << 20


class Refused(tarfile.TarError):
    """Something in an archive does not belong in a work folder."""


def fault(content: bytes) -> str:
    """What in an archive would be refused when it is unpacked; empty if nothing. O(unpacked bytes).

    What is no archive at all is left to `unpack` to say.
    """
    try:
        with _opened(io.BytesIO(content)) as archive:
            for _ in _members(archive):
                pass
    except Refused as error:
        return str(error)
    except (tarfile.TarError, OSError, EOFError, ValueError):
        return ""
    return ""


def unpack(archive_path: str, folder: str) -> None:
    """Extract files, folders and inner links into an empty folder; `Refused` for anything else.

    Links come last: while files are written, no link in the folder can lead outside.
    """
    root = Path(folder)
    links = []
    with Path(archive_path).open("rb") as file, _opened(file) as archive:
        for member in _members(archive):
            path = root / member.name
            with _explained(member):
                if member.isdir():
                    path.mkdir(parents=True, exist_ok=True)
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                if member.issym():
                    links.append(member)
                else:
                    _write(path, archive, member)
    for member in links:
        with _explained(member):
            (root / member.name).symlink_to(member.linkname)


class _Bounded:
    """A stream that refuses to give more than an archive may hold, however small it is packed."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._left_bytes = STREAM_MAX_BYTES

    def read(self, size_bytes: int) -> bytes:
        data = self._file.read(size_bytes)
        self._left_bytes -= len(data)
        if self._left_bytes < 0:
            raise Refused(f"the archive holds more than {STREAM_MAX_BYTES:,} bytes when unpacked")
        return data


@contextmanager
def _opened(file: IO[bytes]) -> Iterator[tarfile.TarFile]:
    """The archive in a file, packed with gzip or not, read from the beginning to the end once."""
    is_packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    plain: Any = gzip.GzipFile(fileobj=file) if is_packed else file
    bounded: Any = _Bounded(plain)
    with tarfile.open(fileobj=bounded, mode="r|", bufsize=READ_BYTES) as archive:
        yield archive


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Every member, checked before it is handed out; links at the end, when all are known."""
    size_bytes, links = 0, dict[str, tarfile.TarInfo]()
    for number, member in enumerate(archive, 1):
        if number > MAX_ENTRIES:
            raise Refused(f"the archive has more than {MAX_ENTRIES:,} files, folders and links")
        _check_name(member)
        if member.issym():
            links["/".join(_parts(member.name))] = member
        elif member.issparse() or not (member.isreg() or member.isdir()):
            raise Refused(f"{member.name!r} is neither a file, a folder nor a symbolic link")
        size_bytes += max(member.size, 0)
        if member.size < 0 or size_bytes > MAX_BYTES:
            raise Refused(f"the files in the archive hold more than {MAX_BYTES:,} bytes")
        yield member
    for member in links.values():
        _check_link(member, links)


def _check_name(member: tarfile.TarInfo) -> None:
    _check_text(member.name, "a name")
    if member.name.startswith("/") or ".." in member.name.split("/"):
        raise Refused(f"{member.name!r} leads out of the folder")


def _check_link(member: tarfile.TarInfo, links: Collection[str]) -> None:
    """Judge a link by its text: it stays inside at every step, and goes up through folders only.

    Where a step up follows one of ``links``, the text does not say where it leads.
    """
    _check_text(member.linkname, f"the target of {member.name!r}")
    place = _parts(member.name)[:-1]
    inside = not member.linkname.startswith("/")
    for part in _parts(member.linkname):
        if part != "..":
            place.append(part)
            continue
        inside = inside and bool(place) and "/".join(place) not in links
        del place[-1:]
    if not inside:
        raise Refused(f"the link {member.name!r} -> {member.linkname!r} may lead out of the folder")


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _check_text(text: str, what: str) -> None:
    if not text or "\0" in text or len(os.fsencode(text)) > NAME_MAX_BYTES:
        raise Refused(f"{what} is empty, has a NUL, or is longer than {NAME_MAX_BYTES:,} bytes")


def _write(path: Path, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    content = archive.extractfile(member)
    assert content is not None, "it is a file"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "wb") as out:
        shutil.copyfileobj(content, out, READ_BYTES)
        os.fchmod(out.fileno(), 0o755 if member.mode & 0o100 else 0o644)


@contextmanager
def _explained(member: tarfile.TarInfo) -> Iterator[None]:
    try:
        yield
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        raise Refused(f"{member.name!r} is in the archive twice, as different things") from None
