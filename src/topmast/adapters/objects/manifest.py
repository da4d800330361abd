"""The small files the mover keeps in a store, all JSON."""

from __future__ import annotations

import msgspec
from msgspec import Struct


class Entry(Struct, frozen=True, omit_defaults=True):
    """One object of a dataset."""

    name: str
    size_bytes: int
    sha256: str
    source_version: str = ""
    """That of the object it was copied from."""


class Manifest(Struct, frozen=True):
    """What a complete replica consists of, by name."""

    path: str
    made_at_s: float
    size_bytes: int
    objects: tuple[Entry, ...]
    format: int = 1


class StagingLog(Struct, frozen=True):
    """Objects of a copy that are staged and verified."""

    source: str
    path: str
    objects: tuple[Entry, ...]


class Mark(Struct, frozen=True):
    """The work that is going on at a path."""

    path: str
    copy: str = ""
    """The copy; empty for a deletion."""


encode = msgspec.json.Encoder().encode
"""Any of these to JSON."""
