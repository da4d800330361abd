"""The loop: take events, let the machines decide, commit, and only then let actions out.

One thread owns the machines. Events that arrive together are handled in memory, with all they
cause among the machines of this process, and committed as one transaction (group commit). What
leaves the process - engine calls, copies, answers - is released after that commit. In a burst one
transaction is written while the next is decided, by a thread that does nothing else.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from topmast.model.errors import InvalidInput
from topmast.model.messages import AttemptEnded, Deliver, EndWindow, Message, Recovered, Send, Wake
from topmast.ports import Act, ActRow, Audit, Clock, HistoryRow, Journal, Record, Snapshot
from topmast.runtime.around import Around
from topmast.runtime.audit import AuditLog
from topmast.runtime.codec import encode_event, encode_facts, encode_foreign
from topmast.runtime.machines import Machines
from topmast.runtime.meter import Meter
from topmast.runtime.recovery import Follower, Rebuilt

EVENTS_PER_COMMIT = 1_000
WAKES_PER_TURN = 32
"""So many times machines are woken in a row, while no event waits for its turn."""
ANSWERING_S = 0.02
"""So long questions are answered in a row, while an event waits for its turn."""
SNAPSHOT_RECORDS = 50_000
SNAPSHOT_BYTES = 256 * 1024 * 1024
IDLE_S = 3_600.0
NO_OPTIONS: Mapping[str, str] = MappingProxyType({})

T = TypeVar("T")
Observer = Callable[[Sequence[HistoryRow]], None]
Dropped = Callable[[Message, Exception], None]


class _Item(Struct):
    """One entry of the inbox: a message for a machine, a question to all, or an act to note."""

    to: str = ""
    message: Message | None = None
    question: Callable[[], Any] | None = None
    answer: Future[Any] | None = None
    act: Act | None = None


class _Commit(Struct):
    """What one transaction makes durable, and what may leave the process then."""

    records: list[Record]
    audit: Audit
    outbox: list[Send]


class Runtime:
    """Runs the machines of one process.

    ``release`` carries a message out of the process. ``observe`` gets the audit rows of every
    commit. ``fail`` ends the process: memory must never be ahead of the disk. ``dropped`` gets each
    event that no journal can hold: it is not handled, so it harms its sender alone. ``let_answer``
    lets those run that got answers, before the next is decided. ``stopwatch`` times machines and
    commits: seconds from any fixed moment on.
    """

    def __init__(
        self,
        machines: Machines,
        journal: Journal,
        clock: Clock,
        release: Callable[[Send], None],
        observe: Observer,
        fail: Callable[[BaseException], NoReturn],
        dropped: Dropped,
        let_answer: Callable[[], None],
        stopwatch: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.machines = machines
        self.journal = journal
        self.clock = clock
        self.seq = 0
        self.meter = Meter(machines.queue, stopwatch)
        self._release = release
        self._observe = observe
        self._fail = fail
        self._dropped = dropped
        self._let_answer = let_answer
        self._inbox: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._questions: deque[_Item] = deque()
        """Questions that have left the inbox; from turn to turn only while it is not empty."""
        self._waiting: deque[tuple[str, Message, bool]] = deque()
        """What is to be handled yet of a cascade: address, message, whether it is the first."""
        self._records: list[Record] = []
        self._outbox: list[Send] = []
        self._audit_log = AuditLog(machines.queue)
        self._writer = ThreadPoolExecutor(1, "topmast-journal")
        self._under_way: tuple[_Commit, Future[float]] | None = None
        """A transaction that is being written, and how long that takes (s)."""
        self._unsaved_records = 0
        self._unsaved_bytes = 0
        self._thread: threading.Thread | None = None
        machines.queue.look_around(Around(machines.fleet_placer, self))

    def under_way(self) -> Iterable[Message]:
        """The messages of this process that wait to be handled."""
        return [message for _, message, _ in self._waiting]

    def victims_weighed(self) -> None:
        """Nothing is due: engines tell of checkpoints as they are written."""

    # --- the face to other threads --------------------------------------------------------------

    def recover(self, follower: Follower | None = None) -> Rebuilt:
        """Rebuild the machines from the journal; to be called once, before `start`.

        ``follower``: of these machines; if it has followed the journal, only the rest is read.
        """
        rebuilt = (follower or Follower(self.machines)).follow(self.journal)
        self.seq = rebuilt.seq
        self._unsaved_records = rebuilt.replayed
        self.meter.recovered()
        return rebuilt

    def start(self) -> None:
        """Begin to work; machines first repeat what may not have been delivered."""
        for address, _ in self.machines.addressed():
            self.post(address, Recovered())
        self._thread = threading.Thread(target=self._run, name="topmast-runtime", daemon=True)
        self._thread.start()

    def post(self, to: str, message: Message) -> None:
        """Hand a message to a machine; returns at once."""
        self._inbox.put(_Item(to, message))

    def call(self, to: str, message: Message, act: Act | None = None) -> Future[Any]:
        """Hand a message to a machine; the future has its answer once it is durable.

        The same transaction brings the ``act`` that it is into the audit log.
        """
        answer: Future[Any] = Future()
        self._inbox.put(_Item(to, message, None, answer, act))
        return answer

    def note(
        self,
        row: ActRow,
        options: Mapping[str, str] = NO_OPTIONS,
        told: tuple[HistoryRow, ...] = (),
    ) -> Future[None]:
        """Bring a line into the audit log about what no machine is told, such as a refusal.

        The same transaction keeps the options of the journal that the act changed, and the events
        that people are ``told`` of it.
        """
        answer: Future[None] = Future()
        self._inbox.put(_Item(answer=answer, act=Act(row, options=options, told=told)))
        return answer

    def ask(self, question: Callable[[], T]) -> Future[T]:
        """Run a read-only function on the machines between commits; it sees only durable state."""
        answer: Future[T] = Future()
        self._inbox.put(_Item(question=question, answer=answer))
        return answer

    @property
    def inbox_depth(self) -> int:
        """How many events wait for the loop."""
        return self._inbox.qsize()

    def stop(self) -> None:
        """Finish what is in hand, save a snapshot, and end the loop."""
        if self._thread is not None:
            self._inbox.put(None)
            self._thread.join()
            self._thread = None
        self._writer.shutdown()

    # --- the loop -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._turn():
                pass
            if self._unsaved_records:
                self._save_snapshot()
        except BaseException as error:  # fail-stop: what is in memory may not be on the disk
            self._fail(error)

    def _turn(self) -> bool:
        """One turn: a batch of events, a commit, questions, the wake-ups that are due, a commit."""
        items, going = self._take()
        replies: list[tuple[Future[Any], Any]] = []
        for item in items:
            if item.question is not None:
                self._questions.append(item)
                continue
            reply = None
            if item.message is not None:
                reply = self._take_in_act(item, item.message)
            elif item.act is not None:
                self._audit_log.note(item.act, self.clock.now())
            if item.answer is not None:
                replies.append((item.answer, reply))
        self._commit()
        for answer, reply in replies:
            _resolve(answer, reply)
        if replies:
            self._let_answer()
        self._answer_asked(is_last=not going)
        self._wake_due()
        if self._unsaved_records > SNAPSHOT_RECORDS or self._unsaved_bytes > SNAPSHOT_BYTES:
            self._save_snapshot()
        return going

    def _take(self) -> tuple[list[_Item], bool]:
        """Wait for the first event or the next wake-up, then take what else is there."""
        items: list[_Item] = []
        try:
            first = self._inbox.get(timeout=self._wait_s())
            while True:
                if first is None:
                    return items, False
                items.append(first)
                if len(items) >= EVENTS_PER_COMMIT:
                    break
                first = self._inbox.get_nowait()
        except queue.Empty:
            pass
        return items, True

    def _answer_asked(self, *, is_last: bool) -> None:
        """Answer questions in their order: all of them, unless an event waits for so long.

        They may be many, and take a hundred times as long as an event each. ``is_last``: no turn
        follows.
        """
        begun_s = self.meter.stopwatch()
        while self._questions:
            item = self._questions.popleft()
            assert item.answer is not None
            assert item.question is not None
            _answer(item.answer, item.question)
            if is_last or self._inbox.empty():
                continue
            if self.meter.stopwatch() - begun_s > ANSWERING_S:
                break

    def _wait_s(self) -> float:
        times = [m.next_wakeup_s() for _, m in self.machines.addressed()]
        next_s = min((t for t in times if t is not None), default=None)
        if next_s is None:
            return IDLE_S
        return min(IDLE_S, max(0.0, next_s - self.clock.now()))

    def _wake_due(self) -> None:
        """Wake what is due, again and again while nothing else waits; then commit.

        What is decided at one wake is written while the next is under way.
        """
        due = self._due()
        for _ in range(WAKES_PER_TURN):
            before = self.seq
            for address in due:
                self._cascade(address, Wake())
            if self.seq == before or not self._inbox.empty():
                break
            due = self._due()
            if not due:
                break
            self._begin_commit()
        self._commit()

    def _due(self) -> list[str]:
        """The machines that are to be woken by now. O(machines)."""
        now = self.clock.now()
        times_s = [(at, machine.next_wakeup_s()) for at, machine in self.machines.addressed()]
        return [address for address, due_s in times_s if due_s is not None and due_s <= now]

    def _take_in_act(self, item: _Item, message: Message) -> Any:
        """Handle an event from outside, with a line of the audit log if it is a principal's act."""
        act = item.act
        if act is None:
            return self._take_in(item, message)
        before, seq = act.look() if act.look is not None else "", self.seq
        with nullcontext() if act.within is None else act.within():
            reply = self._take_in(item, message)
        outcome = "done" if self.seq > seq else "unchanged"
        if isinstance(reply, Exception):
            outcome = f"refused: {reply}"
        after = _with_note(act.look() if act.look is not None else "", act.row.after)
        row = replace(act.row, before=before, after=after)
        rows: Sequence[ActRow] = (row, *act.also)
        if act.named is not None and not isinstance(reply, Exception):
            names = act.named(reply)
            rows = [replace(row, object=name) for row, name in zip(rows, names, strict=True)]
        now = self.clock.now()
        self._audit_log.acts += [replace(row, at_s=now, outcome=outcome) for row in rows]
        return reply

    def _take_in(self, item: _Item, message: Message) -> Any:
        """Handle an event from outside, if it can be journalled; the answer goes to its sender."""
        if type(message) is Deliver:  # it was JSON; what it brings is encoded as it is noted
            return self._cascade(item.to, message)
        # What is asked was decoded from JSON just now; what is posted was put together by hand.
        encode = encode_event if item.answer is not None else encode_foreign
        try:
            data = encode(message)
        except Exception as error:
            self.meter.dropped += 1
            self._dropped(message, error)
            return InvalidInput(f"cannot be written to the journal: {error}")
        return self._cascade(item.to, message, data)

    def _cascade(self, to: str, message: Message, data: bytes | None = None) -> Any:
        """Let a machine take a message, and the machines of this process all that follows from it.

        ``data``: the message as a journal holds it, if that is known.
        """
        now, stopwatch, handled = self.clock.now(), self.meter.stopwatch, self.meter.handled
        machines, known = self.machines, self.machines.known
        reply: Any = None
        waiting = self._waiting
        waiting.append((to, message, True))
        while waiting:
            if self._under_way is not None and self._under_way[1].done():
                self._end_commit()  # its orders need not wait for the end of what is decided now
            to, event, is_first = waiting.popleft()
            address = machines.route(to)
            machine = known.get(address) or machines.at(address)
            if machine is None:
                self._outbox.append(Send(address, event))
                continue
            if isinstance(event, AttemptEnded | EndWindow):
                self._audit_log.foresee(event)
            begun_s = stopwatch()
            outcome = machine.handle(event, now)
            handled(address, begun_s)
            if outcome.facts:
                self._note(address, event, outcome.facts, now, data if is_first else None)
            if is_first:
                reply = outcome.reply
            waiting.extend([(send.to, send.message, False) for send in outcome.sends])
        return reply

    def _note(
        self,
        address: str,
        event: Message,
        facts: Sequence[Struct],
        now: float,
        data: bytes | None = None,
    ) -> None:
        self.seq += 1
        record = Record(self.seq, now, address, data or encode_event(event), encode_facts(facts))
        self._records.append(record)
        self._unsaved_bytes += len(record.event) + len(record.facts)
        self._audit_log.add(event, facts, now)
        self.meter.note(event, facts)

    def _take_noted(self) -> _Commit:
        """All that was noted since the last transaction."""
        log, self._audit_log = self._audit_log, AuditLog(self.machines.queue)
        records, self._records = self._records, []
        outbox, self._outbox = self._outbox, []
        audit = Audit(log.history, log.attempts, log.jobs, log.acts, log.options)
        return _Commit(records, audit, outbox)

    def _commit(self) -> None:
        """Make everything noted durable; then, and only then, let it have effects outside."""
        self._end_commit()
        commit = self._take_noted()
        if commit.records or commit.audit.acts:
            self._let_out(commit, self._append(commit))
        else:
            self._let_out(commit, None)

    def _begin_commit(self) -> None:
        """Have everything noted made durable by the other thread, once it has done what it does."""
        self._end_commit()
        commit = self._take_noted()
        self._under_way = commit, self._writer.submit(self._append, commit)

    def _end_commit(self) -> None:
        """Wait for the other thread; what it wrote may have effects outside from now on."""
        if self._under_way is not None:
            (commit, written), self._under_way = self._under_way, None
            self._let_out(commit, written.result())

    def _append(self, commit: _Commit) -> float:
        """Write a transaction; how long that took (s). From either thread."""
        begun_s = self.meter.stopwatch()
        self.journal.append(commit.records, commit.audit)
        return self.meter.stopwatch() - begun_s

    def _let_out(self, commit: _Commit, took_s: float | None) -> None:
        if took_s is not None:
            self.meter.committed(took_s, len(commit.records))
            self._unsaved_records += len(commit.records)
        for send in commit.outbox:
            self._release(send)
        if commit.audit.history:
            self._observe(commit.audit.history)

    def _save_snapshot(self) -> None:
        blobs = {address: machine.snapshot() for address, machine in self.machines.addressed()}
        self.journal.save_snapshot(Snapshot(self.seq, self.clock.now(), blobs))
        self._unsaved_records = 0
        self._unsaved_bytes = 0


def _with_note(state: str, note: str) -> str:
    """The state of an object after an act, and what was said of the act: one JSON object."""
    if not state or not note:
        return state or note
    return msgspec.json.encode(msgspec.json.decode(state) | msgspec.json.decode(note)).decode()


def _resolve(answer: Future[Any], reply: Any) -> None:
    """Give an answer to a future that still waits for it."""
    if not answer.set_running_or_notify_cancel():
        return  # the asker went away
    if isinstance(reply, Exception):
        answer.set_exception(reply)
    else:
        answer.set_result(reply)


def _answer(answer: Future[Any], question: Callable[[], Any]) -> None:
    """Run a question; its failure is the asker's, not the loop's."""
    if not answer.set_running_or_notify_cancel():
        return
    try:
        answer.set_result(question())
    except Exception as error:
        answer.set_exception(error)
