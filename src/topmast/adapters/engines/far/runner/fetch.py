"""Brings the objects of a dataset to a folder: from a bucket by signed URLs, or from home."""

from __future__ import annotations

import errno
import hashlib
import http.client as http_client
import json
import os
import re
import threading
import time
import urllib.error as web_error
import urllib.parse as urls
import urllib.request as web
from collections.abc import Callable, Iterator
from pathlib import Path

from topmast.adapters.engines.far.runner.calls import (
    Home,
)
from topmast.adapters.engines.far.runner.processes import (
    BACKOFF_S,
    CALL_S,
    HUNG_UP,
    Json,
    now_s,
)

FETCHES_AT_ONCE = 4
SLICE_BYTES = 4 << 20
"""Asked of home at a time."""
READ_BYTES = 1 << 20
TRIES = 3
"""Of an object with other bytes than it should have."""
FETCH_PATIENCE_S = 60.0
"""How long a store may fail without a byte, before the fetch is given up."""
FORBIDDEN, GONE_THERE, CHANGED_THERE = 403, 404, (412, 416)
_CODE = re.compile(rb"<Code>(\w+)</Code>")


class CannotFetch(Exception):
    """A dataset cannot be brought here; the text says why, without any URL: these are secrets."""


class Moved(Exception):
    """The dataset is another one since it was listed."""


class Listing:
    """The objects of a dataset, as home lists them page by page. Safe to use from any thread."""

    def __init__(self, home: Home, name: str) -> None:
        self.name = name
        self._home = home
        self._lock = threading.Lock()
        first = self.page(0)
        self.key: str = first["key"]
        self.size_bytes: int = first["size_bytes"]
        self.count: int = first["count"]
        self._ready: list[Json] = first["objects"]
        self._taken = 0

    def page(self, start: int) -> Json:
        """What home lists from an object on, with fresh URLs."""
        query = urls.urlencode({"name": self.name, "start": start})
        page = json.loads(ask(self._home, "dataset?" + query, self.name))
        if start and page["key"] != self.key:
            raise Moved
        return page

    def next(self) -> Json:
        """The next object; None after the last."""
        with self._lock:
            if self._taken == self.count:
                return None
            if not self._ready:
                self._ready = self.page(self._taken)["objects"]
            self._taken += 1
            return {**self._ready.pop(0), "number": self._taken - 1}

    def again(self, entry: Json) -> Json:
        """The same object with a fresh URL."""
        with self._lock:
            return {**self.page(entry["number"])["objects"][0], "number": entry["number"]}


class Fetch:
    """Brings all objects that a listing has to a folder, and goes on with what is there."""

    def __init__(self, ticket: Json, listing: Listing, note: Callable[[int], None]) -> None:
        self._ticket = ticket
        self._listing = listing
        self._note = note
        self._lock = threading.Lock()
        self._done_bytes = 0
        self._errors: list[BaseException] = []

    def run(self, folder: Path) -> None:
        """Have all of it there; raises CannotFetch, Moved, OSError."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        count = min(FETCHES_AT_ONCE, self._listing.count)
        threads = [threading.Thread(target=self._some, args=(folder,)) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def _some(self, folder: Path) -> None:
        home = Home(self._ticket)
        try:
            while not self._errors:
                entry = self._listing.next()
                if entry is None:
                    return
                self._object(home, entry, folder)
        except BaseException as error:
            self._errors.append(error)
        finally:
            home.hang_up()

    def _object(self, home: Home, entry: Json, folder: Path) -> None:
        file = file_below(folder, entry["name"])
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            for _ in range(TRIES):
                found = self._bytes(home, entry, file)
                if entry["sha256"] in ("", found):
                    return
                file.unlink()
                self._add(-entry["size_bytes"])
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise CannotFetch("the disk of the cache is full (option cache)") from error
            if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
                raise CannotFetch(
                    f"{self._what(entry)} is a file, and a folder of others"
                ) from None
            raise
        raise CannotFetch(
            f"{self._what(entry)} was changed: its checksum is not that of the manifest"
        )

    def _what(self, entry: Json) -> str:
        return f"{self._listing.name}: object {entry['name']}"

    def _bytes(self, home: Home, entry: Json, file: Path) -> str:
        """Have an object in a file; returns the checksum of what is there."""
        digest = hashlib.sha256()
        with file.open("a+b") as out:
            if out.tell() > entry["size_bytes"]:
                out.truncate(0)
            out.seek(0)
            there = 0
            while True:
                data = out.read(READ_BYTES)
                if not data:
                    break
                digest.update(data)
                there += len(data)
            self._add(there)
            for data in Download(home, self._listing, entry, there):
                out.write(data)
                digest.update(data)
                self._add(len(data))
            out.flush()
            os.fsync(out.fileno())
        return digest.hexdigest()

    def _add(self, count: int) -> None:
        with self._lock:
            self._done_bytes += count
            self._note(self._done_bytes)


class Download:
    """The bytes of an object from an offset on, whatever happens to connections on the way."""

    def __init__(self, home: Home, listing: Listing, entry: Json, start: int) -> None:
        self._home = home
        self._listing = listing
        self._entry = entry
        self._at = start
        self._what = f"{listing.name}: object {entry['name']}"
        self._moved_s = now_s()
        self._refreshed = False

    def __iter__(self) -> Iterator[bytes]:
        while self._at < self._entry["size_bytes"]:
            before = self._at
            try:
                yield from self._more()
            except (OSError, http_client.HTTPException) as error:
                self._judge(error)
            if self._at > before:
                self._moved_s, self._refreshed = now_s(), False

    def _more(self) -> Iterator[bytes]:
        """What one request gives; it may break off."""
        if not self._entry["url"]:
            yield self._keep(self._from_home())
            return
        headers = {"Range": f"bytes={self._at}-"}
        if self._entry["version"]:
            headers["If-Match"] = self._entry["version"]
        asked = web.Request(self._entry["url"], headers=headers)  # noqa: S310
        with web.urlopen(asked, timeout=CALL_S) as answer:  # noqa: S310
            if answer.status != 206 and self._at:
                raise CannotFetch(self._what + ": the store gives no part of an object")
            while True:
                data = answer.read(READ_BYTES)
                if not data:
                    return
                yield self._keep(data)

    def _keep(self, data: bytes) -> bytes:
        self._at += len(data)
        if self._at > self._entry["size_bytes"]:
            raise CannotFetch(self._what + " is longer than it was listed")
        return data

    def _from_home(self) -> bytes:
        entry = self._entry
        query = {"name": self._listing.name, "object": entry["name"], "start": self._at}
        query["end"] = min(self._at + SLICE_BYTES, entry["size_bytes"])
        query["version"] = entry["version"]
        return ask(self._home, "object?" + urls.urlencode(query), self._what)

    def _judge(self, error: Exception) -> None:
        """Wait and try again, or raise."""
        said, final = words_of(error)
        if isinstance(error, web_error.HTTPError):
            if error.code == FORBIDDEN and not self._refreshed:
                self._refreshed = True  # signatures last for a while only
                self._entry = self._listing.again(self._entry)
                return
            if error.code == GONE_THERE:
                raise CannotFetch(self._what + " is not in the store") from None
            if error.code in CHANGED_THERE:
                raise CannotFetch(self._what + " was changed since it was listed") from None
        if final:
            raise CannotFetch(f"{self._what}: the store refuses it: {said}") from None
        if now_s() - self._moved_s > FETCH_PATIENCE_S:
            raise CannotFetch(f"{self._what}: the store cannot be reached: {said}") from None
        time.sleep(BACKOFF_S)


def ask(home: Home, path: str, what: str) -> bytes:
    """What home answers; raises CannotFetch for what it refuses."""
    began_s = now_s()
    while True:
        try:
            status, answer = home.call(path)
        except (OSError, http_client.HTTPException) as error:
            status, answer = 0, repr(error).encode()
        if status == 200:
            return answer
        if status == 422 or status in HUNG_UP:
            said = answer.decode(errors="replace") or f"home refuses it ({status})"
            raise CannotFetch(f"{what}: {said}")
        if now_s() - began_s > FETCH_PATIENCE_S:
            raise CannotFetch(f"{what}: home does not answer")
        time.sleep(BACKOFF_S)


def words_of(error: Exception) -> tuple[str, bool]:
    """What a store said that could not be reached or refused; whether it is of no use to repeat."""
    if isinstance(error, web_error.HTTPError):
        found = _CODE.search(error.read(4096))
        said = f"HTTP {error.code} {found[1].decode() if found else ''}".strip()
        return said, error.code < 500 and error.code not in (408, 429)
    reason = error.reason if isinstance(error, web_error.URLError) else error
    return str(reason) or type(reason).__name__, False


def file_below(folder: Path, name: str) -> Path:
    """The file of an object; raises CannotFetch for a name that leads out of the folder."""
    parts = name.split("/")
    if not all(parts) or any(part in (".", "..") or "\0" in part for part in parts):
        raise CannotFetch(f"an object is called {name!r}, which cannot be the name of a file")
    return folder.joinpath(*parts)
