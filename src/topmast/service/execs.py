"""Commands of users beside running tasks: which are allowed, and what they write and read.

A command is no decision, and in no journal: its beginning is a line of the audit log, and what it
writes passes through. It ends with its task, with its user's interest, with its user's permission,
and with this server.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from topmast.adapters.answering import waiting
from topmast.adapters.handing import handed
from topmast.model.access import Caller, Permission
from topmast.model.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    TooMany,
    TopmastError,
    refuse_all,
)
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
MOST_OF_ONE = 8
"""Commands that run at a time for one account: a cluster runs some dozens, for all."""
SILENT_S = 60.0
"""A command that its user has not asked about for so long is ended by its engine."""
LOOK_S = 3.0
"""How often it is looked whether users of running commands may still run them."""
GOING = (JobState.RUNNING, JobState.STARTING)

R = TypeVar("R")

Begin = Callable[[str, str, ExecSpec], Exec]
"""(region, cluster, command) -> the command, begun. Blocks; raises TopmastError."""


class _Open(Struct):
    """A command that its user may ask about."""

    command: Exec
    job: str
    user: str
    tenant: str
    """Of the job."""
    caller: Caller
    """Which began it."""
    asked_s: float
    over: bool = False
    """Its user was told how it ended, or wants no more of it."""

    @property
    def subject(self) -> str:
        """The account that began it."""
        return self.caller.principal.subject

    def is_live(self, now_s: float) -> bool:
        """Whether it may run still."""
        return not self.over and now_s - self.asked_s < SILENT_S


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
        renewed: Callable[[Caller], Caller | None],
        outside: Executor,
    ) -> None:
        """``require`` raises InvalidInput for a cluster (region, name) that runs none.

        ``outside``: threads for calls that wait for the machines of tasks.

        ``renewed``: a caller with the roles that it has now; None if its proof is good no more.
        """
        self._runtime = runtime
        self._access = access
        self._limits = limits
        self._job = job
        self._require = require
        self._begin = begin
        self._renewed = renewed
        self._outside = outside
        self._open: dict[str, _Open] = {}
        self._beginning: Counter[str] = Counter()
        self._watching: asyncio.Task[None] | None = None

    async def begin(
        self, caller: Caller, job: str, command: tuple[str, ...], task: int = 0, *,
        tty: bool = False, rows: int = 24, columns: int = 80,
    ) -> ExecStarted:  # fmt: skip
        """Run a command beside a task of a job that runs; returns when it is ordered."""
        self._limits.take(caller, "submit")
        view = await self._job(caller, job)
        self._allow(caller, view.user, view.tenant)
        _check(command, rows, columns)
        after = json_text(task=task, tty=tty, command=" ".join(command)[:TOLD_WORDS])
        done = act(caller, "exec", view.id, view.tenant, after=after)
        with self._room(caller.principal.subject):
            try:
                region, cluster = self._place(view, task)
                self._require(region, cluster)
            except TopmastError as error:
                await self._note(done.row, f"refused: {error}")
                raise
            await self._note(done.row, "done")  # it is durable before anything runs
            spec = ExecSpec(view.id, view.attempts, task, command, tty, rows, columns)
            made = await self._call(self._begin, region, cluster, spec)
            self._open[made.id] = _Open(made, view.id, view.user, view.tenant, caller, _now_s())
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
        return ExecStarted(made.id, view.id, view.attempts, task, cluster)

    def _allow(self, caller: Caller, user: str, tenant: str) -> None:
        """Raises Forbidden for commands beside a job of a user and a tenant."""
        own = caller.principal.trusted or user == caller.principal.user
        self._access.require(
            caller, Permission.JOBS_EXEC if own else Permission.JOBS_OTHERS, tenant
        )

    @contextmanager
    def _room(self, subject: str) -> Iterator[None]:
        """Room for one more command of an account, while it begins. Raises TooMany."""
        now_s = _now_s()
        live = sum(1 for x in self._open.values() if x.subject == subject and x.is_live(now_s))
        if live + self._beginning[subject] >= MOST_OF_ONE:
            raise TooMany(f"{MOST_OF_ONE} commands of {subject} run already", LOOK_S)
        if len(self._open) >= MOST_KEPT:
            oldest = next((id for id, x in self._open.items() if not x.is_live(now_s)), None)
            if oldest is None:
                raise TooMany(f"{MOST_KEPT} commands run already", LOOK_S)
            del self._open[oldest]
        self._beginning[subject] += 1
        try:
            yield
        finally:
            self._beginning[subject] -= 1
            if not self._beginning[subject]:
                del self._beginning[subject]

    async def _watch(self) -> None:
        """As long as commands run: end those that their users may run no more."""
        while live := [x for x in self._open.values() if x.is_live(_now_s())]:
            for one in live:
                await self._end_forbidden(one)
            await asyncio.sleep(LOOK_S)

    async def _end_forbidden(self, one: _Open) -> None:
        caller = self._renewed(one.caller) if one.caller.token else one.caller
        try:
            if caller is not None:
                self._allow(caller, one.user, one.tenant)
                return
        except TopmastError:
            pass
        one.over = True
        with suppress(TopmastError):  # its region is out of reach, and ends it unasked
            await self._call(one.command.end)

    async def _call(self, call: Callable[..., R], *given: Any) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._outside, call, *given)

    async def _note(self, row: ActRow, outcome: str) -> None:
        await handed(self._runtime.note(replace(row, outcome=outcome)))

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
        known = await self._found(caller, job, id)
        found = known.command
        loop = asyncio.get_running_loop()
        until_s = loop.time() + min(max(0.0, wait_s), LONGEST_WAIT_S)
        while True:
            news = asyncio.Event()
            found.on_news(partial(_ring, loop, news))
            page = await self._call(found.page, stdout, stderr, PAGE_BYTES)
            left_s = until_s - loop.time()
            if page.stdout or page.stderr or page.code is not None or left_s <= 0:
                known.over = known.over or page.code is not None
                return page
            with suppress(TimeoutError), waiting():
                await asyncio.wait_for(news.wait(), min(left_s, found.look_s or left_s))

    async def write(
        self, caller: Caller, job: str, id: str, offset: int, data: bytes, *, last: bool
    ) -> ExecInput:
        """Give it input; all of it was taken up to the offset that is returned."""
        found = await self._found(caller, job, id)
        return ExecInput(await self._call(partial(found.command.write, offset, data, last=last)))

    async def end(self, caller: Caller, job: str, id: str) -> None:
        """Have it ended."""
        found = await self._found(caller, job, id)
        found.over = True
        await self._call(found.command.end)

    async def _found(self, caller: Caller, job: str, id: str) -> _Open:
        """The command, for the caller that began it and may still run it."""
        view = await self._job(caller, job)
        known = self._open.get(id)
        if known is None or known.subject != caller.principal.subject or known.job != view.id:
            raise NotFound(f"no command '{id[:40]}' runs beside job '{job}'")
        self._allow(caller, known.user, known.tenant)
        known.asked_s = _now_s()
        return known


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _check(command: tuple[str, ...], rows: int, columns: int) -> None:
    """Raises InvalidInput for what cannot be run."""
    refuse_all(_faults(command, rows, columns))


def _faults(command: tuple[str, ...], rows: int, columns: int) -> Iterator[InvalidInput]:
    if not command or not command[0]:
        yield InvalidInput("no command is given", field="command", remedy='["nvidia-smi"]')
    elif len(command) > MOST_WORDS:
        yield InvalidInput(f"more than {MOST_WORDS} words", field="command")
    elif any(map(_is_no_text, command)):
        yield InvalidInput("a word is no text", field="command")
    elif sum(len(word.encode()) for word in command) > MOST_BYTES:
        yield InvalidInput(f"more than {MOST_BYTES} bytes", field="command")
    elif any("\0" in word for word in command):
        yield InvalidInput("a word has a NUL character", field="command")
    for name, value in (("rows", rows), ("columns", columns)):
        if not 1 <= value <= 1_000:
            yield InvalidInput("a terminal has 1 to 1000", field=name)


def _is_no_text(word: str) -> bool:
    """Whether it has half a surrogate pair."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return True
    return False


def _ring(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the server has ended
        loop.call_soon_threadsafe(event.set)
