"""Snapshots of a working directory: the same files give the same bytes on any machine."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from topmast.adapters import archive
from topmast.client.ignore import Ignored
from topmast.model.errors import InvalidInput
from topmast.model.units import format_bytes

IGNORE_FILE = ".topmastignore"
LIMIT_BYTES = archive.MAX_BYTES
LIMIT_FILES = archive.MAX_ENTRIES
_SHOWN = 5
_REMEDY = f"name what is not needed in {IGNORE_FILE}, or keep data in a dataset"


class Snapshot(Struct, frozen=True):
    """A packed folder: a gzipped tar file named by the SHA-256 of its bytes."""

    digest: str
    content: bytes
    files: int
    unpacked_bytes: int


class _Entry(NamedTuple):
    name: str
    path: Path
    status: os.stat_result


def check_folder(folder: Path) -> None:
    """Refuse what is no folder."""
    if not folder.is_dir():
        raise InvalidInput(
            f"{folder} is not a folder", field="workdir", remedy="name a folder that is there"
        )


def snapshot(folder: Path, limit_bytes: int = LIMIT_BYTES) -> Snapshot:
    """Pack ``folder`` without what its ``.topmastignore`` leaves out."""
    check_folder(folder)
    try:
        entries = list(_checked(folder, limit_bytes))
        content, unpacked_bytes = _packed(entries)
    except OSError as error:
        name = error.filename or folder
        message = f"{name} cannot be read: {error.strerror or error}"
        raise InvalidInput(message, field="workdir", remedy=_REMEDY) from error
    if len(content) > limit_bytes:
        raise _too_large(len(content), limit_bytes, entries)
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    files = sum(not stat.S_ISDIR(entry.status.st_mode) for entry in entries)
    return Snapshot(digest, content, files, unpacked_bytes)


def _checked(folder: Path, limit_bytes: int) -> Iterator[_Entry]:
    """What belongs to the snapshot; refused once it is too much, or when a link leads out."""
    ignored = Ignored(_patterns(folder))
    top = folder.resolve()
    size_bytes, seen = 0, []
    for entry in _walk(folder, "", ignored):
        seen.append(entry)
        if stat.S_ISLNK(entry.status.st_mode):
            _check_link(entry, top)
        elif stat.S_ISREG(entry.status.st_mode):
            size_bytes += entry.status.st_size
        if len(seen) > LIMIT_FILES:
            message = f"{folder} has more than {LIMIT_FILES:,} files"
            raise InvalidInput(message, field="workdir", remedy=_REMEDY)
        yield entry
    if size_bytes > limit_bytes:
        raise _too_large(size_bytes, limit_bytes, seen)


def _patterns(folder: Path) -> list[str]:
    try:
        return (folder / IGNORE_FILE).read_text("utf-8", errors="replace").split("\n")
    except (FileNotFoundError, IsADirectoryError):
        return []


def _walk(folder: Path, prefix: str, ignored: Ignored) -> Iterator[_Entry]:
    """Files, links and folders below ``folder`` in the order of their names; nothing special."""
    for path in sorted(folder.iterdir(), key=os.fsencode):
        name, status = prefix + path.name, path.lstat()
        is_folder = stat.S_ISDIR(status.st_mode)
        if ignored.leaves_out(name, is_folder):
            continue
        if is_folder:
            yield _Entry(name, path, status)
            yield from _walk(path, f"{name}/", ignored)
        elif stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
            yield _Entry(name, path, status)


def _check_link(entry: _Entry, top: Path) -> None:
    """Refuse a link that leads out of the folder, on its way or at its end."""
    target = entry.path.readlink()
    depth = entry.name.count("/")
    leaves = target.is_absolute()
    for part in target.parts:
        depth += -1 if part == ".." else 1
        leaves = leaves or depth < 0
    try:
        leaves = leaves or not (entry.path.parent.resolve() / target).resolve().is_relative_to(top)
    except (OSError, RuntimeError):  # a link to itself
        leaves = True
    if leaves:
        message = f"the link {entry.name} -> {target} leads out of the folder"
        remedy = f"make it relative and keep it inside, or name it in {IGNORE_FILE}"
        raise InvalidInput(message, field="workdir", remedy=remedy)


def _too_large(size_bytes: int, limit_bytes: int, entries: list[_Entry]) -> InvalidInput:
    files = [entry for entry in entries if stat.S_ISREG(entry.status.st_mode)]
    largest = sorted(files, key=lambda entry: (-entry.status.st_size, entry.name))[:_SHOWN]
    listed = ", ".join(f"{e.name} {format_bytes(e.status.st_size)}" for e in largest)
    message = f"the folder holds {format_bytes(size_bytes)}, more than {format_bytes(limit_bytes)}"
    return InvalidInput(f"{message}; the largest files: {listed}", field="workdir", remedy=_REMEDY)


def _packed(entries: list[_Entry]) -> tuple[bytes, int]:
    """The archive: names in order, no times, no owners, and of the mode only what may be run."""
    packed, total_bytes = io.BytesIO(), 0
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=packed, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for entry in entries:
            info = tarfile.TarInfo(entry.name)
            mode = entry.status.st_mode
            if stat.S_ISDIR(mode):
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(info)
            elif stat.S_ISLNK(mode):
                info.type, info.mode = tarfile.SYMTYPE, 0o777
                info.linkname = str(entry.path.readlink())
                tar.addfile(info)
            else:
                data = entry.path.read_bytes()
                info.mode = 0o755 if mode & stat.S_IXUSR else 0o644
                info.size = len(data)
                total_bytes += len(data)
                tar.addfile(info, io.BytesIO(data))
    return packed.getvalue(), total_bytes
