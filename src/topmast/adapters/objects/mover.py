"""`ports.Mover` over object stores: copies and deletions in the background."""

from __future__ import annotations

import stat
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError
from functools import partial
from pathlib import Path

import structlog

from topmast.adapters.objects import layout
from topmast.adapters.objects.fence import Term
from topmast.adapters.objects.lanes import Lanes
from topmast.adapters.objects.region import RegionStore
from topmast.adapters.objects.replica import DatasetFolder, forget_replica, measure
from topmast.adapters.objects.throttle import Halt, Halted
from topmast.adapters.objects.transfer import Transfer
from topmast.model.dataset import Paths
from topmast.model.errors import Conflict, InvalidInput, NotFound, TopmastError, Unavailable
from topmast.model.files.source import kind_of_file
from topmast.model.messages import (
    CopyDone,
    CopyFailed,
    CopyProgress,
    DeletionFailed,
    Message,
    ReplicaDeleted,
    StartCopy,
)
from topmast.ports import Clock, Mover, Post, Replica

COPIES_AT_ONCE = 16
PROGRESS_EVERY_S = 0.2
ERROR_LENGTH_MAX = 500

_log = structlog.get_logger(__name__)


class StoreMover(Mover):
    """Moves datasets between the stores of regions; safe to use from any thread.

    ``regions`` maps a region to a directory or URL. ``parallel`` objects of one copy are moved at a
    time. An order without a rate uses ``default_bytes_per_s`` (None: no limit).
    No store is changed while ``leads`` says that another process may lead, nor once a leader of a
    later ``term`` has changed it (None: there is only one process).
    """

    def __init__(
        self,
        regions: Mapping[str, str],
        *,
        clock: Clock,
        parallel: int = 4,
        default_bytes_per_s: float | None = None,
        leads: Callable[[], bool] = lambda: True,
        term: Term | None = None,
    ) -> None:
        assert parallel >= 1
        self._leads = leads
        self._term = term
        self._stores = _stores_of(regions, {}, term)
        self._clock = clock
        self._parallel = parallel
        self._default_bytes_per_s = default_bytes_per_s
        self._post_message: Post | None = None
        self._lanes = Lanes(COPIES_AT_ONCE, "mover")
        self._lock = threading.Lock()
        self._running: dict[str, tuple[_Lane, Transfer]] = {}
        self._closing = Halt(leads)

    def open(self, post: Post) -> None:
        """Begin; continues deletions that an earlier process did not finish."""
        self._post_message = post
        for store in self._stores.values():
            self._lanes.submit(store.region, partial(self._resume_deletions, store))

    def set_regions(self, regions: Mapping[str, str]) -> None:
        """Have the stores of these regions and no others; no copies are under way to those that go.

        Raises InvalidInput as the constructor does, and changes nothing then.
        """
        known, self._stores = self._stores, _stores_of(regions, self._stores, self._term)
        for name, store in self._stores.items():
            if name not in known:
                self._lanes.submit(name, partial(self._resume_deletions, store))

    def close(self) -> None:
        """Stop soon; unfinished copies resume at the next start."""
        with self._lock:
            self._closing.set()
            for _lane, transfer in self._running.values():
                transfer.halt()
        self._lanes.close()
        for store in self._stores.values():
            store.fence.close()

    # --- copies -------------------------------------------------------------------------------

    def start_copy(self, order: StartCopy) -> None:
        """Copy in the background; resumes what an earlier run of the same copy left. O(1)."""
        copy = order.copy
        try:
            path = layout.dataset_path(order.path)
            source = DatasetFolder(self._store(copy.source), path)
            target = DatasetFolder(self._store(copy.target), path)
            rate = order.bytes_per_s if order.bytes_per_s > 0 else self._default_bytes_per_s
            transfer = self._transfer(
                copy.id,
                source,
                target,
                bytes_per_s=rate,
                on_progress=_Progress(copy.id, self._post),
            )
            self._begin(copy.id, (copy.target, path), transfer)
        except _AlreadyRunning:
            return
        except TopmastError as error:
            self._post(CopyFailed(copy.id, _one_line(error)))
            return
        self._lanes.submit((copy.target, path), partial(self._run, copy.id, transfer))

    def check_source(self, region: str, source: str) -> Path:
        """The local directory that a dataset in ``region`` may be brought from. Blocks.

        Raises InvalidInput for what is none, or belongs to the region's store: what lies there has
        an owner, or will be deleted. A region without a store has nothing to say.
        """
        folder = local_folder(source)
        store = self._stores.get(region)
        found = store.overlap(folder) if store is not None else ""
        if found:
            inside = "leave source out, and give the path in the store"
            remedy = "name a folder outside of it" if found == "contains" else inside
            message = f"{source!r} {found} the store of region '{region}'"
            raise InvalidInput(message, field="source", remedy=remedy)
        return folder

    def put_directory(self, region: str, path: str, source: Path, *, dry_run: bool = False) -> int:
        """Upload a local directory as a dataset; returns its bytes. Blocks.

        Raises `Conflict` when something else is at ``path``. A repetition of an upload that was
        broken off resumes it. A ``dry_run`` ends after the checks.
        """
        path = layout.dataset_path(path)
        target = DatasetFolder(self._store(region), path)
        source = self.check_source(region, str(source))
        upload = layout.upload_id(region, path)
        files = DatasetFolder(RegionStore(str(source), str(source)), "")
        transfer = self._transfer(upload, files, target, replace=False)
        self._begin(upload, (region, path), transfer)
        try:
            if dry_run:  # here: it waits for no thread that copies
                return transfer.check()
            result = self._lanes.submit((region, path), transfer.run).result()
        except (Halted, CancelledError) as error:
            raise Unavailable(f"the upload to {target} was broken off") from error
        finally:
            self._end(upload)
        assert isinstance(result, int)
        return result

    def _transfer(
        self,
        copy: str,
        source: DatasetFolder,
        target: DatasetFolder,
        *,
        bytes_per_s: float | None = None,
        replace: bool = True,
        on_progress: Callable[[int], None] = lambda _bytes: None,
    ) -> Transfer:
        return Transfer(
            copy,
            source,
            target,
            bytes_per_s=bytes_per_s,
            parallel=self._parallel,
            replace=replace,
            now=self._clock.now,
            on_progress=on_progress,
            halt=Halt(self._leads),
        )

    def _begin(self, copy: str, lane: _Lane, transfer: Transfer) -> None:
        with self._lock:
            if self._closing.told():
                raise Unavailable("the mover is closed")
            if copy in self._running:
                raise _AlreadyRunning(f"{lane[0]}: {lane[1]} is already being written")
            self._running[copy] = (lane, transfer)

    def _end(self, copy: str) -> None:
        with self._lock:
            del self._running[copy]

    def _run(self, copy: str, transfer: Transfer) -> None:
        """One copy from beginning to end; whatever comes of it is posted."""
        news: Message | None = None
        try:
            news = CopyDone(copy, transfer.run())
        except Halted:
            if transfer.dropped:
                news = CopyFailed(copy, "the replica was dropped while it was copied")
        except TopmastError as error:
            news = CopyFailed(copy, _one_line(error))
        except Exception as error:
            _log.exception("copy failed", copy=copy)
            news = CopyFailed(copy, _one_line(error) or type(error).__name__)
        self._end(copy)
        if news is not None:
            self._post(news)

    # --- deletions ----------------------------------------------------------------------------

    def delete_replica(self, dataset: str, region: str, path: str) -> None:
        """Delete a dropped replica in the background; a copy on its way there is given up.

        What no store can hold is given up at once: it would never be deleted.
        """
        try:
            store, folder = self._store(region), layout.dataset_path(path)
        except TopmastError as error:
            _log.error("replica not deleted", dataset=dataset, region=region, error=str(error))
            self._post(ReplicaDeleted(region, path))
            return
        with self._lock:
            if self._closing.told():
                return
            for lane, transfer in self._running.values():
                if lane == (region, folder):
                    transfer.halt(dropped=True)
        self._lanes.submit((region, folder), partial(self._delete_and_post, store, path))

    def _delete_and_post(self, store: RegionStore, path: str) -> None:
        """One deletion from beginning to end; the next start orders an interrupted one again."""
        error = self._delete(store, layout.dataset_path(path))
        if error is None:
            self._post(ReplicaDeleted(store.region, path))
        elif not isinstance(error, Halted):
            self._post(DeletionFailed(store.region, path, _one_line(error)))

    def _delete(self, store: RegionStore, path: str) -> Exception | None:
        """Delete; returns what went wrong."""
        try:
            forget_replica(store, path, halt=self._closing)
        except Halted as error:
            _log.info("deletion broken off", region=store.region, path=path)
            return error
        except TopmastError as error:
            _log.error("replica not deleted", region=store.region, path=path, error=str(error))
            return error
        except Exception as error:
            _log.exception("replica not deleted", region=store.region, path=path, error=str(error))
            return error
        _log.info("replica deleted", region=store.region, path=path)
        return None

    def _resume_deletions(self, store: RegionStore) -> None:
        try:
            marks = store.objects(layout.DELETING)
        except TopmastError as error:
            _log.error("store not readable", region=store.region, error=str(error))
            return
        for mark in marks:
            path = mark.name.removesuffix(".json")
            self._lanes.submit((store.region, path), partial(self._resume_deletion, store, path))

    def _resume_deletion(self, store: RegionStore, path: str) -> None:
        """A copy may have come first, and cleared the place itself."""
        if store.version(layout.deleting(path)) is not None:
            self._delete(store, path)

    # --- questions ----------------------------------------------------------------------------

    def measure(self, region: str, path: str) -> int:
        """Bytes of the objects under ``path``; 0 when nothing is there, or not all of it yet."""
        return measure(DatasetFolder(self._store(region), layout.dataset_path(path)))

    def replica(self, region: str, path: str) -> Replica:
        """Where the region's store has the dataset at ``path``. Raises `StoreError` for a link."""
        path = layout.dataset_path(path)
        return Replica(self._store(region).checked(path), path)

    def _store(self, region: str) -> RegionStore:
        store = self._stores.get(region)
        if store is None:
            raise NotFound(f"region {region} has no store")
        return store

    def _post(self, message: Message) -> None:
        assert self._post_message is not None, "open() comes first"
        self._post_message(message)


_Lane = tuple[str, str]


class _AlreadyRunning(Conflict):
    """The same copy is on its way."""


class _Progress:
    """Posts the bytes of a copy, not more often than people can read."""

    def __init__(self, copy: str, post: Post) -> None:
        self._copy = copy
        self._post = post
        self._posted_bytes = 0
        self._due_s = 0.0

    def __call__(self, size_bytes: int) -> None:
        now_s = time.monotonic()
        if size_bytes != self._posted_bytes and now_s >= self._due_s:
            self._posted_bytes = size_bytes
            self._due_s = now_s + PROGRESS_EVERY_S
            self._post(CopyProgress(self._copy, size_bytes))


def local_folder(text: str) -> Path:
    """A folder of this machine, as a request names it. Raises InvalidInput. Blocks."""
    folder = Path(text)
    if not folder.is_absolute():
        message, remedy = f"{text!r} is a relative path", "give an absolute path"
        raise InvalidInput(message, field="source", remedy=remedy)
    try:
        mode = folder.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        message, remedy = f"no folder {text!r} on the server's machine", "check the path"
        raise InvalidInput(message, field="source", remedy=remedy) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the path is not valid"
        message, remedy = f"{text!r} cannot be read: {reason}", "name another folder"
        raise InvalidInput(message, field="source", remedy=remedy) from None
    if not stat.S_ISDIR(mode):
        message, remedy = f"{text!r} is {kind_of_file(mode)}", "name a folder"
        raise InvalidInput(message, field="source", remedy=remedy)
    return folder


def _stores_of(
    regions: Mapping[str, str], known: Mapping[str, RegionStore], term: Term | None
) -> dict[str, RegionStore]:
    """The store of each region, those ``known`` as they are. Raises InvalidInput."""
    stores = {name: known.get(name) or RegionStore(name, at, term) for name, at in regions.items()}
    for store in stores.values():
        store.require_client()
    _require_own_stores(stores.values())
    return stores


def _require_own_stores(stores: Iterable[RegionStore]) -> None:
    """Refuse regions with equal or nested stores: a drop in one would be felt in both."""
    paths = Paths()
    for store in stores:
        fault = paths.fault("", store.place)
        if fault:
            raise InvalidInput(
                fault.replace("dataset", "the store of region"),
                field=f"regions.{store.region}.store",
                remedy="give each region a store of its own",
            )  # fmt: skip
        paths.add(store.region, store.place)


def _one_line(error: BaseException) -> str:
    # A name of a file need not be text: what of it is not is shown as a question mark.
    text = str(error).encode(errors="replace").decode()
    return " ".join(text.split())[:ERROR_LENGTH_MAX]
