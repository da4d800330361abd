"""Replicas in a store: a dataset's folder, whether all of it is there, what is near it."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import msgspec

from topmast.adapters.objects import layout
from topmast.adapters.objects.manifest import Manifest, Mark, StagingLog
from topmast.adapters.objects.region import Missing, RegionStore, StoreError
from topmast.model.errors import Conflict


@dataclass(frozen=True)
class DatasetFolder:
    """A dataset's folder in a store."""

    store: RegionStore
    path: str
    """Empty for the whole store."""

    def key(self, name: str) -> str:
        """The key of one of its objects."""
        return f"{self.path}/{name}" if self.path else name

    def __str__(self) -> str:
        return f"{self.store.region}: {self.path}" if self.path else self.store.region


def load_manifest(place: DatasetFolder) -> Manifest | None:
    """The manifest of a replica; None if there is none."""
    try:
        return place.store.load(layout.manifest(place.path), Manifest)
    except msgspec.DecodeError as error:
        raise StoreError(f"{place}: the manifest is damaged: {error}") from error


def measure(place: DatasetFolder) -> int:
    """Bytes of a dataset's objects; 0 when it is incomplete, also if it becomes so meanwhile."""
    store, path = place.store, place.path
    while True:
        manifest = store.version(layout.manifest(path))
        if is_incomplete(store, path):
            return 0
        try:
            size_bytes = sum(item.size_bytes for item in store.objects(path))
        except Missing:
            continue  # deleted while it was listed
        if is_incomplete(store, path):
            return 0
        if manifest == store.version(layout.manifest(path)):
            return size_bytes


def is_incomplete(store: RegionStore, path: str) -> bool:
    """Whether objects are being moved to ``path`` or deleted there, or were when a process died."""
    marks = [layout.placing(path), *map(layout.deleting, (path, *layout.above(path)))]
    return any(store.version(mark) is not None for mark in marks)


def neighbour_of(store: RegionStore, path: str) -> str:
    """The path of a replica in a folder above or below; empty if there is none."""
    for folder in layout.above(path):
        if any(store.version(mark) is not None for mark in layout.signs(folder)):
            return folder
    return next(iter(_below(store, path)), "")


def _below(store: RegionStore, path: str) -> list[str]:
    """The paths of replicas inside the folder of another, those placed or deleted now included."""
    found = [
        f"{path}/{item.name.removesuffix('.json')}"
        for folder in layout.sign_folders(path)
        if store.version(folder) is None  # else it is the sign of a dataset called PATH.json
        for item in store.objects(folder)
    ]
    return sorted(found)


def forget_replica(
    store: RegionStore, path: str, *, keep_copy: str = "", halt: threading.Event | None = None
) -> None:
    """Delete a replica: invisible first, then its objects and what copies to it left behind.

    Raises `Halted` soon after ``halt`` is set; the mark stays, and says that there is more to do.
    Raises `Conflict` when another replica lies inside: it would go with this one.
    """
    inside = next(iter(_below(store, path)), "")
    if inside:
        raise Conflict(
            f"{store.region}: {path} is not deleted: another dataset is inside, at {inside}"
        )
    store.save(layout.deleting(path), Mark(path))
    store.delete(layout.manifest(path))
    store.delete_all(path, halt)
    for copy in store.folders(layout.COPIES):
        try:
            log = store.load(f"{layout.COPIES}/{copy}/log.json", StagingLog)
        except msgspec.DecodeError:
            continue
        if log is not None and log.path == path and copy != keep_copy:
            store.delete_all(f"{layout.COPIES}/{copy}", halt)
    store.delete(layout.placing(path))
    store.delete(layout.deleting(path))
