"""The cache of a host: datasets that were fetched there, for all runners of the account.

    FOLDER/locks/KEY.use      shared by what reads the data set, or is about to
    FOLDER/locks/KEY.fetch    held by what fetches it
    FOLDER/locks/all          held while it is decided what goes
    FOLDER/sets/KEY/          complete: data/, index.json; the time of index.json is its last use
    FOLDER/parts/KEY/         on its way: data/, size, boot
    FOLDER/gone/              being deleted

All locks are of the kernel (`flock`), so that they end with the processes that hold them, however
these end. A set is deleted only by what holds its first lock alone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from topmast.adapters.engines.far.runner.processes import (
    Json,
    temporary,
)

BOOT_ID = "/proc/sys/kernel/random/boot_id"


class CannotCache(Exception):
    """The cache cannot hold a data set; the text says why."""


class Cache:
    """One folder. ``limit_bytes`` is the most that it may hold; 0 does not limit."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            seen = folder.lstat()
            if seen.st_uid != os.getuid() or seen.st_mode & 0o022 or not folder.is_dir():
                raise CannotCache(
                    f"{folder} can be changed by others: `chmod 700` it, or set option `cache`"
                )
            for name in ("locks", "sets", "parts", "gone"):
                (folder / name).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise CannotCache(f"the cache {folder}: {error.strerror}") from error

    def bring(
        self, key: str, size_bytes: int, fetch: Callable[[Path], None], wait: Callable[[], None]
    ) -> tuple[Path, int]:
        """The folder of a data set, and a descriptor that keeps it there while it is open.

        If it is not there, ``fetch`` brings it to a folder, which may have a part of it already.
        While something else fetches it, ``wait`` is called again and again.
        """
        held = self._lock(key + ".use", fcntl.LOCK_SH)
        assert held is not None
        try:
            while not self._usable(key, held):
                fetching = self._lock(key + ".fetch", fcntl.LOCK_EX | fcntl.LOCK_NB)
                if fetching is None:
                    wait()
                    continue
                with closing(fetching):
                    if not self._usable(key, held):
                        part = self._reserve(key, size_bytes)
                        fetch(part / "data")
                        self._publish(part, key, size_bytes)
        except BaseException:
            os.close(held)
            raise
        return self.folder / "sets" / key / "data", held

    def use(self, key: str) -> int:
        """A descriptor that keeps a data set which something else keeps until now."""
        held = self._lock(key + ".use", fcntl.LOCK_SH)
        assert held is not None
        return held

    def _lock(self, name: str, how: int) -> int | None:
        """A descriptor that holds a lock; None when it is asked for at once, and taken."""
        file = self.folder / "locks" / name
        number = os.open(str(file), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(number, how)
        except OSError as error:
            os.close(number)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return None
            raise CannotCache(f"{file}: the file system has no locks") from None
        return number

    # --- what is there ----------------------------------------------------------------------------

    def _usable(self, key: str, held: int) -> bool:
        """Whether the set is there, as it was fetched; notes that it is used."""
        place = self.folder / "sets" / key
        index = read_json(place / "index.json")
        if index is None:
            return False
        if is_unchanged(place / "data", index["files"]):
            os.utime(str(place / "index.json"))
            return True
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            fcntl.flock(held, fcntl.LOCK_SH)
            raise CannotCache(
                f"{place} was changed by a task, and another one uses it: it is fetched anew when "
                "nothing uses it"
            ) from None
        self._delete(place)
        fcntl.flock(held, fcntl.LOCK_SH)
        return False

    def _publish(self, part: Path, key: str, size_bytes: int) -> None:
        """Have what was fetched in its place, whole and durable."""
        files = []
        for file in files_below(part / "data"):
            file.chmod(0o444)
            seen = file.stat()
            files.append([str(file.relative_to(part / "data")), seen.st_size, seen.st_mtime_ns])
        (part / "size").unlink()
        (part / "boot").unlink()
        with (part / "index.json").open("w") as out:
            json.dump({"size_bytes": size_bytes, "files": files}, out)
            out.flush()
            os.fsync(out.fileno())
        for folder, _, _ in os.walk(str(part)):
            sync_folder(folder)
        part.rename(self.folder / "sets" / key)
        sync_folder(str(self.folder / "sets"))

    # --- making room ------------------------------------------------------------------------------

    def _reserve(self, key: str, size_bytes: int) -> Path:
        """The folder to fetch a set to, with room for it. Raises CannotCache."""
        part = self.folder / "parts" / key
        everything = self._lock("all", fcntl.LOCK_EX)
        assert everything is not None
        with closing(everything):
            boot = read_text(Path(BOOT_ID))
            if part.exists() and read_text(part / "boot") != boot:
                self._delete(part)  # of what was written before a power failure nothing is sure
            for left in (self.folder / "gone").iterdir():
                shutil.rmtree(str(left), ignore_errors=True)
            self._make_room(key, size_bytes)
            (part / "data").mkdir(mode=0o700, parents=True, exist_ok=True)
            (part / "size").write_text(str(size_bytes))
            (part / "boot").write_text(boot)
        return part

    def _make_room(self, key: str, size_bytes: int) -> None:
        sizes = {name: size for name, size, _ in self._sets()}
        parts = {name: size for name, size in self._parts() if name != key}
        there = sum(f.stat().st_size for f in files_below(self.folder / "parts" / key / "data"))
        victims = self._victims(parts)
        while True:
            held_bytes = sum(sizes.values()) + sum(parts.values())
            free_bytes = shutil.disk_usage(str(self.folder)).free
            too_many = self.limit_bytes and held_bytes + size_bytes > self.limit_bytes
            if not too_many and size_bytes - there <= free_bytes:
                return
            gone = next(victims, None)
            if gone is None:
                break
            sizes.pop(gone, None)
            parts.pop(gone, None)
        if too_many:
            raise CannotCache(
                f"the cache {self.folder} holds {held_bytes} bytes that are in use, and the "
                f"dataset needs {size_bytes}; it may hold {self.limit_bytes} "
                "(option cache_max_bytes)"
            )
        raise CannotCache(
            f"the disk of the cache {self.folder} is full: {free_bytes} bytes are free, and "
            f"{size_bytes - there} are needed (option cache)"
        )

    def _sets(self) -> list[tuple[str, int, float]]:
        """Names, sizes and last uses of complete sets."""
        found = []
        for place in (self.folder / "sets").iterdir():
            index = read_json(place / "index.json")
            used_s = (place / "index.json").stat().st_mtime if index else 0.0
            found.append((place.name, index["size_bytes"] if index else 0, used_s))
        return found

    def _parts(self) -> list[tuple[str, int]]:
        """Names and sizes of sets on their way, those included that nothing brings any more."""
        return [
            (place.name, int(read_text(place / "size") or 0))
            for place in (self.folder / "parts").iterdir()
        ]

    def _victims(self, parts: dict[str, int]) -> Iterator[str]:
        """Delete one after the other what nothing uses: left parts, then sets by their last use."""
        for name in sorted(parts):
            yield from self._try_delete("parts", name, ".fetch")
        for name, _, _ in sorted(self._sets(), key=lambda one: one[2]):
            yield from self._try_delete("sets", name, ".use")

    def _try_delete(self, kind: str, name: str, lock: str) -> Iterator[str]:
        alone = self._lock(name + lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if alone is not None:
            with closing(alone):
                self._delete(self.folder / kind / name)
            yield name

    def _delete(self, place: Path) -> None:
        """Out of sight first: nothing may find a half of it."""
        gone = self.folder / "gone" / (place.name + "." + secrets.token_hex(4))
        with contextlib.suppress(FileNotFoundError):
            place.rename(gone)
        shutil.rmtree(str(gone), ignore_errors=True)


def cache_of(plan: Json) -> Cache:
    """The cache that a plan names."""
    given = plan["data"]["cache"]
    name = f"topmast-cache-{os.getuid()}"
    folder = Path(given) if given else Path(plan["work"] or temporary()) / name
    return Cache(folder, plan["data"]["cache_max_bytes"])


@contextlib.contextmanager
def closing(number: int) -> Iterator[None]:
    """Close a descriptor at the end."""
    try:
        yield
    finally:
        os.close(number)


def files_below(folder: Path) -> Iterator[Path]:
    """Every file, in no order."""
    for above, _, names in os.walk(str(folder)):
        for name in names:
            yield Path(above) / name


def is_unchanged(folder: Path, files: list[Any]) -> bool:
    """Whether all files are as they were fetched, by size and time."""
    for name, size_bytes, mtime_ns in files:
        try:
            seen = (folder / name).lstat()
        except OSError:
            return False
        if (seen.st_size, seen.st_mtime_ns) != (size_bytes, mtime_ns):
            return False
    return True


def read_json(file: Path) -> Json:
    """What a file of ours says; None without it."""
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        return None


def read_text(file: Path) -> str:
    """What a small file says; empty without it."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def sync_folder(folder: str) -> None:
    """Have the names in a folder on the disk."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
