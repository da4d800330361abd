"""One dataset on its way from one store to another: plan, stage, verify, place.

What a reader of the target sees: nothing, until the manifest is there, and then everything.
What a crash leaves: staged objects and a log of those verified, from which `run` goes on.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import structlog
from msgspec import Struct

from topmast.adapters.objects import layout
from topmast.adapters.objects.manifest import Entry, Manifest, Mark, StagingLog
from topmast.adapters.objects.prefetch import one_ahead
from topmast.adapters.objects.region import Changed, Found, Missing, StoreError
from topmast.adapters.objects.replica import (
    DatasetFolder,
    forget_replica,
    is_incomplete,
    load_manifest,
    neighbour_of,
)
from topmast.adapters.objects.throttle import MAX_SLICE_BYTES, Halted, Throttle
from topmast.model.errors import Conflict, InvalidInput

ATTEMPTS_PER_OBJECT = 3
TICK_S = 0.1
LOG_EVERY_S = 1.0
LOG_SHARE_OF_TIME = 0.05
CHECK_FILES_MAX = 200_000
"""So many files a check of what would be copied looks at, and so long."""
CHECK_FOR_S = 10.0

_log = structlog.get_logger(__name__)


class Wanted(Struct, frozen=True):
    """An object to copy."""

    found: Found
    sha256: str
    """Empty if the source has no manifest that states it."""


class _Bound:
    """Ends a look at a directory that would take too long; called for each entry of it."""

    def __init__(self, heed: Callable[[], None]) -> None:
        self._heed = heed
        self._seen = 0
        self._until_s = time.monotonic() + CHECK_FOR_S

    def __call__(self) -> None:
        self._seen += 1
        self._heed()
        # Each file is met twice: as a name, and when its size is read.
        if self._seen > 2 * CHECK_FILES_MAX or time.monotonic() > self._until_s:
            raise InvalidInput(
                f"too large for a dry run, which looks at {CHECK_FILES_MAX:,} files and for "
                f"{CHECK_FOR_S:g} s at most",
                field="source",
                remedy="try a smaller folder, or add it without a dry run",
            )


class Transfer:
    """Copies one dataset; `run` returns its bytes, or raises and says why not.

    ``replace``: a complete replica with other content at the target makes way.
    """

    def __init__(
        self,
        copy: str,
        source: DatasetFolder,
        target: DatasetFolder,
        *,
        bytes_per_s: float | None,
        parallel: int,
        replace: bool,
        now: Callable[[], float],
        on_progress: Callable[[int], None],
        halt: threading.Event,
    ) -> None:
        self.copied_bytes = 0
        self.resumed_bytes = 0
        self.dropped = False
        self._copy = copy
        self._source = source
        self._target = target
        self._parallel = parallel
        self._replace = replace
        self._now = now
        self._on_progress = on_progress
        self._staging = layout.staging(copy)
        self._halt = halt
        self._throttle = Throttle(bytes_per_s, self._halt)
        self._lock = threading.Lock()
        self._earlier: dict[str, Entry] = {}
        self._done: dict[str, Entry] = {}
        self._errors: list[BaseException] = []
        self._log_due_s = 0.0
        self._logged = 0

    def halt(self, *, dropped: bool = False) -> None:
        """Make `run` raise `Halted` soon; what is staged stays for the next run."""
        self.dropped = self.dropped or dropped
        self._halt.set()

    def check(self) -> int:
        """The bytes that `run` would copy; raises what that raises before it copies. O(objects).

        Changes nothing. Raises InvalidInput for a source with too many files to be looked at now.
        """
        wanted = self._plan(_Bound(self._heed))
        size_bytes = sum(item.found.size_bytes for item in wanted)
        if not self._is_complete(wanted):
            self._require_claimable()
            self._earlier = self._logged_before() or {}
            self._require_room(size_bytes)
        return size_bytes

    def _heed(self) -> None:
        if self._halt.is_set():
            raise Halted

    def run(self) -> int:
        """Copy; O(bytes), in memory O(objects + parallel slices)."""
        wanted = self._plan(self._heed)
        size_bytes = sum(item.found.size_bytes for item in wanted)
        if self._is_complete(wanted):
            self._target.store.delete_all(self._staging)
            return size_bytes
        self._claim()
        try:
            self._load_log()
            self._require_room(size_bytes)
            self._stage_all(wanted)
            self._require_unchanged(wanted)
            self._place(size_bytes)
        except Halted:
            raise
        except BaseException:
            self._clean_up()
            raise
        _log.info(
            "dataset copied",
            copy=self._copy,
            target=str(self._target),
            bytes=size_bytes,
            copied_bytes=self.copied_bytes,
            resumed_bytes=self.resumed_bytes,
        )
        return size_bytes

    # --- 1. what is to be copied, and whether it may be -------------------------------------------

    def _plan(self, step: Callable[[], None]) -> list[Wanted]:
        """What the source holds, checked against its manifest where there is one.

        ``step`` is called for each entry, and may end it.
        """
        source = self._source
        if source.path and is_incomplete(source.store, source.path):
            raise StoreError(f"{source}: incomplete, being copied or deleted")
        found = source.store.objects(source.path, step)
        if not found:
            raise Missing(f"{source}: nothing is there")
        manifest = load_manifest(source) if source.path else None
        known = {entry.name: entry for entry in manifest.objects} if manifest else {}
        missing = known.keys() - {item.name for item in found}
        if missing:
            raise Missing(f"{source}/{min(missing)}: not found, though in the manifest")
        for item in found:
            entry = known.get(item.name)
            if entry and entry.size_bytes != item.size_bytes:
                raise StoreError(
                    f"{source}/{item.name}: {item.size_bytes} bytes, but {entry.size_bytes} in the "
                    "manifest: the source is damaged"
                )
        return [
            Wanted(item, known[item.name].sha256 if item.name in known else "") for item in found
        ]

    def _is_complete(self, wanted: list[Wanted]) -> bool:
        """Whether the target has everything already, with a manifest that confirms it."""
        target = self._target
        if is_incomplete(target.store, target.path):
            return False
        manifest = load_manifest(target)
        if manifest is None or len(manifest.objects) != len(wanted):
            return False
        for entry, item in zip(manifest.objects, wanted, strict=True):
            found = item.found
            if (entry.name, entry.size_bytes) != (found.name, found.size_bytes):
                return False
            if entry.sha256 != item.sha256 and entry.source_version != found.version:
                return False
        there = [(item.name, item.size_bytes) for item in target.store.objects(target.path)]
        return there == [(entry.name, entry.size_bytes) for entry in manifest.objects]

    def _claim(self) -> None:
        """Take the target; what a broken copy left there goes, unless this one goes on with it."""
        target = self._target
        if self._require_claimable():
            deleting = target.store.version(layout.deleting(target.path)) is not None
            if deleting or self._placing_copy() != self._copy:
                forget_replica(target.store, target.path, keep_copy=self._copy, halt=self._halt)

    def _require_claimable(self) -> bool:
        """Refuse a target that holds what the mover did not put there, or may not replace.

        Says whether it holds something incomplete. Changes nothing.
        """
        target = self._target
        neighbour = neighbour_of(target.store, target.path)
        if neighbour:
            raise Conflict(f"{target}: another dataset is at {neighbour}, above or below it")
        if is_incomplete(target.store, target.path):
            return True
        if load_manifest(target) is not None:
            if not self._replace:
                raise Conflict(
                    f"{target}: another dataset is there: enter it without a source, "
                    "or choose another path"
                )
            return False
        there = target.store.objects(target.path)
        if there:
            raise Conflict(
                f"{target}: already holds objects (such as {there[0].name}): "
                "delete them, or enter them as a replica"
            )
        return False

    def _load_log(self) -> None:
        """Learn what an earlier run of this copy has staged, or begin a log."""
        earlier = self._logged_before()
        if earlier is not None:
            self._earlier = earlier
        else:
            place = (self._source.store.region, self._target.path)
            self._target.store.delete_all(self._staging)
            self._target.store.save(f"{self._staging}/log.json", StagingLog(*place, ()))

    def _logged_before(self) -> dict[str, Entry] | None:
        """What an earlier run of this copy has staged, by name; None if there was none."""
        try:
            log = self._target.store.load(f"{self._staging}/log.json", StagingLog)
        except msgspec.DecodeError:
            return None
        if log is None or (log.source, log.path) != (self._source.store.region, self._target.path):
            return None
        return {entry.name: entry for entry in log.objects}

    def _require_room(self, size_bytes: int) -> None:
        needed_bytes = size_bytes - sum(entry.size_bytes for entry in self._earlier.values())
        free_bytes = self._target.store.free_bytes()
        if free_bytes is not None and needed_bytes > free_bytes:
            raise StoreError(
                f"{self._target}: the disk is full: {needed_bytes} bytes are needed, "
                f"{free_bytes} are free"
            )

    # --- 2. stage and verify ----------------------------------------------------------------------

    def _stage_all(self, wanted: list[Wanted]) -> None:
        """Stage every object, several at once; the log on disk follows."""
        work = iter(wanted)
        threads = [
            threading.Thread(target=self._stage_some, args=(work,), daemon=True)
            for _ in range(min(self._parallel, len(wanted)))
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(TICK_S)
                    self._on_progress(self.copied_bytes + self.resumed_bytes)
                    self._save_log(soon=True)
        except BaseException:
            self._halt.set()
            raise
        finally:
            for thread in threads:
                thread.join()
        if self._errors:
            if isinstance(self._errors[0], Halted):
                self._save_log(soon=False)
            raise self._errors[0]

    def _stage_some(self, work: Iterator[Wanted]) -> None:
        while True:
            with self._lock:
                item = None if self._errors else next(work, None)
            if item is None:
                return
            try:
                entry = self._resume(item) or self._stage(item)
            except BaseException as error:
                with self._lock:
                    self._errors.append(error)
                self._halt.set()
                return
            with self._lock:
                self._done[entry.name] = entry

    def _resume(self, item: Wanted) -> Entry | None:
        """What an earlier run staged of this very version, if it can still be read back."""
        found = item.found
        entry = self._earlier.get(found.name)
        if entry is None or item.sha256 not in ("", entry.sha256):
            return None
        if (entry.size_bytes, entry.source_version) != (found.size_bytes, found.version):
            return None
        for key in (self._staged_key(entry.name), self._target.key(entry.name)):
            if self._has(key, entry):
                with self._lock:
                    self.resumed_bytes += entry.size_bytes
                return entry
        return None

    def _has(self, key: str, entry: Entry) -> bool:
        try:
            return self._sha256(key, entry.size_bytes) == entry.sha256
        except (Changed, Missing):
            return False

    def _stage(self, item: Wanted) -> Entry:
        """Copy one object, read it back, compare; again if the two differ."""
        found = item.found
        key = self._staged_key(found.name)
        for _ in range(ATTEMPTS_PER_OBJECT):
            sha256 = self._copy_object(item, key)
            if item.sha256 and sha256 != item.sha256:
                raise StoreError(
                    f"{self._source}/{found.name}: differs from its checksum in the manifest: "
                    "the source is damaged"
                )
            self._target.store.seal(key)
            if self._has(key, Entry(found.name, found.size_bytes, sha256)):
                return Entry(found.name, found.size_bytes, sha256, found.version)
            _log.warning("object damaged on arrival", copy=self._copy, key=key)
            with self._lock:
                self.copied_bytes -= found.size_bytes
        raise StoreError(
            f"{self._target.store.region}: {key}: damaged {ATTEMPTS_PER_OBJECT} times on arrival"
        )

    def _copy_object(self, item: Wanted, key: str) -> str:
        """Write the object's bytes to ``key``; returns the checksum of what was read."""
        digest = hashlib.sha256()
        size_bytes = item.found.size_bytes
        if size_bytes <= self._throttle.slice_bytes:
            data: Any = b"".join(bytes(part) for part in self._slices(item))
            digest.update(data)
            self._target.store.write(key, data)
            return digest.hexdigest()
        with self._target.store.writer(key, size_bytes) as writer:
            for data in one_ahead(self._slices(item)):
                digest.update(data)
                writer.write(data)
        return digest.hexdigest()

    def _slices(self, item: Wanted) -> Iterator[Any]:
        """The source's bytes, at the rate allowed."""
        found = item.found
        key = self._source.key(found.name)
        step = self._throttle.slice_bytes
        for start in range(0, found.size_bytes, step):
            end = min(start + step, found.size_bytes)
            self._throttle.take(end - start)
            yield self._source.store.read(key, start, end, found.version if found.has_etag else "")
            with self._lock:
                self.copied_bytes += end - start

    def _sha256(self, key: str, size_bytes: int) -> str:
        """The checksum of an object at the target, read back."""
        digest = hashlib.sha256()
        store = self._target.store
        slices = self._slices_back(key, size_bytes)
        for data in slices if size_bytes <= MAX_SLICE_BYTES else one_ahead(slices):
            digest.update(data)
        if not size_bytes and store.version(key) is None:
            raise Missing(f"{store.region}: {key}: not found")
        return digest.hexdigest()

    def _slices_back(self, key: str, size_bytes: int) -> Iterator[Any]:
        for start in range(0, size_bytes, MAX_SLICE_BYTES):
            if self._halt.is_set():
                raise Halted
            yield self._target.store.read(key, start, min(start + MAX_SLICE_BYTES, size_bytes))

    def _save_log(self, *, soon: bool) -> None:
        """Write down what is verified; with ``soon``, only when it is time and worth it."""
        begun_s = time.monotonic()
        with self._lock:
            if len(self._done) == self._logged or (soon and begun_s < self._log_due_s):
                return
            staged = len(self._done)
            entries = tuple({**self._earlier, **self._done}.values())
        log = StagingLog(self._source.store.region, self._target.path, entries)
        self._target.store.save(f"{self._staging}/log.json", log)
        ended_s = time.monotonic()
        self._logged = staged
        self._log_due_s = ended_s + max(LOG_EVERY_S, (ended_s - begun_s) / LOG_SHARE_OF_TIME)

    # --- 3. make it visible -----------------------------------------------------------------------

    def _require_unchanged(self, wanted: list[Wanted]) -> None:
        """A source that changes during the copy would give a mixture that never existed."""
        now = {item.name: item.version for item in self._source.store.objects(self._source.path)}
        was = {item.found.name: item.found.version for item in wanted}
        changed = sorted(name for name in now.keys() | was.keys() if now.get(name) != was.get(name))
        if changed:
            raise Changed(f"{self._source}/{changed[0]}: changed while it was copied")

    def _place(self, size_bytes: int) -> None:
        """Mark the target incomplete, move everything there, write the manifest, unmark."""
        target = self._target
        store = target.store
        self._save_log(soon=False)
        store.save(layout.placing(target.path), Mark(target.path, self._copy))
        store.delete(layout.manifest(target.path))
        for item in store.objects(target.path):
            if item.name not in self._done:
                store.delete(target.key(item.name))
        staged = {item.name for item in store.objects(f"{self._staging}/objects")}
        for name in self._done:
            if self._halt.is_set():
                raise Halted
            if name in staged:
                store.move(self._staged_key(name), target.key(name))
        store.sync_names(target.key(name) for name in self._done)
        entries = tuple(sorted(self._done.values(), key=lambda entry: entry.name))
        manifest = Manifest(target.path, self._now(), size_bytes, entries)
        store.save(layout.manifest(target.path), manifest)
        store.delete(layout.placing(target.path))
        store.delete_all(self._staging)

    def _clean_up(self) -> None:
        """After a failure: nothing half is left, neither hidden nor in place."""
        store = self._target.store
        try:
            if self._placing_copy() == self._copy:
                forget_replica(store, self._target.path)
            store.delete_all(self._staging)
        except StoreError as error:
            _log.warning("copy not cleaned up", copy=self._copy, error=str(error))

    def _placing_copy(self) -> str:
        """The copy that last began to move objects to the target; empty if unknown."""
        target = self._target
        try:
            mark = target.store.load(layout.placing(target.path), Mark)
        except msgspec.DecodeError:
            return ""
        return mark.copy if mark else ""

    def _staged_key(self, name: str) -> str:
        return f"{self._staging}/objects/{name}"
