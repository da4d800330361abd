"""Datasets at run time: replicas, copies in flight, deletions not done yet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

from topmast.model.units import show


def dataset_variable(name: str) -> str:
    """The environment variable by which a task finds a dataset."""
    return f"TOPMAST_DATASET_{re.sub('[^A-Za-z0-9]', '_', name).upper()}"


class ReplicaState(StrEnum):
    """Whether a region's copy may be read."""

    COPYING = "copying"
    COMPLETE = "complete"


class Copy(Struct, frozen=True):
    """A copy of a dataset that is under way."""

    id: str
    dataset: str
    source: str
    target: str
    bytes: int
    cause: str
    """Why it was requested: a person's name, a job's id, or a rule."""
    begun_s: float


class Deletion(Struct, frozen=True):
    """The files of a replica that is no more, until the mover has deleted them."""

    dataset: str
    region: str
    path: str
    bytes: int


def overlap(path: str, other: str) -> bool:
    """Whether two folders are the same, or one lies inside the other."""
    return path == other or path.startswith(f"{other}/") or other.startswith(f"{path}/")


class Paths:
    """The folders of datasets within the stores: no two may be the same, or one inside the other.

    Whatever deletes or replaces a dataset deals with a whole folder, so each folder has one owner.
    """

    def __init__(self) -> None:
        self._at: dict[str, dict[str, None]] = {}
        self._at_or_below: dict[str, dict[str, None]] = {}

    def add(self, name: str, path: str) -> None:
        """Enter a dataset. O(depth of the path)."""
        self._at.setdefault(path, {})[name] = None
        for folder in (path, *_above(path)):
            self._at_or_below.setdefault(folder, {})[name] = None

    def remove(self, name: str, path: str) -> None:
        """Take a dataset out. O(depth of the path)."""
        for names, folders in ((self._at, (path,)), (self._at_or_below, (path, *_above(path)))):
            for folder in folders:
                names[folder].pop(name)
                if not names[folder]:
                    del names[folder]

    def fault(self, name: str, path: str) -> str:
        """Why ``name`` may not lie at ``path``; empty if it may. O(depth of the path)."""
        for other in self._at.get(path, ()):
            if other != name:
                return f"the path {show(path)} is that of dataset '{other}'"
        for other in self._at_or_below.get(path, ()):
            if other != name:
                return f"the path {show(path)} contains dataset '{other}'"
        for folder in _above(path):
            for other in self._at.get(folder, ()):
                if other != name:
                    return f"the path {show(path)} lies inside dataset '{other}', at {show(folder)}"
        return ""


def _above(path: str) -> Iterator[str]:
    """The folders that a path lies in, the nearest first."""
    folder = path.rpartition("/")[0]
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]
