"""One region's store: a directory, or a bucket with a URL. All that touches objects is here.

Directories get what buckets have no need of: no way out through links, and fsync.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar
from urllib.parse import quote, urlsplit
from urllib.request import url2pathname

import obstore
import structlog
from msgspec import Struct
from obstore.exceptions import BaseError, PermissionDeniedError, PreconditionError
from obstore.store import LocalStore, from_url

from topmast.adapters.objects.fence import BucketFence, Fence, FolderFence, NoFence, Term
from topmast.adapters.objects.layout import HIDDEN, name_fault
from topmast.adapters.objects.manifest import encode
from topmast.adapters.objects.throttle import Halted
from topmast.model.decoding import decode
from topmast.model.errors import InvalidInput, TopmastError

SCHEMES = ("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss")
UNTRIED = ("gs",)
"""Of these none was ever tried with a real server, nor with one that speaks its protocol."""
WRITE_BUFFER_BYTES = 8 * 2**20
"""Of S3, no part of an object but the last may be smaller than 5 MiB."""
PARTS_MAX = 9_000
DELETE_BATCH = 500
_UNFINISHED = re.compile(r"#[0-9]+$")
"""How the library names a file that it writes, until it is whole; a crash leaves it behind."""

_DENIED = "may Topmast's credentials list and read there, and have they ended?"
_S3_CODE = re.compile(r"<Code>(\w+)</Code>")

_T = TypeVar("_T")


def _go_on() -> None:
    """Look at the next entry too."""


log = structlog.get_logger(__name__)


class StoreError(TopmastError):
    """A store could not do what was asked, in one line."""


class Missing(StoreError):
    """The object is not there."""


class Changed(StoreError):
    """The object is not the one that was listed."""


class Found(Struct, frozen=True):
    """An object as listed."""

    name: str
    """Relative to the prefix."""
    size_bytes: int
    version: str
    """Changes with the content."""
    has_etag: bool


class RegionStore:
    """The store of one region. Keys are relative, with slashes; safe to use from any thread."""

    def __init__(self, region: str, location: str, term: Term | None = None) -> None:
        """``term``: of the leader that changes it; None: no other process ever does."""
        self.region = region
        self._term = term
        self.root: Path | None = None
        self._url = ""
        scheme = urlsplit(location).scheme if "://" in location else ""
        if scheme == "file":
            self.root = Path(url2pathname(urlsplit(location).path))
        elif not scheme:
            self.root = Path(location).expanduser().absolute()
        elif scheme in SCHEMES and not {"?", "#"}.intersection(location):
            self._url = location
        else:
            remedy = f"a directory, or a URL with {', '.join(SCHEMES)}, without ? and #"
            raise InvalidInput(f"{location}: no store", field=f"{region}.store", remedy=remedy)

    def require_client(self) -> None:
        """Raise InvalidInput for a bucket that could never be asked; nothing is asked now."""
        try:
            if self.root is None:
                assert self._store is not None
        except StoreError as error:
            raise InvalidInput(
                f"{self._url}: {error}", field=f"{self.region}.store",
                remedy="name a bucket; its account is in the URL or in the server's environment, "
                "as docs/guides/data.md says for each kind",
            ) from None  # fmt: skip
        if urlsplit(self._url).scheme in UNTRIED:
            log.warning("this kind of store was never tried with a server", store=self._url)

    @property
    def place(self) -> str:
        """Where the store is, links resolved: the same for two names of one directory."""
        if self.root is None:
            return self._url.rstrip("/")
        return f"file:/{os.path.realpath(self.root)}".rstrip("/")

    def overlap(self, folder: Path) -> str:
        """How a folder and the store have files in common, links resolved; empty if they do not."""
        if self.root is None:
            return ""
        own, other = Path(os.path.realpath(self.root)), Path(os.path.realpath(folder))
        if own == other:
            return "is"
        if own in other.parents:
            return "lies in"
        return "contains" if other in own.parents else ""

    @cached_property
    def _store(self) -> Any:
        with self._explained(""):
            if self.root is None:
                return from_url(self._url)
            if not self.root.is_dir():
                self.root.mkdir(parents=True, exist_ok=True)
                _sync_folder(self.root.parent)
            return LocalStore(self.root)

    @cached_property
    def fence(self) -> Fence:
        """What keeps a leader that was replaced from changing it."""
        if self._term is None:
            return NoFence()
        if self.root is not None:
            return FolderFence(self.root / HIDDEN, self._term)
        return BucketFence(self.load, self._put_json, HIDDEN, self._term)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Around each change. Raises `Halted` if a later leader has changed the store."""
        with self.fence.held() as leads:
            if not leads:
                raise Halted
            yield

    # --- reading ------------------------------------------------------------------------------

    def objects(self, prefix: str, step: Callable[[], None] = _go_on) -> list[Found]:
        """Every object under ``prefix``, by name. O(objects).

        ``step`` is called for each entry of a directory that is looked at, and ends it by an error.
        """
        if self.root is not None:
            found = []
            for name in sorted(self._walk(prefix, step)):
                step()
                found.append(self._head(prefix, name))
            return found
        found = []
        with self._explained(prefix):
            for batch in obstore.list(self._store, prefix, chunk_size=1000):
                for meta in batch:
                    name = meta["path"].removeprefix(prefix).lstrip("/")
                    if prefix or not name.startswith(f"{HIDDEN}/"):
                        found.append(_found(name, meta))
        return sorted(found, key=lambda item: item.name)

    def folders(self, prefix: str) -> list[str]:
        """The names directly under ``prefix`` that have objects below them."""
        with self._explained(prefix):
            listed = obstore.list_with_delimiter(self._store, prefix)
        return [path.rstrip("/").rpartition("/")[2] for path in listed["common_prefixes"]]

    def read(self, key: str, start: int, end: int, version: str = "") -> Any:
        """Bytes ``start`` to ``end`` as a buffer; raises `Changed` if it is not ``version``."""
        self._stay_inside(key)
        options: obstore.GetOptions = {"range": (start, end)}
        if version:
            options["if_match"] = version
        with self._explained(key):
            data = obstore.get(self._store, key, options=options).bytes()
        if len(data) != end - start:
            raise Changed(f"{self.region}: {key} changed while it was read")
        return data

    def load(self, key: str, kind: type[_T]) -> _T | None:
        """A small JSON file; None if it is not there. Raises `msgspec.DecodeError` if damaged."""
        self._stay_inside(key)
        try:
            with self._explained(key):
                data = bytes(obstore.get(self._store, key).bytes())
        except Missing:
            return None
        return decode(data, kind)

    def version(self, key: str) -> str | None:
        """A text that changes with the object; None if there is no object."""
        self._stay_inside(key)
        try:
            return self._head("", key).version
        except Missing:
            return None

    def free_bytes(self) -> int | None:
        """How much the disk can still hold; None if unknown."""
        return None if self.root is None else shutil.disk_usage(self._real_root).free

    def checked(self, prefix: str) -> str:
        """The store's directory or URL, once it is sure that no link leads a prefix out of it."""
        self._stay_inside(prefix)
        return self._url or str(self.root)

    def signed(self, method: Literal["GET", "PUT"], keys: Sequence[str], for_s: float) -> list[str]:
        """URLs to read or write these objects by, for a while; of a bucket only.

        They are secrets: no further proof is asked. Empty for one that cannot be signed: Azure
        wants names signed as they are, and the library signs them as they are written in a URL.
        """
        azure = urlsplit(self._url).scheme not in ("s3", "s3a", "gs")
        fit = [key for key in keys if not azure or quote(key) == key]
        if not fit:
            return [""] * len(keys)
        with self._explained(fit[0]):
            urls = obstore.sign(self._store, method, fit, timedelta(seconds=for_s))
        signed = dict(zip(fit, urls, strict=True))
        return [signed.get(key, "") for key in keys]

    # --- writing ------------------------------------------------------------------------------

    def writer(self, key: str, size_bytes: int) -> ObjectWriter:
        """A writer for a large object, in bounded memory; nothing is visible until it closes."""
        self._stay_inside(key)
        part_bytes = max(WRITE_BUFFER_BYTES, -(-size_bytes // PARTS_MAX))
        with self._explained(key):
            return ObjectWriter(self, key, part_bytes)

    def write(self, key: str, data: Any) -> None:
        """Write a small object whole."""
        self._stay_inside(key)
        with self._explained(key), self.changing():
            obstore.put(self._store, key, data, use_multipart=False)

    def _put_json(self, key: str, value: Struct) -> None:
        with self._explained(key):
            obstore.put(self._store, key, encode(value), use_multipart=False)

    def save(self, key: str, value: Struct) -> None:
        """Write a small JSON file, durably."""
        self.write(key, encode(value))
        self.seal(key)
        self.sync_names([key])

    def move(self, source: str, target: str) -> None:
        """Rename an object, replacing what is there."""
        self._stay_inside(source)
        self._stay_inside(target)
        with self._explained(target), self.changing():
            obstore.rename(self._store, source, target)

    def delete(self, key: str) -> None:
        """Delete one object; fine if it is not there."""
        if self.root is not None:
            self._stay_inside(str(Path(key).parent))
            with self._explained(key), suppress(FileNotFoundError), self.changing():
                (self.root / key).unlink()
                self.sync_names([key])
            return
        with self._explained(key), suppress(FileNotFoundError), self.changing():
            obstore.delete(self._store, key)

    def delete_all(self, prefix: str, halt: threading.Event | None = None) -> None:
        """Delete everything under ``prefix``; links are removed, not followed. O(objects).

        Raises `Halted` soon after ``halt`` is set.
        """
        if self.root is not None:
            self._stay_inside(str(Path(prefix).parent))
            with self._explained(prefix), suppress(FileNotFoundError):
                self._remove_tree(self.root / prefix, halt)
                self.sync_names([prefix])
            return
        keys = [f"{prefix}/{item.name}" for item in self.objects(prefix)]
        for start in range(0, len(keys), DELETE_BATCH):
            _heed(halt)
            with self._explained(prefix), suppress(FileNotFoundError), self.changing():
                obstore.delete(self._store, keys[start : start + DELETE_BATCH])

    def _remove_tree(self, top: Path, halt: threading.Event | None) -> None:
        """Remove a folder and all in it, or a file or link."""
        if top.is_symlink() or not top.is_dir():
            with self.changing():
                top.unlink()
            return
        found, pending = [], [top]  # os.walk calls itself for each folder, and some lie deep
        while pending:
            folder = pending.pop()
            found.append(folder)
            with os.scandir(folder) as there:
                entries = list(there)
            for entry in entries:
                _heed(halt)
                if entry.is_dir(follow_symlinks=False):
                    pending.append(Path(entry.path))
                    continue
                with self.changing():
                    Path(entry).unlink()
        for folder in reversed(found):
            with self.changing():
                folder.rmdir()

    def seal(self, key: str) -> None:
        """Bring a written object to the disk, and make the next read come from there."""
        if self.root is None:
            return
        with self._explained(key):
            fd = os.open(self.root / key, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                os.fsync(fd)
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)

    def sync_names(self, keys: Iterable[str]) -> None:
        """Make the names of objects durable, folders on the way included."""
        if self.root is None:
            return
        folders = {parent for key in keys for parent in Path(key).parents}
        for folder in sorted(folders, key=lambda path: len(path.parts), reverse=True):
            with self._explained(str(folder)), suppress(FileNotFoundError):
                _sync_folder(self.root / folder)

    # --- staying inside -----------------------------------------------------------------------

    @cached_property
    def _real_root(self) -> str:
        assert self._store is not None, "makes the folder"
        return os.path.realpath(self.root or "")

    def _stay_inside(self, key: str) -> None:
        """Refuse a key that a link leads out of the store."""
        if self.root is None:
            return
        real = os.path.realpath(f"{self._real_root}/{key}")
        if os.path.commonpath([real, self._real_root]) != self._real_root:
            raise StoreError(f"{self.region}: {key} is or lies behind a link out of the store")

    def _walk(self, prefix: str, step: Callable[[], None]) -> Iterator[str]:
        """Names of files under a folder; refuses whatever could not be copied as a file."""
        self._stay_inside(prefix)
        assert self.root is not None
        top = self.root / prefix
        if not top.exists():
            return
        if not top.is_dir():
            raise StoreError(f"{self.region}: {prefix} is a file, and a dataset is a folder")
        pending = [""]
        while pending:
            folder = pending.pop()
            with self._explained(f"{prefix}/{folder}"), os.scandir(top / folder) as entries:
                for entry in entries:
                    step()
                    name = folder + entry.name
                    if not prefix and name == HIDDEN:
                        continue
                    if prefix.startswith(f"{HIDDEN}/") and _UNFINISHED.search(name):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(f"{name}/")
                    else:
                        self._check_file(prefix, name, entry)
                        yield name

    def _check_file(self, prefix: str, name: str, entry: os.DirEntry[str]) -> None:
        key = f"{prefix}/{name}" if prefix else name
        fault = name_fault(name)
        if not fault and entry.is_symlink():
            self._stay_inside(key)
            fault = "a link to a folder" if entry.is_dir() else ""
            fault = fault or ("" if entry.is_file() else "a link to nothing")
        elif not fault and not stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
            fault = "neither file nor folder"
        if fault:
            raise StoreError(f"{self.region}: {key!r} cannot be copied: {fault}")

    def _head(self, prefix: str, name: str) -> Found:
        key = f"{prefix}/{name}" if prefix else name
        with self._explained(key):
            return _found(name, obstore.head(self._store, key))

    @contextmanager
    def _explained(self, key: str) -> Iterator[None]:
        """Turn the errors of the library and the system into `StoreError`."""
        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            raise _explain(error, f"{self.region}: {key}" if key else self.region) from error


class ObjectWriter:
    """Writes one object in parts; leaving the block by an error leaves no object."""

    def __init__(self, store: RegionStore, key: str, part_bytes: int) -> None:
        self._store = store
        self._key = key
        self._writer: Any = obstore.open_writer(
            store._store, key, buffer_size=part_bytes, max_concurrency=1
        )

    def __enter__(self) -> ObjectWriter:
        return self

    def write(self, data: Any) -> None:
        """Add bytes."""
        with self._store._explained(self._key):
            self._writer.write(data)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        writer, self._writer = self._writer, None
        if kind is None:
            with self._store._explained(self._key), self._store.changing():
                writer.close()
        del writer  # not closed: the parts written so far are dropped


def _heed(halt: threading.Event | None) -> None:
    if halt is not None and halt.is_set():
        raise Halted


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _found(name: str, meta: Any) -> Found:
    etag = meta["e_tag"]
    return Found(name, meta["size"], etag or meta["last_modified"].isoformat(), etag is not None)


def _explain(error: Exception, place: str) -> StoreError:
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    code = error.errno if isinstance(error, OSError) else None
    if isinstance(error, PreconditionError):
        return Changed(f"{place}: changed while it was read")
    if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in str(error):
        return Missing(f"{place}: not found")
    if code == 28 or "os error 28" in text or "No space left" in text:
        return StoreError(f"{place}: the disk is full")
    if code == 122 or "os error 122" in text:
        return StoreError(f"{place}: the disk quota is reached")
    code_of_s3 = _S3_CODE.search(str(error))
    if isinstance(error, PermissionDeniedError | PermissionError) or "os error 13" in text:
        said = f" ({code_of_s3[1]})" if code_of_s3 else ""
        # Some requests are answered without a word.
        hint = "" if said or "403" not in text else f" ({_DENIED})"
        return StoreError(f"{place}: permission denied{said or hint}")
    if code_of_s3 is not None:
        said = code_of_s3[1]
        why = "there is no such bucket" if said == "NoSuchBucket" else f"the store said {said}"
        return StoreError(f"{place}: {why}")
    return StoreError(f"{place}: {text}")
