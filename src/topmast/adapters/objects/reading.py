"""A replica as hosts read it that have no library for stores: what it consists of, byte by byte."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from topmast.adapters.objects.region import Missing, RegionStore, StoreError
from topmast.adapters.objects.replica import DatasetFolder, is_incomplete, load_manifest

SIGNED_FOR_S = 3600.0


class Readable(Struct, frozen=True):
    """One object of a replica."""

    name: str
    size_bytes: int
    sha256: str = ""
    """Empty where no manifest states it."""
    version: str = ""
    """What it must be when it is read, as the store tells it; empty where the checksum does."""


class Contents(Struct, frozen=True):
    """What a complete replica consists of, by name."""

    key: str
    """The same for the same content, and for no other."""
    size_bytes: int
    objects: tuple[Readable, ...]


class ReplicaReader:
    """Reads the replica at a path of a store; safe to use from any thread."""

    def __init__(self, store: RegionStore, path: str) -> None:
        self._store = store
        self._path = path

    def contents(self) -> Contents:
        """List it. O(objects). Raises `StoreError` when it is not there, or not all of it."""
        place = DatasetFolder(self._store, self._path)
        if is_incomplete(self._store, self._path):
            raise StoreError(f"{place}: incomplete, being copied or deleted")
        manifest = load_manifest(place)
        if manifest is not None:
            objects = [Readable(one.name, one.size_bytes, one.sha256) for one in manifest.objects]
        else:
            found = self._store.objects(self._path)
            objects = [Readable(one.name, one.size_bytes, "", one.version) for one in found]
        if not objects:
            raise Missing(f"{place}: nothing is there")
        digest = hashlib.sha256(b"" if manifest is not None else self._store.place.encode())
        digest.update(msgspec.json.encode(objects))
        size_bytes = sum(one.size_bytes for one in objects)
        return Contents(digest.hexdigest()[:32], size_bytes, tuple(objects))

    def urls(self, names: Sequence[str]) -> list[str]:
        """URLs to read objects by, for `SIGNED_FOR_S`. They are secrets."""
        keys = [f"{self._path}/{name}" for name in names]
        return self._store.signed("GET", keys, SIGNED_FOR_S)

    def read(self, name: str, start: int, end: int, version: str) -> bytes:
        """Some bytes of an object. Raises `StoreError`."""
        return bytes(self._store.read(f"{self._path}/{name}", start, end, version))
