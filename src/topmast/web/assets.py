"""The files that pages need: read once, and named by their content, so that browsers keep them."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from msgspec import Struct

FOLDER = Path(__file__).parent / "static"
TYPES = {
    ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".txt": "text/plain",
}  # fmt: skip
"""Media types by suffix; no other file is given out."""


class Asset(Struct, frozen=True):
    """A file as it is sent."""

    data: bytes
    media_type: str


class Assets(Struct, frozen=True):
    """All files, by their path below the folder."""

    tag: str
    """Another one when any file is another: an open page never gets files of two versions."""
    files: dict[str, Asset]


@cache
def assets(folder: Path = FOLDER) -> Assets:
    """The files of a folder."""
    digest, files = hashlib.sha256(), dict[str, Asset]()
    for file in sorted(folder.rglob("*")):
        if file.suffix in TYPES and file.is_file():
            name = file.relative_to(folder).as_posix()
            files[name] = Asset(file.read_bytes(), TYPES[file.suffix])
            digest.update(name.encode() + b"\0" + files[name].data + b"\0")
    return Assets(digest.hexdigest()[:16], files)
