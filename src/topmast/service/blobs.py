"""Snapshots of workdirs: archives named by the SHA-256 of their content."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from topmast.model.errors import InvalidInput, TooLarge

MAX_BYTES = 100 * 1024 * 1024
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Blobs:
    """A folder of immutable files; a name says what must be inside."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True, mode=0o700)

    def path(self, digest: str) -> Path | None:
        """The file of a digest, None when it is not here."""
        if not _DIGEST.fullmatch(digest):
            return None
        file = self.root / digest.removeprefix("sha256:")
        return file if file.is_file() else None

    def put(self, digest: str, data: bytes) -> bool:
        """Store an archive durably; False when it was here already. Raises InvalidInput."""
        if not _DIGEST.fullmatch(digest):
            raise InvalidInput("not a digest", field="workdir", remedy="sha256: and 64 hex digits")
        if len(data) > MAX_BYTES:
            raise TooLarge(
                "larger than 100 MiB", field="workdir", remedy="ignore what is not needed"
            )
        if hashlib.sha256(data).hexdigest() != digest.removeprefix("sha256:"):
            raise InvalidInput("the content has another digest", field="workdir")
        if self.path(digest) is not None:
            return False
        file = self.root / digest.removeprefix("sha256:")
        part = file.with_suffix(f".{os.getpid()}.part")
        with part.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        part.rename(file)
        folder = os.open(self.root, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return True
