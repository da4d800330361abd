"""`topmast replay --serve`: the pages of any past moment of a state folder, for reading."""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import parse_qs

from markupsafe import escape
from msgspec.structs import replace
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from topmast.adapters.connections import limits_for
from topmast.adapters.engines.registry import ENGINES as KINDS
from topmast.adapters.kernels import load_kernels
from topmast.adapters.store import SqlJournal, existing_store, open_journal
from topmast.api import create_api
from topmast.api.guard import SAFE_METHODS, Head, LoopbackGate, Refusal
from topmast.api.problems import answered
from topmast.app.claim import ENGINES
from topmast.app.replay import profile_of_state
from topmast.app.server import bind, configure_logs, raise_open_files, run
from topmast.cli.output import say, say_block
from topmast.cli.rootoptions import ReplayOptions
from topmast.model.access import READING, Caller
from topmast.model.errors import InvalidInput, NotFound, TopmastError
from topmast.model.problem import status_of
from topmast.ports import LogPage, Snapshot
from topmast.routing import SECURITY_HEADERS
from topmast.runtime.machines import Machines
from topmast.service.blobs import Blobs
from topmast.service.past import FIXED, past_service
from topmast.web import Replay
from topmast.web import routes as pages

MOMENTS = 8
"""So many moments are kept as they were last looked at."""
STOPS = 400
"""Of the slider."""
SNAPSHOTS = 64
SNAPSHOT_RECORDS = 2_000
"""A moment so many records behind the snapshot before it becomes a snapshot itself."""
AT = "at"
"""The query parameter that names the moment; a cookie keeps it for pages without it."""


def serve_past(options: ReplayOptions) -> int:
    """Serve until a signal."""
    limits = limits_for(raise_open_files())
    configure_logs()
    load_kernels()
    with ExitStack() as stack:
        journal = open_journal(existing_store(options.state), read_only=True)
        stack.callback(journal.close)
        listener = stack.enter_context(bind(options.host, options.port))
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        moments = Moments(options.state, journal, Blobs(scratch))
        moments.span_s()  # it fails at once where there is nothing to show
        run(
            moments, options.state, [listener], partial(_say_ready, options),
            most_connections=limits.connections, announced=False,
        )  # fmt: skip
    return 0


def _say_ready(options: ReplayOptions, url: str) -> None:
    if options.json:
        say_block(json.dumps({"url": url, "state": str(options.state)}))
    else:
        say(f"The past of {options.state} is at {url}")
        say("Nothing can be changed there; stop with Ctrl-C.")
    sys.stdout.flush()


class ReplayGate(LoopbackGate):
    """Lets the person of this machine read, and do nothing else."""

    reads_take: tuple[str, ...] = (AT,)

    async def caller(self, head: Head) -> Caller:
        """The person. Raises Refusal."""
        known = await super().caller(head)
        if head.method not in SAFE_METHODS:
            raise Refusal(403, FIXED)
        return replace(known, principal=replace(known.principal, scopes=READING, trusted=False))


class Moments:
    """The application: each request is answered as at the moment that it names.

    A moment is rebuilt when it is first asked for, from the nearest snapshot before it.
    """

    def __init__(self, state: Path, journal: SqlJournal, blobs: Blobs) -> None:
        self._state = state
        self._journal = journal
        self._blobs = blobs
        self._profile = profile_of_state(state)
        self._snapshots: list[Snapshot] = []
        self._apps: dict[float, ASGIApp] = {}

    def span_s(self) -> tuple[float, float]:
        """The first and the last moment there is. Raises NotFound."""
        found = self._journal.span_s()
        if found is None:
            raise NotFound(f"nothing is written in {self._state} yet")
        return found

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        name = f"topmast-{AT}-{(scope.get('server') or ('', 0))[1]}"
        named = parse_qs(scope["query_string"].decode("latin-1")).get(AT, [""])[-1]
        try:
            first_s, last_s = self.span_s()
            text = named or _cookie(scope, name)
            wanted_s = _seconds(text) if text else last_s
            at_s = min(max(round(wanted_s, 3), first_s), last_s)
            app = self._app(at_s, first_s, last_s)
        except TopmastError as error:
            is_page = not scope["path"].startswith("/api/")
            await (_in_words(error) if is_page else answered(error))(scope, receive, send)
            return

        async def keep(message: Message) -> None:
            if message["type"] == "http.response.start" and named and message["status"] < 400:
                headers = MutableHeaders(scope=message)
                headers.append(
                    "Set-Cookie", f"{name}={at_s:.3f}; Path=/; HttpOnly; SameSite=Strict"
                )
            await send(message)

        await app(scope, receive, keep)

    def _app(self, at_s: float, first_s: float, last_s: float) -> ASGIApp:
        app = self._apps.pop(at_s, None)
        if app is None:
            while len(self._apps) >= MOMENTS:
                del self._apps[next(iter(self._apps))]
            app = self._made(at_s, first_s, last_s)
        self._apps[at_s] = app
        return app

    def _made(self, at_s: float, first_s: float, last_s: float) -> ASGIApp:
        machines = Machines(self._profile)
        service, rebuilt = past_service(
            machines, self._journal, at_s, self._read_log, self._blobs, self._snapshots
        )
        if rebuilt.replayed >= SNAPSHOT_RECORDS:
            blobs = {address: machine.snapshot() for address, machine in machines.addressed()}
            self._keep(Snapshot(rebuilt.seq, at_s, blobs))
        times = {t for t in self._journal.times_s(STOPS) if first_s < t < last_s}
        stops = tuple(round(t, 3) for t in sorted({first_s, *times, last_s}))
        shown = Replay(at_s, first_s, last_s, self._state.resolve().name, stops)
        return create_api(service, gate=ReplayGate(), pages=pages(service, shown))

    def _keep(self, snapshot: Snapshot) -> None:
        if len(self._snapshots) >= SNAPSHOTS:
            del self._snapshots[1::2]
        self._snapshots = sorted([*self._snapshots, snapshot], key=lambda one: one.seq)

    def _read_log(
        self, cluster: str, job: str, epoch: int, rank: int, offset: int, limit: int
    ) -> LogPage | None:
        """Output as it is now, if its files are left here."""
        folder = self._state / ENGINES / cluster
        pages = (k.read_stored_log(folder, job, epoch, rank, offset, limit) for k in KINDS.values())
        return next((page for page in pages if page is not None), None)


def _cookie(scope: Scope, name: str) -> str:
    """What a cookie says; empty without it."""
    try:
        found = SimpleCookie(Headers(scope=scope).get("cookie", "")).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value


def _in_words(error: TopmastError) -> Response:
    """A page that says why no moment can be shown, and leads to the last one."""
    status, title = status_of(error)
    words = f"<h1>{escape(title)}</h1><p>{escape(str(error))}.</p>"
    onward = '<p><a href="/?at=9999999999">To the last moment of the replay</a></p>'
    head = f'<meta charset="utf-8"><title>{escape(title)} · Topmast</title>'
    text = f'<!doctype html><html lang="en"><head>{head}</head><body><main>{words}{onward}</main>'
    return HTMLResponse(f"{text}</body></html>", status, headers=SECURITY_HEADERS)


def _seconds(text: str) -> float:
    """A moment as seconds since the epoch, or as a date and time in UTC."""
    try:
        found = float(text)
    except ValueError:
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise InvalidInput(
                f"'{text[:50]}' is no time", field=AT, remedy="2030-01-31T12:00:00, in UTC"
            ) from None
        found = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    if found != found:
        raise InvalidInput("is no time", field=AT)
    return found
