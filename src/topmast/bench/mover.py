"""How fast the data mover copies, compared with a plain copy that reads, hashes, writes and syncs.

Both begin with the source on the disk and not in the page cache, and take turns. The mover reads
back what it wrote and hashes it again; the plain copy does not.
"""

from __future__ import annotations

import hashlib
import logging
import os
import resource
import shutil
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import structlog
from msgspec import Struct

from topmast.adapters.clock import SystemClock
from topmast.adapters.objects import StoreMover
from topmast.bench.setup import folder, machine
from topmast.model.dataset import Copy
from topmast.model.errors import InvalidInput, Unavailable
from topmast.model.messages import CopyDone, CopyFailed, Message, StartCopy

SLICE_BYTES = 4 << 20
PATIENCE_S = 3_600.0


class MoverOptions(Struct, frozen=True, kw_only=True):
    """What to copy: so many files, so many bytes in all, so many times by each."""

    size_bytes: int = 1 << 30
    files: int = 4
    rounds: int = 3
    seed: int = 0


def measure_mover(options: MoverOptions, state: Path | None) -> dict[str, Any]:
    """Megabytes a second of both, the share that the mover reaches, and how much memory it took."""
    if not 1 <= options.files <= options.size_bytes:
        raise InvalidInput(f"{options.files} is out of range", field="--files", remedy="1 or more")
    # What the mover logs would stand between the figures.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with folder(state) as top:
        east, west, plain = (top / name for name in ("east", "west", "plain"))
        _fill(east / "d", options)
        before = _peak_bytes()
        plain_s, plain_cpu_s, moved_s, moved_cpu_s = [], [], [], []
        for number in range(options.rounds):
            seconds, cpu_s = _timed(east, lambda: _copy_plainly(east / "d", plain))
            plain_s.append(seconds)
            plain_cpu_s.append(cpu_s)
            shutil.rmtree(plain)
            seconds, cpu_s = _timed(east, partial(_move, number, east, west))
            moved_s.append(seconds)
            moved_cpu_s.append(cpu_s)
            shutil.rmtree(west)
        shutil.rmtree(east)
    mb = options.size_bytes / 1e6
    return {
        "mover_mb_per_s": mb / min(moved_s),
        "plain_mb_per_s": mb / min(plain_s),
        "share": min(plain_s) / min(moved_s),
        "mover_s": moved_s,
        "plain_s": plain_s,
        "mover_cpu_s": moved_cpu_s,
        "plain_cpu_s": plain_cpu_s,
        "grown_bytes": max(0, _peak_bytes() - before),
        "size_bytes": options.size_bytes,
        "files": options.files,
        "seed": options.seed,
        "machine": machine(),
    }


def _fill(place: Path, options: MoverOptions) -> None:
    """Files of random bytes, synced."""
    place.mkdir(parents=True)
    rng = np.random.default_rng(options.seed)
    for number in range(options.files):
        left = options.size_bytes // options.files
        with (place / f"part-{number:04}").open("wb") as file:
            while left > 0:
                file.write(rng.bytes(min(left, SLICE_BYTES)))
                left -= SLICE_BYTES
            file.flush()
            os.fsync(file.fileno())


def _timed(source: Path, copy: Callable[[], None]) -> tuple[float, float]:
    """Wall and CPU seconds of a copy with a source that is not in the page cache."""
    for file in (f for f in source.rglob("*") if f.is_file()):
        with file.open("rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    begun_s, begun_cpu_s = time.monotonic(), time.process_time()
    copy()
    return time.monotonic() - begun_s, time.process_time() - begun_cpu_s


def _copy_plainly(source: Path, target: Path) -> None:
    """Read, hash, write, sync: file by file, slice by slice."""
    target.mkdir()
    for file in sorted(source.iterdir()):
        digest = hashlib.sha256()
        with file.open("rb") as reads, (target / file.name).open("wb") as writes:
            while piece := reads.read(SLICE_BYTES):
                digest.update(piece)
                writes.write(piece)
            writes.flush()
            os.fsync(writes.fileno())


def _move(number: int, east: Path, west: Path) -> None:
    """The same by the mover. Raises Unavailable where it fails."""
    ended, news = threading.Event(), list[Message]()

    def post(message: Message) -> None:
        if isinstance(message, CopyDone | CopyFailed):
            news.append(message)
            ended.set()

    west.mkdir()
    mover = StoreMover({"east": str(east), "west": str(west)}, clock=SystemClock())
    mover.open(post)
    mover.start_copy(StartCopy(Copy(f"c{number}", "d", "east", "west", 0, "", 0.0), "d", 0.0))
    done = ended.wait(PATIENCE_S)
    mover.close()
    if not done or not isinstance(news[0], CopyDone):
        raise Unavailable(f"the copy failed: {news[0] if news else 'no news'}")


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
