"""The output of a task, over the attempts of its job, as it is written."""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Callable, Iterator
from itertools import islice

import httpx
from msgspec import Struct

from topmast.client.transport import LONGEST_PAUSE_S, Transport, client_backoff, patiently
from topmast.model.errors import InvalidInput, NotFound, TopmastError
from topmast.model.states import TERMINAL, JobState
from topmast.model.views import JobView

CHUNK_BYTES = 2**18
TURN_PIECES = 4
"""So many pieces of one task's output are read before those of others get their turn."""


class LogChunk(Struct, frozen=True):
    """Some output of one attempt, in order; ``str(chunk)`` is its text."""

    attempt: int
    text: str
    task: int = 0

    def __str__(self) -> str:
        return self.text


def task_to_read(job: JobView) -> int:
    """The task by which a job failed, as its cause says; else the first."""
    failed = re.match(r"task (\d+)\b", job.cause) if job.state == JobState.FAILED else None
    return int(failed[1]) if failed and int(failed[1]) < job.tasks else 0


def _next_offset(answer: httpx.Response, offset: int) -> int | None:
    """Where the next piece begins; None if the server names no place beyond this one."""
    told = answer.headers.get("X-Next-Offset", str(offset + len(answer.content)))
    leads_on = told.isdecimal() and len(told) <= 18 and int(told) > offset
    return int(told) if leads_on else None


class Tail:
    """The output of one task in one attempt, as far as it was read."""

    def __init__(
        self, fetch: Callable[[int, int, int], httpx.Response], attempt: int, task: int, must: bool
    ) -> None:
        """``must``: the attempt has to exist; otherwise its launch may have failed."""
        self._fetch, self._attempt, self._task, self._must = fetch, attempt, task, must
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._offset = 0
        self.is_complete = False
        """Nothing will come after what was read."""

    def more(self) -> Iterator[LogChunk]:
        """All that was written since, piece by piece."""
        while not self.is_complete:
            try:
                answer = self._fetch(self._task, self._attempt, self._offset)
            except NotFound:
                if self._must:
                    raise
                return
            # Where there is nothing to read, the server may not know how far we are.
            onward = _next_offset(answer, self._offset) if answer.content else self._offset
            if onward is not None:
                self._offset = onward
            self.is_complete = answer.headers.get("X-Complete") == "1"
            if text := self._decoder.decode(answer.content):
                yield LogChunk(self._attempt, text, self._task)
            if onward is None:
                raise TopmastError(
                    "the server's answer does not say how to continue a log, "
                    f"of which {self._offset} bytes were read before"
                )
            if not answer.content:
                return

    def rest(self) -> Iterator[LogChunk]:
        """What is left of a character that was not written to its end."""
        if rest := self._decoder.decode(b"", final=True):
            yield LogChunk(self._attempt, rest, self._task)


def _rests(tails: list[Tail]) -> Iterator[LogChunk]:
    for tail in tails:
        yield from tail.rest()


class LogReader:
    """Reads the output of one task of a job; ``task`` None: the one that failed, or the first."""

    def __init__(
        self,
        transport: Transport,
        path: str,
        task: int | None,
        look: Callable[[], JobView],
        patience_s: float,
        on_wait: Callable[[JobView], None] = lambda job: None,
    ) -> None:
        self._transport = transport
        self._path = path
        self._task = task or 0
        self._is_chosen = task is not None
        self._look = look
        self._patience_s = patience_s
        self._on_wait = on_wait

    def read(self, attempt: int | None, follow: bool) -> Iterator[LogChunk]:
        """What ``attempt`` (None: the latest) wrote; with ``follow`` on to the end of the job."""
        job = self._look()
        if not self._is_chosen:
            self._task = task_to_read(job)
        if not job.attempts and not 0 <= self._task < job.tasks:
            raise InvalidInput(f"the job has tasks 0 to {job.tasks - 1}", field="task")
        while follow and not attempt and not job.attempts and job.state not in TERMINAL:
            time.sleep(LONGEST_PAUSE_S)
            job = self._look_again()
            self._tell_wait(job, 0)
        current, must_exist = attempt or job.attempts, True
        while current:
            yield from self._one(current, follow, must_exist)
            if not follow or attempt:
                return
            current, must_exist = self._next(current), False

    def _next(self, current: int) -> int:
        """The attempt after ``current``, awaited; 0 when the job ended without one."""
        backoff = client_backoff()
        while True:
            job = self._look_again()
            if job.attempts > current:
                return current + 1
            if job.state in TERMINAL:
                return 0
            self._tell_wait(job, current)
            time.sleep(backoff.take())

    def _tell_wait(self, job: JobView, current: int) -> None:
        """Report to the caller a job that may get another attempt after ``current``."""
        if job.attempts == current and job.state not in TERMINAL:
            self._on_wait(job)

    def _one(self, attempt: int, follow: bool, must_exist: bool) -> Iterator[LogChunk]:
        """The output of one attempt, to its end, or to what there is now."""
        tails = self._tails(attempt, must_exist)
        over, backoff = not follow, client_backoff()
        while tails:
            grew = False
            for tail in tails:
                for chunk in islice(tail.more(), TURN_PIECES if follow else None):
                    grew = True
                    yield chunk
            ended = [tail for tail in tails if tail.is_complete]
            tails = [tail for tail in tails if not tail.is_complete]
            yield from _rests(ended)
            if not tails:
                break
            if grew and follow:
                over = False
                backoff.reset()
                continue
            if over:
                break
            job = self._look_again()
            # What the attempt wrote last may still be unread: read once more.
            over = job.state in TERMINAL or job.attempts > attempt
            if not over:
                time.sleep(backoff.take())
        yield from _rests(tails)

    def _tails(self, attempt: int, must_exist: bool) -> list[Tail]:
        """What to read of an attempt."""
        return [Tail(self._fetch, attempt, self._task, must_exist)]

    def _fetch(self, task: int, attempt: int, offset: int) -> httpx.Response:
        params = {"task": task, "attempt": attempt, "offset": offset, "limit": CHUNK_BYTES}
        return patiently(
            lambda: self._transport.send("GET", self._path, params=params), self._patience_s
        )

    def _look_again(self) -> JobView:
        return patiently(self._look, self._patience_s)


class AllLogsReader(LogReader):
    """Reads the output of all tasks of a job, in turns."""

    def _tails(self, attempt: int, must_exist: bool) -> list[Tail]:
        tasks = self._look_again().tasks
        return [Tail(self._fetch, attempt, task, must_exist) for task in range(tasks)]
