"""Tells webhooks of what is in the journal: at least once, in order, and beside all decisions.

Each webhook has a thread and a cursor of its own. The thread reads the history as any reader does,
so a receiver that hangs delays its own messages and nothing else. The cursors are kept in the
journal's database, all in one transaction: the next leader goes on from there. All threads together
take a part of one processor, however much there is to tell: decisions need the interpreter, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec
import structlog
from msgspec.structs import replace

from topmast.adapters.backoff import Backoff
from topmast.adapters.clock import elapsed_s, thread_cpu_s, wall_s
from topmast.adapters.webhooks import Undelivered, resolved, signature
from topmast.model.errors import TopmastError
from topmast.model.webhooks import Webhook, WebhookView
from topmast.ports import Clock, HistoryRow

LIST = "webhooks"
"""The option of the journal with all webhooks."""
CURSOR = "webhook-cursor:{}"
"""The option with the last line of history that a webhook has been told of."""
SCORE = "webhook-score:{}"
"""The option with what became of its messages so far."""
POLL_S = 0.5
SAVE_S = 2.0
"""So often the cursors are kept at most: after a crash, messages since then come again."""
SHARE = 0.25
"""The part of a processor that all webhooks take together."""
PAGE_ROWS = 500
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0
GIVEN_UP_S = 3 * 86_400.0
CLOSE_S = 1.0

log = structlog.get_logger(__name__)


class Feed(Protocol):
    """The part of the journal that a notifier works on."""

    def history_after(self, after: int, limit: int) -> list[tuple[int, HistoryRow]]:
        """Lines of the history behind one, oldest first, with their numbers."""
        ...

    def history_count(self) -> int:
        """The number of the newest line."""
        ...

    def option(self, name: str) -> str | None:
        """What was kept."""
        ...

    def set_options(self, values: Mapping[str, str]) -> None:
        """Keep some things, in one transaction."""
        ...

    def leads(self) -> bool:
        """Whether this process still leads."""
        ...


class Told(msgspec.Struct, frozen=True):
    """The job that an event is about."""

    id: str
    name: str
    tenant: str
    user: str
    labels: dict[str, str]


class Score(msgspec.Struct, frozen=True):
    """What became of the messages of a webhook."""

    delivered: int = 0
    given_up: int = 0
    delivered_s: float | None = None
    """When the last one was taken."""


class Message(msgspec.Struct, frozen=True):
    """What a webhook is told."""

    id: str
    """The same for each trial: a receiver can tell what it has taken before."""
    event: str
    at_s: float
    text: str
    job: Told | None
    """None: it is about no job."""
    detail: dict[str, object]


Send = Callable[[str, bytes, dict[str, str]], None]
"""Posts a body to a URL; raises Undelivered."""
Check = Callable[[str], None]
"""Raises Undelivered for a URL that `Send` would not call; sends nothing."""
Find = Callable[[str], Told | None]
"""The job of this id; None: it is not known any more."""
Keep = Callable[[Mapping[str, str]], None]
"""Keeps options of the journal, all in one transaction."""
Path = Callable[[str], Sequence[str]]
"""A tenant and those above it."""


class Notifier:
    """The webhooks of a server that leads."""

    def __init__(
        self, feed: Feed, clock: Clock, find: Find, path: Path, send: Send, check: Check
    ) -> None:
        self.feed, self.clock, self.find, self.path, self.send = feed, clock, find, path, send
        self._check = check
        self._lock = threading.Lock()
        self._workers: dict[str, _Worker] = {}
        self._keeping = threading.Lock()
        self._kept: dict[str, int] = {}
        """The cursors that the journal has."""
        self._kept_s = elapsed_s()
        self._telling: set[str] = set()
        """Webhooks that have something to tell."""

    def open(self) -> None:
        """Go on where the leader before stopped."""
        for webhook in msgspec.json.decode(self.feed.option(LIST) or "[]", type=list[Webhook]):
            cursor = self.feed.option(CURSOR.format(webhook.name))
            score = self.feed.option(SCORE.format(webhook.name)) or "{}"
            at = self.feed.history_count() if cursor is None else int(cursor)
            self._start(webhook, at, msgspec.json.decode(score, type=Score))

    def close(self) -> None:
        """Keep the cursors, and wait for no receiver."""
        for worker in self._workers.values():
            worker.stop()
        for worker in self._workers.values():
            worker.join(CLOSE_S)
        try:
            self.keep_cursors(at_once=True)
        except TopmastError as error:
            log.info("cursors of webhooks are not kept", why=str(error))

    def keep_cursors(self, *, at_once: bool = False) -> None:
        """Keep those that have moved, if it is time to and no other thread does."""
        if not (at_once or elapsed_s() - self._kept_s >= SAVE_S):
            return
        if not self._keeping.acquire(blocking=at_once):
            return
        try:
            workers = dict(self._workers)
            now = {name: worker.cursor for name, worker in workers.items()}
            moved = {name: at for name, at in now.items() if self._kept.get(name) != at}
            if moved and self.feed.leads():
                options = {CURSOR.format(name): str(at) for name, at in moved.items()}
                for name in moved:
                    options[SCORE.format(name)] = _json(workers[name].score)
                self.feed.set_options(options)
                self._kept |= moved
            self._kept_s = elapsed_s()
        finally:
            self._keeping.release()

    def rest_s(self, name: str, took_s: float, *, more: bool) -> float:
        """How long a webhook rests that has had a processor for ``took_s``; ``more`` is to come."""
        (self._telling.add if more else self._telling.discard)(name)
        return took_s * (len(self._telling) / SHARE - 1.0) if more else 0.0

    def views(self) -> tuple[WebhookView, ...]:
        """All webhooks by name, and how they go."""
        newest = self.feed.history_count()
        with self._lock:
            return tuple(self._workers[name].view(newest) for name in sorted(self._workers))

    def put(self, webhook: Webhook, keep: Keep) -> None:
        """Add a webhook, or change it; a new one is told of what comes from now on."""
        with self._lock:
            before = self._workers.get(webhook.name)
            cursor = self.feed.history_count()
            if before is not None:
                before.stop()
                cursor = before.cursor
            known = {name: worker.webhook for name, worker in self._workers.items()}
            kept = {**known, webhook.name: webhook}
            score = Score()
            keep({
                CURSOR.format(webhook.name): str(cursor),
                SCORE.format(webhook.name): _json(score),
                LIST: _written(kept),
            })  # fmt: skip
            self._start(webhook, cursor, score)

    def remove(self, name: str, keep: Keep) -> None:
        """Remove a webhook that is there."""
        with self._lock:
            self._workers.pop(name).stop()
            keep({LIST: _written({n: worker.webhook for n, worker in self._workers.items()})})

    def _start(self, webhook: Webhook, cursor: int, score: Score) -> None:
        self._workers[webhook.name] = worker = _Worker(self, webhook, cursor, score)
        self._kept[webhook.name] = cursor
        worker.start()

    def look_for_troubles(self, webhook: Webhook, tell: Callable[[str], None]) -> None:
        """Tell all that would keep messages from being sent, as things are; sends none."""
        if webhook.secret:
            try:
                signature(resolved(webhook.secret), "", 0, b"")
            except Undelivered as error:
                tell(str(error))
        try:
            self._check(resolved(webhook.url))
        except Undelivered as error:
            tell(str(error))

    def send_now(self, webhook: Webhook, message: Message) -> None:
        """Send one message. Raises Undelivered.

        Its timestamp is for a receiver that compares it with a clock of its own: it is the
        machine's, as the time of the journal may be ahead for as long as the clock was once wrong.
        """
        body = body_of(webhook, message)
        at_s = int(wall_s())
        headers = {
            "Content-Type": "application/json",
            "webhook-id": message.id,
            "webhook-timestamp": str(at_s),
        }
        if webhook.secret:
            key = resolved(webhook.secret)
            headers["webhook-signature"] = signature(key, message.id, at_s, body)
        self.send(resolved(webhook.url), body, headers)


class _Worker(threading.Thread):
    """Tells one webhook."""

    def __init__(self, notifier: Notifier, webhook: Webhook, cursor: int, score: Score) -> None:
        super().__init__(name=f"webhook-{webhook.name}", daemon=True)
        self.webhook, self.cursor, self.score = webhook, cursor, score
        self._notifier = notifier
        self._stopping = threading.Event()
        self._tries = 0
        self._error = ""

    def stop(self) -> None:
        """End it soon."""
        self._stopping.set()

    def view(self, newest: int) -> WebhookView:
        """How it goes."""
        return WebhookView(
            self.webhook, self.score.delivered, self.score.given_up,
            max(0, newest - self.cursor), self.score.delivered_s, self._error, self._tries,
        )  # fmt: skip

    def run(self) -> None:
        """Tell of line after line, until it is stopped."""
        try:
            while not self._stopping.is_set():
                if not self._turn():
                    self._stopping.wait(POLL_S)
        except TopmastError as error:
            # The journal is closed, or lost: the server ends too.
            log.info("a webhook stops", webhook=self.webhook.name, why=str(error))
        finally:
            self._notifier.rest_s(self.webhook.name, 0.0, more=False)

    def _turn(self) -> bool:
        """Tell of the next lines; whether there were any."""
        notifier, name, begun_s = self._notifier, self.webhook.name, thread_cpu_s()
        rows = notifier.feed.history_after(self.cursor, PAGE_ROWS)
        for number, row in rows:
            message = self._message(number, row)
            if message is not None and not self._tell(message):
                return False
            self.cursor = number
            notifier.keep_cursors()
            if message is not None:
                now_s = thread_cpu_s()
                self._stopping.wait(notifier.rest_s(name, now_s - begun_s, more=True))
                begun_s = now_s
        notifier.keep_cursors()
        self._stopping.wait(notifier.rest_s(name, thread_cpu_s() - begun_s, more=bool(rows)))
        return bool(rows)

    def _message(self, number: int, row: HistoryRow) -> Message | None:
        """What to tell of a line, if the webhook wants it."""
        hook = self.webhook
        if row.kind not in hook.events:
            return None
        job = self._notifier.find(row.job) if row.job else None
        detail = msgspec.json.decode(row.detail, type=dict[str, object])
        if hook.labels and (
            job is None or any(job.labels.get(k) != v for k, v in hook.labels.items())
        ):
            return None
        if hook.tenants:
            tenant = job.tenant if job is not None else str(detail.get("tenant", ""))
            if not tenant or not set(hook.tenants) & set(self._notifier.path(tenant)):
                return None
        return Message(f"{hook.name}_{number}", row.kind, row.at_s, row.text, job, detail)

    def _tell(self, message: Message) -> bool:
        """Send a message until it is taken, or given up; False: it was stopped before."""
        backoff, since_s = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S), elapsed_s()
        self._tries = 0
        while not self._stopping.is_set() and self._notifier.feed.leads():
            self._tries += 1
            try:
                self._notifier.send_now(self.webhook, message)
            except Undelivered as error:
                self._error = str(error)
                self._notifier.rest_s(self.webhook.name, 0.0, more=False)
            else:
                self._error, self._tries = "", 0
                self.score = replace(
                    self.score,
                    delivered=self.score.delivered + 1,
                    delivered_s=self._notifier.clock.now(),
                )
                return True
            if elapsed_s() - since_s > GIVEN_UP_S:
                self.score = replace(self.score, given_up=self.score.given_up + 1)
                log.warning("a webhook gives up", webhook=self.webhook.name, why=self._error)
                return True
            self._stopping.wait(backoff.take())
        return False


def _json(document: object) -> str:
    return msgspec.json.encode(document).decode()


def _written(webhooks: Mapping[str, Webhook]) -> str:
    """Webhooks as they are kept."""
    return _json([webhooks[name] for name in sorted(webhooks)])


def body_of(webhook: Webhook, message: Message) -> bytes:
    """The body of a message by the template of a webhook."""
    if webhook.template != "slack":
        return msgspec.json.encode(message)
    job = message.job
    about = f"*{_escaped(job.name)}* ({job.id}, {_escaped(job.tenant)}): " if job else ""
    return msgspec.json.encode({"text": f"{about}{message.event}: {_escaped(message.text)}"})


def _escaped(text: str) -> str:
    """A text that Slack shows as it is."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
