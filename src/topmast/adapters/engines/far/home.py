"""What runners are answered when they call home."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from topmast.adapters import archive
from topmast.adapters.engines.execs import Execs, LiveExec
from topmast.adapters.engines.far import events as e
from topmast.adapters.engines.far.attempts import Attempt, Part
from topmast.adapters.engines.far.data import HostData, SavedBody
from topmast.adapters.engines.far.listener import Call, Reply
from topmast.adapters.engines.far.store import KINDS, Outputs
from topmast.adapters.engines.local import files
from topmast.model.messages import TaskReport
from topmast.ports import Site

NOT_HERE = Reply(404)
CALLS_OF_A_HOST = 32
"""That may wait for their answers at a time: a runner has half as many. A task that opens more in
its name takes no room from the runners of others.
"""
EXEC_LOOK_S = 5.0
"""How often it is looked whether a command has been forgotten by its user."""
WORDS_LONGEST = 2000
"""Of what a runner says for people; the rest is left out."""
Word = Annotated[str, Meta(max_length=300)]
Rank = Annotated[int, Meta(ge=0, lt=1 << 31)]


class Runner(Struct, frozen=True):
    """What every request of a runner says.

    A task can read the token of its runner, and speak in its place: what is out of bounds is 400.
    """

    host: Word
    nonce: Annotated[str, Meta(pattern="^[A-Za-z0-9]{1,64}$")]


class ClaimBody(Runner, frozen=True, kw_only=True):
    """``POST /PART/claim``."""

    address: Word = ""
    port: Annotated[int, Meta(ge=0, lt=1 << 16)] = 0
    run: Word = ""


class BeatBody(Runner, frozen=True, kw_only=True):
    """``POST /PART/beat``."""

    version: int
    """Of the orders that it has: it is answered when there are others, or after a while."""
    prepared: bool = False


class PreparingBody(Runner, frozen=True, kw_only=True):
    """``POST /PART/preparing``."""

    why: str


class EndBody(Runner, frozen=True, kw_only=True):
    """``POST /PART/end``."""

    rank: Rank
    code: Annotated[int, Meta(ge=0, lt=256)] | None
    at_s: float
    error: str = ""
    evicted: bool = False
    host_fault: bool = False


class PageQuery(Runner, frozen=True, kw_only=True):
    """``POST /PART/log``."""

    rank: Rank
    kind: str
    offset: Annotated[int, Meta(ge=0, lt=1 << 62)]


class ExecQuery(Runner, frozen=True, kw_only=True):
    """``POST /PART/exec`` with what a command wrote or how it ended, ``GET`` for its input."""

    id: Word
    stream: Annotated[int, Meta(ge=1, le=2)] = 1
    offset: Annotated[int, Meta(ge=0, lt=1 << 62)] = 0
    code: Annotated[int, Meta(ge=0, lt=256)] | None = None
    whole: str = ""
    """It knows already that there is no more input."""
    begin: str = ""
    """It has not begun, and asks whether it is to."""
    taken: Annotated[int, Meta(ge=0, lt=1 << 62)] | None = None
    """So much of its input the command has taken."""


class ExecNews(Struct, frozen=True):
    """What a command is to read."""

    data: bytes
    whole: bool
    end: bool


class Home:
    """Answers calls, in the listener's thread. The protocol decides; output goes to the disk."""

    def __init__(
        self,
        ask: Callable[[Struct], Awaitable[Any]],
        find: Callable[[str], tuple[Attempt, Part] | None],
        plan: Callable[[Attempt, Part, str], dict[str, Any]],
        outputs: Outputs,
        site: Site,
        data: HostData,
        execs: Execs,
        hold_s: float,
    ) -> None:
        self._ask = ask
        self._find = find
        self._plan = plan
        self._outputs = outputs
        self._site = site
        self._data = data
        self._execs = execs
        self._hold_s = hold_s
        self._changes: dict[str, asyncio.Event] = {}
        self._waiting: Counter[str] = Counter()
        """Calls that are being answered, by part."""
        self._sound: dict[str, str] = {}
        """What is at fault in an archive, by its digest."""
        self._calls: dict[str, Callable[[Call], Awaitable[Reply]]] = {
            "claim": self._claim, "beat": self._beat, "log": self._log, "end": self._end,
            "blob": self._blob, "preparing": self._preparing,
            "dataset": self._of_attempt(data.dataset), "object": self._of_attempt(data.object),
            "piece": self._of_attempt(data.piece), "saved": self._saved, "exec": self._exec,
        }  # fmt: skip

    async def answer(self, call: Call) -> Reply:
        """Answer one call."""
        handler, found = self._calls.get(call.name), self._find(call.part)
        if handler is None:
            return NOT_HERE
        if self._waiting[call.part] >= CALLS_OF_A_HOST * (len(found[1].places) if found else 1):
            return Reply(429)
        self._waiting[call.part] += 1
        try:
            return await handler(call)
        finally:
            self._waiting[call.part] -= 1
            if not self._waiting[call.part]:
                del self._waiting[call.part]

    def changed(self, parts: Iterable[str]) -> None:
        """Answer the beats of these parts: their orders may be others now."""
        for part in parts:
            waiting = self._changes.pop(part, None)
            if waiting is not None:
                waiting.set()

    def _host(self, part: str, host: str) -> str:
        """The name of a host; a runner may say the number of its place in the part instead."""
        found = self._find(part)
        names = [] if found is None else list(found[1].places)
        if host in names or not host.isdecimal() or int(host) >= len(names):
            return host
        return names[int(host)]

    async def _claim(self, call: Call) -> Reply:
        body = msgspec.json.decode(call.body, type=ClaimBody)
        host = self._host(call.part, body.host)
        claim = e.Claim(
            call.part, host, body.nonce, body.address, body.port, body.run
        )  # fmt: skip
        answer: e.Answer = await self._ask(claim)
        found = self._find(call.part)
        if answer.status != e.GRANTED or found is None:
            return Reply(answer.status)
        plan = self._plan(*found, host)
        return Reply(answer.status, msgspec.json.encode({"orders": answer.orders, "plan": plan}))

    async def _beat(self, call: Call) -> Reply:
        body = msgspec.json.decode(call.body, type=BeatBody)
        host = self._host(call.part, body.host)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._hold_s
        while True:
            changes = self._changes.setdefault(call.part, asyncio.Event())
            answer: e.Answer = await self._ask(
                e.Beat(call.part, host, body.nonce, prepared=body.prepared)
            )
            left_s = until_s - loop.time()
            known = answer.orders is not None and answer.orders.version == body.version
            if not known or left_s <= 0:
                return Reply(answer.status, msgspec.json.encode({"orders": answer.orders}))
            try:
                await asyncio.wait_for(changes.wait(), left_s)
            except TimeoutError:
                continue

    async def _preparing(self, call: Call) -> Reply:
        body = msgspec.json.decode(call.body, type=PreparingBody)
        host, why = self._host(call.part, body.host), _words(body.why)
        answer: e.Answer = await self._ask(e.Beat(call.part, host, body.nonce, why))
        return Reply(answer.status)

    def _of_attempt(
        self, answer: Callable[[Attempt, Call], Awaitable[Reply]]
    ) -> Callable[[Call], Awaitable[Reply]]:
        """What answers a call by the attempt of its part."""

        async def handler(call: Call) -> Reply:
            found = self._find(call.part)
            return NOT_HERE if found is None else await answer(found[0], call)

        return handler

    async def _saved(self, call: Call) -> Reply:
        found = self._find(call.part)
        if found is None:
            return NOT_HERE
        if call.body:  # only what has the claim may say what a host saved
            body = msgspec.json.decode(call.body, type=SavedBody)
            host = self._host(call.part, body.host)
            answer: e.Answer = await self._ask(e.Beat(call.part, host, body.nonce))
            if answer.status != e.GRANTED:
                return Reply(answer.status)
            named = msgspec.structs.replace(body, host=host)
            call = msgspec.structs.replace(call, body=msgspec.json.encode(named))
        return await self._data.saved(found[0], call)

    async def _log(self, call: Call) -> Reply:
        query = msgspec.convert(call.query, PageQuery, strict=False)
        host = self._host(call.part, query.host)
        answer: e.Answer = await self._ask(e.Beat(call.part, host, query.nonce))
        found = self._find(call.part)
        if answer.status != e.GRANTED or found is None:
            return Reply(answer.status)
        attempt, part = found
        if query.kind not in KINDS or query.rank not in part.places[host].ranks:
            return NOT_HERE
        file = self._outputs.file(*attempt.key, query.rank, query.kind)
        offset, full = await asyncio.to_thread(self._outputs.add, file, query.offset, call.body)
        return Reply(200, msgspec.json.encode({"offset": offset, "full": full}))

    async def _exec(self, call: Call) -> Reply:
        """A command beside a rank; only the runner with the claim may speak of it."""
        query = msgspec.convert(call.query, ExecQuery, strict=False)
        found, one = self._find(call.part), self._execs.get(query.id)
        place = found[1].places.get(self._host(call.part, query.host)) if found else None
        if one is None or place is None or place.nonce != query.nonce:
            return NOT_HERE
        if one.spec.rank not in place.ranks:
            return NOT_HERE
        if query.begin:
            ends = not one.may_begin()
            return Reply(200, msgspec.json.encode(ExecNews(b"", whole=False, end=ends)))
        if query.code is not None:
            one.finish(query.code)
            return Reply(200)
        if query.taken is not None:
            one.took(query.taken)
            return Reply(200)
        if call.body:
            return Reply(200, msgspec.json.encode(
                {"offset": one.add(query.stream, query.offset, call.body)}
            ))  # fmt: skip
        return await self._exec_input(one, query)

    async def _exec_input(self, one: LiveExec, query: ExecQuery) -> Reply:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._hold_s
        while True:
            changed = asyncio.Event()
            one.on_news(partial(_wake, loop, changed))
            data, whole = one.input(query.offset)
            left_s = until_s - loop.time()
            if data or one.over or (whole and not query.whole) or left_s <= 0:
                return Reply(200, msgspec.json.encode(ExecNews(data, whole, one.over)))
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), min(left_s, EXEC_LOOK_S))

    async def _end(self, call: Call) -> Reply:
        body = msgspec.json.decode(call.body, type=EndBody)
        host = self._host(call.part, body.host)
        found = self._find(call.part)
        report = TaskReport()
        if found is not None:
            progress = self._outputs.file(*found[0].key, body.rank, "progress")
            last = await asyncio.to_thread(files.last_report, progress)
            report = TaskReport(last.step, last.metrics)
        answer: e.Answer = await self._ask(
            e.RankEnded(
                call.part, host, body.nonce, body.rank, body.code, body.at_s,
                _words(body.error), body.evicted, report, body.host_fault,
            )
        )  # fmt: skip
        return Reply(answer.status)

    async def _blob(self, call: Call) -> Reply:
        found = self._find(call.part)
        return NOT_HERE if found is None else await asyncio.to_thread(self._archive, found[0])

    def _archive(self, attempt: Attempt) -> Reply:
        """The archive of the work folder, if nothing in it leads out of the folder."""
        digest = attempt.gang.spec.workdir
        path = self._site.blob_path(digest) if digest else None
        content = None if path is None else files.read_bytes(path)
        if content is None:
            return Reply(404, b"the work folder is not in the store")
        if digest not in self._sound:
            self._sound[digest] = archive.fault(content)
        fault = self._sound[digest]
        return Reply(422, fault.encode()) if fault else Reply(200, content)


def _wake(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(event.set)


def _words(said: str) -> str:
    return files.clean_text(said)[:WORDS_LONGEST]
