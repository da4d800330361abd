"""Commands of users beside running tasks: which are allowed, and what they write and read.

A command is no decision, and in no journal: its beginning is a line of the audit log, and what it
writes passes through. It ends with its task, with its user's interest, and with this server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from topmast.model.access import Caller, Permission
from topmast.model.errors import Conflict, InvalidInput, NotFound, TopmastError
from topmast.model.exec_views import (
    MOST_BYTES,
    MOST_WORDS,
    ExecInput,
    ExecPage,
    ExecSpec,
    ExecStarted,
)
from topmast.model.states import JobState
from topmast.model.views import JobView
from topmast.ports import ActRow, Exec
from topmast.runtime.loop import Runtime
from topmast.service.access import Access, act, json_text
from topmast.service.limits import Limits

PAGE_BYTES = 256 * 1024
"""Of each stream in one answer."""
LONGEST_WAIT_S = 20.0
TOLD_WORDS = 1_000
"""Characters of a command that the audit log keeps."""
MOST_KEPT = 1_000
GOING = (JobState.RUNNING, JobState.STARTING)

Begin = Callable[[str, str, ExecSpec], Exec]
"""(region, cluster, command) -> the command, begun. Blocks; raises TopmastError."""


class _Open(Struct):
    """A command that its user may ask about."""

    command: Exec
    job: str
    subject: str


class Commands:
    """The commands that were begun through this server."""

    def __init__(
        self,
        runtime: Runtime,
        access: Access,
        limits: Limits,
        job: Callable[[Caller, str], Awaitable[JobView]],
        require: Callable[[str, str], None],
        begin: Begin,
    ) -> None:
        """``require`` raises InvalidInput for a cluster (region, name) that runs none."""
        self._runtime = runtime
        self._access = access
        self._limits = limits
        self._job = job
        self._require = require
        self._begin = begin
        self._open: dict[str, _Open] = {}

    async def begin(
        self, caller: Caller, job: str, command: tuple[str, ...], task: int = 0, *,
        tty: bool = False, rows: int = 24, columns: int = 80,
    ) -> ExecStarted:  # fmt: skip
        """Run a command beside a task of a job that runs; returns when it is ordered."""
        self._limits.take(caller, "submit")
        view = await self._job(caller, job)
        own = caller.principal.trusted or view.user == caller.principal.user
        self._access.require(
            caller, Permission.JOBS_EXEC if own else Permission.JOBS_OTHERS, view.tenant
        )
        _check(command, rows, columns)
        after = json_text(task=task, tty=tty, command=" ".join(command)[:TOLD_WORDS])
        done = act(caller, "exec", view.id, view.tenant, after=after)
        try:
            region, cluster = self._place(view, task)
            self._require(region, cluster)
        except TopmastError as error:
            await self._note(done.row, f"refused: {error}")
            raise
        await self._note(done.row, "done")  # it is durable before anything runs
        spec = ExecSpec(view.id, view.attempts, task, command, tty, rows, columns)
        made = await asyncio.to_thread(self._begin, region, cluster, spec)
        while len(self._open) >= MOST_KEPT:
            del self._open[next(iter(self._open))]
        self._open[made.id] = _Open(made, view.id, caller.principal.subject)
        return ExecStarted(made.id, view.id, view.attempts, task, cluster)

    async def _note(self, row: ActRow, outcome: str) -> None:
        await asyncio.wrap_future(self._runtime.note(replace(row, outcome=outcome)))

    def _place(self, view: JobView, task: int) -> tuple[str, str]:
        if not 0 <= task < view.tasks:
            raise InvalidInput(f"the job has tasks 0 to {view.tasks - 1}", field="task")
        if JobState(view.state) not in GOING or view.region is None or view.cluster is None:
            raise Conflict(f"job '{view.id}' does not run: it is {view.state}")
        return view.region, view.cluster

    # --- while it runs --------------------------------------------------------------------------

    async def page(
        self, caller: Caller, job: str, id: str, stdout: int, stderr: int, wait_s: float
    ) -> ExecPage:
        """What it has written from these offsets on, as soon as there is any."""
        found = await self._found(caller, job, id)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + min(max(0.0, wait_s), LONGEST_WAIT_S)
        while True:
            news = asyncio.Event()
            found.on_news(partial(_ring, loop, news))
            page = await asyncio.to_thread(found.page, stdout, stderr, PAGE_BYTES)
            left_s = until_s - loop.time()
            if page.stdout or page.stderr or page.code is not None or left_s <= 0:
                return page
            with suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), min(left_s, found.look_s or left_s))

    async def write(
        self, caller: Caller, job: str, id: str, offset: int, data: bytes, *, last: bool
    ) -> ExecInput:
        """Give it input; all of it was taken up to the offset that is returned."""
        found = await self._found(caller, job, id)
        return ExecInput(await asyncio.to_thread(found.write, offset, data, last=last))

    async def end(self, caller: Caller, job: str, id: str) -> None:
        """Have it ended."""
        found = await self._found(caller, job, id)
        await asyncio.to_thread(found.end)

    async def _found(self, caller: Caller, job: str, id: str) -> Exec:
        """The command, for the caller that began it and may still see its job."""
        view = await self._job(caller, job)
        known = self._open.get(id)
        mine = known is not None and known.subject == caller.principal.subject
        if known is None or not mine or known.job != view.id:
            raise NotFound(f"no command '{id[:40]}' runs beside job '{job}'")
        return known.command


def _check(command: tuple[str, ...], rows: int, columns: int) -> None:
    """Raises InvalidInput for what cannot be run."""
    if not command or not command[0]:
        raise InvalidInput("no command is given", field="command", remedy='["nvidia-smi"]')
    if len(command) > MOST_WORDS:
        raise InvalidInput(f"more than {MOST_WORDS} words", field="command")
    try:
        size = sum(len(word.encode()) for word in command)
    except UnicodeEncodeError:
        raise InvalidInput("a word is no text", field="command") from None
    if size > MOST_BYTES:
        raise InvalidInput(f"more than {MOST_BYTES} bytes", field="command")
    if any("\0" in word for word in command):
        raise InvalidInput("a word has a NUL character", field="command")
    for name, value in (("rows", rows), ("columns", columns)):
        if not 1 <= value <= 1_000:
            raise InvalidInput("a terminal has 1 to 1000", field=name)


def _ring(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the server has ended
        loop.call_soon_threadsafe(event.set)
