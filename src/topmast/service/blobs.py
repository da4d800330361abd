"""Snapshots of workdirs: archives named by the SHA-256 of their content."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from topmast.adapters import archive
from topmast.model.access import ROOT
from topmast.model.errors import Full, InvalidInput, TooLarge
from topmast.service.room import Room

MAX_BYTES = 100 * 1024 * 1024
Fault = Callable[[bytes], str]
"""What is wrong with an archive; empty if nothing."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Shared(Protocol):
    """Where the servers of one system keep the files for one another."""

    def put_blob(self, digest: str, data: bytes) -> None:
        """Keep a file."""
        ...

    def blob(self, digest: str) -> bytes | None:
        """A file that was kept."""
        ...

    def blob_bytes(self) -> dict[str, int]:
        """How long each file is that was kept, by digest."""
        ...


class Blobs:
    """A folder of immutable files; a name says what must be inside. Safe to use from any thread.

    With a ``shared`` store the next server has them too.
    """

    def __init__(self, root: Path, shared: Shared | None = None) -> None:
        self.root = root
        self._shared = shared
        self._locks: dict[str, threading.Lock] = {}
        self.room = Room(root, self._kept_bytes)
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        _sync(root.parent)
        for part in root.glob("*.part"):  # of a process that was killed
            part.unlink(missing_ok=True)

    def path(self, digest: str) -> Path | None:
        """The file of a digest, None when it is not here."""
        if not _DIGEST.fullmatch(digest):
            return None
        file = self.root / digest.removeprefix("sha256:")
        if not file.is_file() and self._shared is not None:
            data = self._shared.blob(digest)
            if data is not None:
                _check(digest, data)
                self._write(digest, data)
        return file if file.is_file() else None

    def put(
        self,
        digest: str,
        data: bytes,
        account: str = "",
        tenants: Sequence[str] = (ROOT,),
        fault: Fault = archive.fault,
    ) -> bool:
        """Store an upload durably; False when it was here already.

        ``account``: the principal that it counts for, if that shares the server with others.
        ``tenants``: those that it may submit for. ``fault``: what judges the archive. Raises
        InvalidInput, Full if there is no room, and what ``fault`` raises.
        """
        _check(digest, data)
        with self._lock(digest):
            if self.path(digest) is not None:
                return False
            _check_archive(fault(data))
            with self.room.for_one(digest, len(data), account, tenants):
                if self._shared is not None:
                    self._shared.put_blob(digest, data)  # first: what is here is there too
                try:
                    self._write(digest, data)
                except OSError as error:
                    why = f"the server cannot keep the work folder: {error.strerror or error}"
                    raise Full(f"{why}; make room for its state folder") from error
            return True

    def fetch(self, digest: str, load: Callable[[], bytes]) -> Path | None:
        """The file of a digest, loaded the first time; concurrent callers wait for that one load.

        Raises what ``load`` and `put` raise. None when the digest is none.
        """
        if not _DIGEST.fullmatch(digest):
            return None
        with self._lock(digest):
            if self.path(digest) is None:
                data = load()
                _check(digest, data)
                self._write(digest, data)
        return self.path(digest)

    def _kept_bytes(self) -> dict[str, int]:
        if self._shared is not None:
            return self._shared.blob_bytes()
        with os.scandir(self.root) as files:
            found = {f"sha256:{file.name}": file for file in files}
            return {
                name: file.stat().st_size for name, file in found.items() if _DIGEST.fullmatch(name)
            }

    def _lock(self, digest: str) -> threading.Lock:
        return self._locks.setdefault(digest, threading.Lock())

    def _write(self, digest: str, data: bytes) -> None:
        """Put a checked archive in its place as a whole: readers never see a part of it."""
        number, name = tempfile.mkstemp(".part", dir=self.root)
        part = Path(name)
        try:
            with os.fdopen(number, "wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            part.rename(self.root / digest.removeprefix("sha256:"))
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        _sync(self.root)


def _check(digest: str, data: bytes) -> None:
    """Raise InvalidInput unless ``data`` is what ``digest`` promises."""
    if not _DIGEST.fullmatch(digest):
        raise InvalidInput("not a digest", field="workdir", remedy="sha256: and 64 hex digits")
    if len(data) > MAX_BYTES:
        raise TooLarge("larger than 100 MiB", field="workdir", remedy="ignore what is not needed")
    if hashlib.sha256(data).hexdigest() != digest.removeprefix("sha256:"):
        raise InvalidInput("the content has another digest", field="workdir")


def _check_archive(wrong: str) -> None:
    """Raise InvalidInput for an upload that could not be unpacked."""
    if wrong:
        raise InvalidInput(
            wrong, field="workdir", remedy="pack it again, smaller or without such files"
        )


def _sync(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
