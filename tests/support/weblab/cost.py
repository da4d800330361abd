"""What open dashboards cost the decisions of a server: pairs of short turns, with them and without.

The server times its machines by the CPU time of the thread that decides (`fake_engine --cpu-time`).
So neither other programs on the machine nor a wait for the interpreter's lock counts. Jobs come at
one pace in every turn; all that happens by the clock is then the same in both turns of a pair.
Of each two pairs one begins with the dashboards, so that what grows with time cancels out.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import comb
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
from msgspec import Struct

from topmast.bench.http import Connection

COMMIT = "commit"
"""The step of a server that is no machine's."""
LEAST_PAUSE_S = 1.0
"""A page waits for so long at least before it asks for its content anew."""
GOAL = 0.02
CONFIDENCE = 0.95
READ_BYTES = 1 << 16


class Pace(Struct, frozen=True):
    """How the turns are.

    Many short ones: a machine drifts by more than the goal within ten seconds.
    """

    jobs_per_s: float = 60.0
    turn_s: float = 1.0
    settle_s: float = 0.3
    """A turn begins so long after its dashboards were opened, or the ones before were closed."""


USUAL = Pace()


class Turn(Struct, frozen=True):
    """What was measured while jobs came at a pace."""

    machines_us: float
    """CPU time of all machines for a job: deciding itself."""
    thread_us: float
    """CPU time of the thread that decides for a job: commits and answers to pages as well."""
    thread_pct: float
    """The same, as a share of a core."""
    answer_ms: float
    """From a submission to its answer, by the clock; median."""


class Growth(Struct, frozen=True):
    """How much a figure grew within the pairs: the median, and the bounds of its interval."""

    median: float
    low: float
    high: float
    confidence: float
    """How sure it is that the true median lies between the bounds; of few pairs less than wanted."""


def compared(
    url: str, process: psutil.Process, readers: int, pairs: int, pace: Pace = USUAL
) -> dict[str, Any]:
    """Turns alone and with so many dashboards, how their figures grew, and whether that is < 2%.

    ``machines_us_alone`` of the growth compares turns that are both alone: what the method itself
    takes for growth.
    """
    alone: list[Turn] = []
    with_them: list[Turn] = []
    for at in range(pairs):
        for count in (0, readers) if at % 2 == 0 else (readers, 0):
            with dashboards(url, count):
                (with_them if count else alone).append(measured(url, process, pace))
    growth = {
        key: grown([getattr(one, key) for one in alone], [getattr(one, key) for one in with_them])
        for key in Turn.__struct_fields__
    }
    said = verdict(growth["machines_us"])
    if pairs > 1:
        growth["machines_us_alone"] = grown(*_halves([turn.machines_us for turn in alone]))
    return {
        "dashboards": readers, "pairs": pairs, "pace": pace, "machines_us_grow": said,
        "growth": growth, "alone": _medians(alone), "with_them": _medians(with_them),
        "turns": {"alone": alone, "with_them": with_them},
    }  # fmt: skip


def verdict(found: Growth) -> str:
    """Whether a growth is less than 2%, as far as its interval shows."""
    if found.confidence >= CONFIDENCE and found.high < GOAL:
        return "less than 2%"
    if found.confidence >= CONFIDENCE and found.low >= GOAL:
        return "more than 2%"
    return "neither shown nor refuted"


def grown(before: Sequence[float], after: Sequence[float]) -> Growth:
    """The growth from each figure to its partner.

    The interval is that of the sign test: its bounds are ones of the pairs, and it takes nothing
    for granted of how figures scatter.
    """
    grew = sorted(b / a - 1.0 for a, b in zip(before, after, strict=True))
    at, sure = _bound(len(grew))
    return Growth(*(round(x, 4) for x in (median(grew), grew[at], grew[-1 - at], sure)))


def _bound(count: int) -> tuple[int, float]:
    """The place of the lower bound among so many sorted figures, and how sure the interval is."""
    place, below = 0, 0.5**count
    while (wider := below + comb(count, place + 1) * 0.5**count) <= (1.0 - CONFIDENCE) / 2.0:
        place, below = place + 1, wider
    return place, max(0.0, 1.0 - 2.0 * below)


def _halves(figures: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """Every first and every second; which is the first changes as in the pairs."""
    pairs = list(zip(figures[::2], figures[1::2], strict=False))
    turned = [pair if at % 2 == 0 else pair[::-1] for at, pair in enumerate(pairs)]
    return [a for a, _ in turned], [b for _, b in turned]


def _medians(turns: Sequence[Turn]) -> Turn:
    fields = Turn.__struct_fields__
    return Turn(*(round(median(getattr(turn, key) for turn in turns), 3) for key in fields))


def measured(url: str, process: psutil.Process, pace: Pace) -> Turn:
    """One turn."""
    time.sleep(pace.settle_s)
    threads_before_s, before_s = threads_s(process), _machines_s(url)
    begun_s = time.monotonic()
    answers_s = asyncio.run(_paced(url, pace))
    took_s = time.monotonic() - begun_s
    # The machines are asked within: what they do besides counts as the thread's alone.
    machines_s = _machines_s(url) - before_s
    thread_s = deciding_s(threads_before_s, threads_s(process))
    each_us = 1e6 / len(answers_s)
    return Turn(
        round(each_us * machines_s, 1), round(each_us * thread_s, 1),
        round(100.0 * thread_s / took_s, 3), round(1e3 * median(answers_s), 2),
    )  # fmt: skip


async def _paced(url: str, pace: Pace) -> list[float]:
    """Submit jobs without GPUs at a pace; how long each answer took.

    They take a CPU each, so that they do not all sit on one host.
    """
    connection = Connection(url)
    await connection.open()
    answers_s, begun_s = [], time.monotonic()
    for at in range(int(pace.jobs_per_s * pace.turn_s)):
        await asyncio.sleep(max(0.0, begun_s + at / pace.jobs_per_s - time.monotonic()))
        asked_s = time.monotonic()
        job = {
            "name": f"paced-{at}", "run": "true", "tenant": "team-0", "resources": {"cpus": 1},
        }  # fmt: skip
        await connection.post("/api/v1/jobs", {"job": job, "user": "ann"})
        answers_s.append(time.monotonic() - asked_s)
    connection.close()
    return answers_s


def _machines_s(url: str) -> float:
    """How long all machines took for their messages since the server's start."""
    steps = httpx.get(f"{url}/api/v1/system", timeout=60).json()["timings"]
    return sum(float(step["count"] * step["mean_s"]) for step in steps if step["step"] != COMMIT)


def threads_s(process: psutil.Process) -> dict[str, float]:
    """The CPU time of each thread beside that of HTTP, which is the first."""
    tasks = Path(f"/proc/{process.pid}/task")
    found = {}
    for task in tasks.iterdir():
        if task.name != str(process.pid):
            with suppress(OSError):  # one that has just ended
                found[task.name] = int((task / "schedstat").read_text("ascii").split()[0]) / 1e9
    return found


def deciding_s(before_s: Mapping[str, float], after_s: Mapping[str, float]) -> float:
    """The CPU time of the thread that decides: of `threads_s` the one that worked most meanwhile."""
    return max(at_s - before_s.get(name, 0.0) for name, at_s in after_s.items())


@contextmanager
def dashboards(url: str, count: int) -> Iterator[None]:
    """So many open pages: a stream of events each, and the queue drawn anew as pages do it.

    That is each second, or as soon as the server has something newer. They look at nothing that
    they get: in earnest the browsers are on other machines. RuntimeError if one was refused.
    """
    over = threading.Event()

    async def all_of_them() -> None:
        readers = [
            asyncio.create_task(each(url)) for _ in range(count) for each in (_page, _events)
        ]
        await asyncio.to_thread(over.wait)
        for reader in readers:
            reader.cancel()
        ended = await asyncio.gather(*readers, return_exceptions=True)
        faults.extend(one for one in ended if not isinstance(one, asyncio.CancelledError))

    faults: list[object] = []
    thread = threading.Thread(target=asyncio.run, args=(all_of_them(),))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if faults:
        raise RuntimeError(f"{len(faults)} dashboards ended, the first by: {faults[0]!r}")


async def _page(url: str) -> None:
    """Ask for the content of the queue again and again."""
    reader, writer = await _connected(url)
    try:
        while True:
            head = await _ask(reader, writer, "/", "Topmast-Fragment: 1\r\n")
            await reader.readexactly(int(head["content-length"]))
            await asyncio.sleep(max(LEAST_PAUSE_S, int(head.get("topmast-rest", 0)) / 1_000))
    finally:
        writer.close()


async def _events(url: str) -> None:
    """Take the events as they come, until the server ends the stream."""
    reader, writer = await _connected(url)
    try:
        await _ask(reader, writer, "/api/v1/events", "")
        while await reader.read(READ_BYTES):
            pass
    finally:
        writer.close()


async def _connected(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    address = urlsplit(url)
    return await asyncio.open_connection(address.hostname, address.port, limit=1 << 24)


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, headers: str
) -> dict[str, str]:
    """The head of the answer. RuntimeError for an error."""
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n".encode())
    status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
    if status.split()[1] != "200":
        raise RuntimeError(f"{path} answered {status}")
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}
