"""The output of the jobs of a sweep, as they write it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

import httpx
from msgspec import Struct

from topmast.client.logs import CHUNK_BYTES, TURN_PIECES, LogChunk, Tail, task_to_read
from topmast.client.transport import Transport, client_backoff, path_of, patiently
from topmast.model.ids import job_id, job_number
from topmast.model.states import TERMINAL
from topmast.model.sweep_views import SweepView
from topmast.model.views import JobPage, JobView

PAGE_JOBS = 1_000


class SweepChunk(Struct, frozen=True):
    """Some output of one job of a sweep, in order; ``str(chunk)`` is its text."""

    index: int
    """Which job of the sweep, from 0."""
    job: str
    attempt: int
    text: str
    task: int = 0

    def __str__(self) -> str:
        return self.text


class SweepReader:
    """Reads of each job what its first task writes, or the one by which it failed."""

    def __init__(
        self, transport: Transport, look: Callable[[], SweepView], patience_s: float
    ) -> None:
        self._transport = transport
        self._look = look
        self._patience_s = patience_s
        self._tails: dict[str, Tail] = {}
        """Of the attempts that are read, by job."""
        self._attempts: dict[str, int] = {}
        """The number of each."""

    def read(self, follow: bool) -> Iterator[SweepChunk]:
        """The latest attempt of each job; with ``follow`` on, to the end of the sweep."""
        sweep = patiently(self._look, self._patience_s)
        first = job_number(sweep.first_job)
        known = {job.id: job for job in self._jobs(sweep.id)}
        left: dict[str, None] = {}
        for index in range(sweep.jobs):
            name = job_id(first + index)
            job = known.get(name) or self._job(name)
            if follow and job.state not in TERMINAL:
                left[name] = None
            yield from self._of(job, index, follow)
        backoff = client_backoff()
        while left:
            time.sleep(backoff.take())
            active = {job.id: job for job in self._jobs(sweep.id, "active")}
            for name in tuple(left):
                job = active.get(name) or self._job(name)
                for chunk in self._of(job, job_number(name) - first, follow):
                    backoff.reset()
                    yield chunk
                if job.state in TERMINAL:
                    del left[name]

    def _of(self, job: JobView, index: int, follow: bool) -> Iterator[SweepChunk]:
        """What a job has written since, of each attempt that has begun since."""
        over = job.state in TERMINAL or not follow
        if job.attempts and job.id not in self._tails:
            self._begin(job, job.attempts)
        while job.id in self._tails:
            attempt, tail = self._attempts[job.id], self._tails[job.id]
            ended = over or attempt < job.attempts
            pieces = tail.more() if ended else islice(tail.more(), TURN_PIECES)
            for chunk in pieces:
                yield _chunk(job, index, chunk)
            if not ended:
                return
            for chunk in tail.rest():
                yield _chunk(job, index, chunk)
            del self._tails[job.id], self._attempts[job.id]
            if attempt < job.attempts:
                self._begin(job, attempt + 1)

    def _begin(self, job: JobView, attempt: int) -> None:
        path, task = path_of("jobs", job.id, "logs"), task_to_read(job)

        def fetch(task: int, attempt: int, offset: int) -> httpx.Response:
            params = {"task": task, "attempt": attempt, "offset": offset, "limit": CHUNK_BYTES}
            return patiently(
                lambda: self._transport.send("GET", path, params=params), self._patience_s
            )

        self._tails[job.id] = Tail(fetch, attempt, task, must=False)
        self._attempts[job.id] = attempt

    def _jobs(self, sweep: str, state: str | None = None) -> Iterator[JobView]:
        """Those that the server has in memory, the newest first."""
        cursor: str | None = None
        while True:
            page = patiently(partial(self._page, sweep, state, cursor), self._patience_s)
            yield from page.jobs
            cursor = page.next_cursor
            if cursor is None:
                return

    def _page(self, sweep: str, state: str | None, cursor: str | None) -> JobPage:
        return self._transport.get(
            JobPage, "/jobs", selector=f"sweep={sweep}", state=state, limit=PAGE_JOBS,
            cursor=cursor,
        )  # fmt: skip

    def _job(self, job: str) -> JobView:
        return patiently(
            lambda: self._transport.get(JobView, path_of("jobs", job)), self._patience_s
        )


def _chunk(job: JobView, index: int, chunk: LogChunk) -> SweepChunk:
    return SweepChunk(index, job.id, chunk.attempt, chunk.text, chunk.task)
