"""Checkpoints of jobs in a bucket, each seen whole or not at all.

    JOB/objects/SHA256          pieces of files, and tables; written once, never changed
    JOB/saved/EPOCH.json        what the attempt of that number saved last, whole

A *table* lists the files of one host: `[name, changed, mode, time, [[sha256, bytes], ...]]`. A
checkpoint is the tables of all hosts of an attempt, and is there when it is named in `saved`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from topmast.adapters.objects.reading import SIGNED_FOR_S, Contents, Readable
from topmast.adapters.objects.region import RegionStore, StoreError
from topmast.model.errors import InvalidInput

SCHEMES = ("s3", "s3a")
_EPOCH = re.compile(r"([0-9]+)\.json")
_SHA256 = re.compile(r"[0-9a-f]{64}")
Piece = tuple[str, int]
"""SHA-256 and bytes."""


class FileRow(Struct, frozen=True, array_like=True):
    """A file in a table."""

    name: str
    changed: bool
    """Since the attempt began on that host."""
    mode: int
    mtime_ns: int
    pieces: tuple[Piece, ...]


class SavedCheckpoint(Struct, frozen=True):
    """A checkpoint: the tables of the hosts, that of rank 0's host first."""

    epoch: int
    tables: tuple[tuple[Piece, ...], ...]


def bucket_of(url: str) -> str:
    """The URL of a bucket for checkpoints; empty for a folder. Raises InvalidInput for others."""
    if ":/" not in url:
        return ""
    scheme, _, place = url.partition("://")
    if scheme not in SCHEMES or not place.strip("/"):
        raise InvalidInput(
            f"checkpoints cannot be kept in {url}", field="--checkpoints",
            remedy="name a folder, or a bucket: s3://BUCKET/PREFIX",
        )  # fmt: skip
    return url.rstrip("/")


def jobs_with_checkpoints(root: str) -> list[str]:
    """The jobs that ever saved one. Raises `StoreError` when the bucket cannot be read."""
    return RegionStore("checkpoints", root).folders("")


def job_store(root: str, job: str) -> RegionStore:
    """The store of a job's checkpoints."""
    return RegionStore("checkpoints", f"{root}/{job}")


class JobCheckpoints:
    """The checkpoints of one job; safe to use from any thread."""

    def __init__(self, store: RegionStore) -> None:
        self._store = store
        self._idle: frozenset[str] = frozenset()
        """Objects that no checkpoint named when the last one was published."""

    # --- restoring --------------------------------------------------------------------------------

    def latest(self) -> SavedCheckpoint | None:
        """The last that was saved, by any attempt; None if none was."""
        epochs = self._epochs()
        return self._store.load(f"saved/{max(epochs)}.json", SavedCheckpoint) if epochs else None

    def contents(self) -> Contents:
        """The pieces of the last checkpoint, tables among them."""
        saved = self.latest()
        tables = () if saved is None else saved.tables
        pieces = {piece for table in tables for piece in table}
        for table in tables:
            pieces |= pieces_of(self.read_table(table))
        objects = tuple(Readable(sha, size, sha) for sha, size in sorted(pieces))
        key = hashlib.sha256(msgspec.json.encode(objects)).hexdigest()[:32]
        return Contents(key, sum(one.size_bytes for one in objects), objects)

    def urls(self, names: Iterable[str]) -> list[str]:
        """URLs to read pieces by. They are secrets."""
        return self._store.signed("GET", [f"objects/{name}" for name in names], SIGNED_FOR_S)

    def read(self, name: str, start: int, end: int, version: str) -> bytes:
        """Some bytes of a piece. Raises `StoreError`."""
        return bytes(self._store.read(_key(name), start, end, version))

    def read_table(self, table: Iterable[Piece]) -> list[FileRow]:
        """The rows of a table. Raises `StoreError`."""
        text = b"".join(self.read(sha, 0, size, "") for sha, size in table)
        try:
            return msgspec.json.decode(text, type=list[FileRow])
        except msgspec.DecodeError as error:
            raise StoreError(f"a table of a checkpoint is damaged: {error}") from None

    # --- saving -----------------------------------------------------------------------------------

    def url_to_write(self, sha256: str) -> str:
        """A URL to write a piece by. It is a secret."""
        return self._store.signed("PUT", [_key(sha256)], SIGNED_FOR_S)[0]

    def write(self, sha256: str, data: bytes) -> None:
        """Write a piece. Raises `StoreError` if it is not what it says."""
        if hashlib.sha256(data).hexdigest() != sha256:
            raise StoreError("a piece of a checkpoint was damaged on its way")
        self._store.write(_key(sha256), data)

    def missing(self, table: Iterable[Piece]) -> list[str]:
        """Which pieces of a table, or of the files in it, are not in the store as they should."""
        there = self._there()
        first = [sha for sha, size in table if there.get(sha) != size]
        if first:
            return first
        return sorted(
            sha for sha, size in pieces_of(self.read_table(table)) if there.get(sha) != size
        )

    def publish(self, saved: SavedCheckpoint) -> None:
        """Make this the last checkpoint. All of its pieces must be there.

        Then what no checkpoint names any more is deleted, unless it is new: other hosts may be
        writing what they name next.
        """
        self._store.save(f"saved/{saved.epoch}.json", saved)
        for epoch in self._epochs():
            if epoch < saved.epoch:
                self._store.delete(f"saved/{epoch}.json")
        named = {sha for table in saved.tables for sha, _ in table}
        for table in saved.tables:
            named |= {sha for sha, _ in pieces_of(self.read_table(table))}
        idle = frozenset(self._there()) - named
        for sha in sorted(idle & self._idle):
            self._store.delete(_key(sha))
        self._idle = idle

    def _there(self) -> dict[str, int]:
        return {one.name: one.size_bytes for one in self._store.objects("objects")}

    def _epochs(self) -> list[int]:
        names = [_EPOCH.fullmatch(one.name) for one in self._store.objects("saved")]
        return [int(name[1]) for name in names if name is not None]


def pieces_of(rows: Iterable[FileRow]) -> set[Piece]:
    """What the files of a table consist of."""
    return {piece for row in rows for piece in row.pieces}


def _key(sha256: str) -> str:
    if not _SHA256.fullmatch(sha256):
        raise StoreError(f"{sha256!r} is no checksum")
    return f"objects/{sha256}"
