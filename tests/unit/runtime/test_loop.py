"""The loop: what is answered or sent is on the disk, in batches; what cannot be written ends it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest

from tests.support.build import cluster, fleet, job, profile
from tests.support.journal import MemoryJournal
from topmast.adapters.handing import let_answer
from topmast.fast.queue.cycle import cycle
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import Conflict, InvalidInput
from topmast.ports import Act, ActFilter, ActRow, Audit, Decision, HistoryRow, Record
from topmast.runtime import loop
from topmast.runtime.codec import decode_facts
from topmast.runtime.loop import Runtime
from topmast.runtime.machines import Machines

PATIENCE_S = 10.0
FLEET = fleet(cluster("east-1", hosts=1))
ends_the_process = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)


class Disk(MemoryJournal):
    """A journal that can be slow, or broken, and notes the facts that it was given when it has them."""

    def __init__(self) -> None:
        super().__init__()
        self.ready = threading.Event()
        self.ready.set()
        self.waiting = threading.Event()
        self.broken = False
        self.waits_at = ""
        """Only commits with a fact of this type wait until it is ready; empty: all."""
        self.breaks_at = ""
        """The first commit with a fact of this type fails, and so do all after it."""
        self.log: list[str] = []
        """Types of facts that were committed, of messages that left, and answers, in order."""

    def append(self, records: Sequence[Record], audit: Audit) -> None:
        facts = [type(f).__name__ for r in records for f in decode_facts(r.machine, r.facts)]
        if self.waits_at in ("", *facts):
            self.waiting.set()
            assert self.ready.wait(PATIENCE_S)
        self.broken = self.broken or self.breaks_at in facts
        if self.broken:
            raise OSError("no space left on device")
        super().append(records, audit)
        self.log += facts


class Clock:
    """Seconds since the test began."""

    def __init__(self) -> None:
        self._zero_s = time.monotonic()

    def now(self) -> float:
        return time.monotonic() - self._zero_s


class Process:
    """A runtime with everything around it that a test may look at."""

    def __init__(self, disk: Disk | None = None) -> None:
        self.disk = disk or Disk()
        self.sent: list[m.Send] = []
        self.seen: list[HistoryRow] = []
        self.failed: list[BaseException] = []
        self.ended = threading.Event()
        self.machines = Machines(profile(backoff_s=0.05))
        self.dropped: list[tuple[m.Message, Exception]] = []
        self.runtime = Runtime(
            self.machines, self.disk, Clock(), self._release, self.seen.extend, self._fail,
            lambda message, error: self.dropped.append((message, error)), let_answer,
        )  # fmt: skip

    def _release(self, send: m.Send) -> None:
        self.disk.log.append(type(send.message).__name__)
        self.sent.append(send)

    def _fail(self, error: BaseException) -> NoReturn:
        self.failed.append(error)
        self.ended.set()
        raise SystemExit

    def call(self, message: m.Message, to: str = ids.QUEUE) -> Any:
        return self.runtime.call(to, message).result(PATIENCE_S)

    def orders(self, kind: type[m.Message]) -> list[Any]:
        return [send.message for send in self.sent if type(send.message) is kind]

    def until(self, what: Any) -> None:
        """Wait until something is so."""
        give_up_s = time.monotonic() + PATIENCE_S
        while not self.runtime.ask(what).result(PATIENCE_S):
            assert time.monotonic() < give_up_s
            time.sleep(0.005)

    def until_depth(self, events: int) -> None:
        """Wait until so many events wait for the loop."""
        give_up_s = time.monotonic() + PATIENCE_S
        while self.runtime.inbox_depth != events:
            assert time.monotonic() < give_up_s
            time.sleep(0.005)


@contextmanager
def running(disk: Disk | None = None) -> Iterator[Process]:
    """A process that works, and is stopped in the end."""
    process = Process(disk)
    process.runtime.recover()
    process.runtime.start()
    process.call(m.ConfigureFleet(FLEET))
    try:
        yield process
    finally:
        process.disk.ready.set()
        process.runtime.stop()


def test_an_answer_comes_when_it_is_on_the_disk() -> None:
    """A submission is acknowledged after its commit, and not before."""
    with running() as process:
        process.disk.ready.clear()
        process.disk.waiting.clear()
        answer = process.runtime.call(ids.QUEUE, m.SubmitJobs((job(),)))
        assert process.disk.waiting.wait(PATIENCE_S)
        assert not answer.done()
        process.disk.ready.set()
        assert answer.result(PATIENCE_S) == ("j1",)
        assert process.disk.written


def test_an_answer_does_not_wait_for_the_next_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that asked runs on before it, also where Python would not take turns by itself."""
    with running() as process:
        desk, handled, answered, before = process.machines.queue, 0, 0, list[int]()
        handle = desk.handle

        def counted(event: m.Message, now: float) -> Decision:
            nonlocal handled
            handled += isinstance(event, m.SubmitJobs)
            if isinstance(event, m.Wake):
                before.append(handled - answered)
            return handle(event, now)

        monkeypatch.setattr(desk, "handle", counted)
        interval_s = sys.getswitchinterval()
        sys.setswitchinterval(PATIENCE_S)
        try:
            for answered in range(50):  # noqa: B007 (what is handled meanwhile looks at it)
                process.call(m.SubmitJobs((job(),)))
            answered = 50
            process.call(m.SubmitJobs((job(),)))
        finally:
            sys.setswitchinterval(interval_s)
        # A busy machine may be late with some; if the decision came first, it would be with all.
        assert len(before) >= 50
        assert 0 in before


def test_every_order_leaves_when_its_own_cause_is_on_the_disk() -> None:
    """No engine hears of a decision that a crash could undo: not of a start, and not of a stop."""
    with running() as process:
        process.call(m.SubmitJobs((job(),)))
        process.until(lambda: process.orders(m.StartGang))
        process.runtime.post("cluster/east-1", m.TaskStarted("j1", 1, 0, 0.0))
        process.call(m.CancelJobs(("j1",)))
        process.until(lambda: process.orders(m.StopTasks))
        log = process.disk.log
        assert log.index("Opened") < log.index("StartGang")
        assert log.index("Stopping") < log.index("StopTasks")


def test_the_next_is_decided_while_a_commit_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a burst no time is lost with the disk; still each order leaves after its own commit."""
    monkeypatch.setattr(cycle, "ASKS_PER_WAKE", 1)
    with running() as process:
        process.disk.waits_at = "Opened"
        process.disk.ready.clear()
        process.call(m.SubmitJobs((job(gpus=1),) * 3))
        assert process.disk.waiting.wait(PATIENCE_S)
        second = process.machines.queue.jobs.records["j2"]
        give_up_s = time.monotonic() + PATIENCE_S
        while second.plan is None:
            assert time.monotonic() < give_up_s
            time.sleep(0.005)
        assert process.orders(m.StartGang) == []
        process.disk.ready.set()
        process.until(lambda: len(process.orders(m.StartGang)) == 3)
        log = [entry for entry in process.disk.log if entry in ("Opened", "StartGang")]
        assert all(
            log[: n + 1].count("Opened") >= log[: n + 1].count("StartGang") for n in range(6)
        )


def test_orders_do_not_wait_for_the_end_of_what_is_decided_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What one wake decided is written long before the next is through: its orders leave by then."""
    monkeypatch.setattr(cycle, "ASKS_PER_WAKE", 1)
    with running() as process:
        placer = process.machines.placers["east"]
        handle, sent = placer.handle, list[int]()

        def slow(event: m.Message, now: float) -> Decision:
            if isinstance(event, m.CommitPlan):
                sent.append(len(process.orders(m.StartGang)))
            return handle(event, now)

        def answers_late(event: m.Message, now: float) -> Decision:
            if isinstance(event, m.RequestFleetBids):  # after the thread that writes is done
                process.runtime._writer.submit(int).result(PATIENCE_S)
            return desk(event, now)

        desk = process.machines.fleet_placer.handle
        monkeypatch.setattr(placer, "handle", slow)
        monkeypatch.setattr(process.machines.fleet_placer, "handle", answers_late)
        process.call(m.SubmitJobs((job(gpus=1),) * 3))
        process.until(lambda: len(process.orders(m.StartGang)) == 3)
        assert sent == [0, 1, 2]


@ends_the_process
def test_of_a_commit_that_fails_beside_the_next_decision_nothing_gets_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was decided meanwhile is lost with it."""
    monkeypatch.setattr(cycle, "ASKS_PER_WAKE", 1)
    with running() as process:
        process.disk.breaks_at = "Opened"
        process.call(m.SubmitJobs((job(gpus=1),) * 3))
        assert process.ended.wait(PATIENCE_S)
        assert isinstance(process.failed[0], OSError)
        assert process.orders(m.StartGang) == []
        assert process.seen == process.disk.rows


def test_every_answer_follows_its_own_commit() -> None:
    """A client that holds the id of a job can rely on it: the job is on the disk before."""
    with running() as process:
        log = process.disk.log
        process.disk.ready.clear()
        answer = process.runtime.call(ids.QUEUE, m.SubmitJobs((job(),)))
        answer.add_done_callback(lambda _: log.append("answer"))
        process.disk.ready.set()
        process.until(lambda: "answer" in log)
        assert log.index("Admitted") < log.index("answer")


@ends_the_process
@pytest.mark.parametrize("fact", ["Admitted", "Opened"])
def test_of_a_commit_that_fails_nothing_gets_out(fact: str) -> None:
    """Neither the answer, nor the order that the same commit was to cause, nor a line for people."""
    with running() as process:
        process.disk.breaks_at = fact
        answer = process.runtime.call(ids.QUEUE, m.SubmitJobs((job(),)))
        assert process.ended.wait(PATIENCE_S)
        assert isinstance(process.failed[0], OSError)
        assert fact not in process.disk.log
        assert answer.done() is (fact == "Opened")
        assert process.orders(m.StartGang) == []
        assert process.seen == process.disk.rows


def test_events_that_wait_together_share_a_commit() -> None:
    """A slow disk makes batches larger, and not the queue longer."""
    with running() as process:
        process.disk.ready.clear()
        process.disk.waiting.clear()
        first = process.runtime.call(ids.QUEUE, m.SubmitJobs((job(),)))
        assert process.disk.waiting.wait(PATIENCE_S)
        others = [process.runtime.call(ids.QUEUE, m.SubmitJobs((job(),))) for _ in range(200)]
        before = process.disk.appends
        process.disk.ready.set()
        answers = [first.result(PATIENCE_S), *(other.result(PATIENCE_S) for other in others)]
        assert answers == [(f"j{number}",) for number in range(1, 202)]
        assert process.disk.appends - before < 20


def test_a_batch_is_no_larger_than_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of the first do not wait for all that came after."""
    monkeypatch.setattr(loop, "EVENTS_PER_COMMIT", 10)
    with running() as process:
        process.disk.ready.clear()
        process.disk.waiting.clear()
        calls = [process.runtime.call(ids.QUEUE, m.SubmitJobs((job(),))) for _ in range(50)]
        assert process.disk.waiting.wait(PATIENCE_S)
        before = process.disk.appends
        process.disk.ready.set()
        for call in calls:
            call.result(PATIENCE_S)
        assert process.disk.appends - before >= 4


@ends_the_process
@pytest.mark.parametrize("at_once_s", [-1.0, 3_600.0])
def test_an_event_waits_for_few_of_the_questions_before_it(
    monkeypatch: pytest.MonkeyPatch, at_once_s: float
) -> None:
    """Reads are many and long, and a submission is neither; those that are answered at once share a turn."""
    monkeypatch.setattr(loop, "ANSWERING_S", at_once_s)
    with running() as process:
        runtime, calls, go_on = process.runtime, list[Future[Any]](), threading.Event()
        runtime.ask(lambda: go_on.wait(PATIENCE_S))  # the others wait together
        runtime.ask(lambda: calls.append(runtime.call(ids.QUEUE, m.SubmitJobs((job(),)))))
        others = [runtime.ask(lambda: calls[0].done()) for _ in range(3)]
        go_on.set()
        was_in = at_once_s < 0
        assert [other.result(PATIENCE_S) for other in others] == [was_in] * 3
        assert calls[0].result(PATIENCE_S) == ("j1",)


def test_questions_that_wait_are_answered_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that an event would come before."""
    monkeypatch.setattr(loop, "ANSWERING_S", -1.0)
    with running() as process:
        runtime, go_on = process.runtime, threading.Event()
        runtime.ask(lambda: go_on.wait(PATIENCE_S))
        process.until_depth(0)
        runtime.ask(lambda: runtime.post(ids.QUEUE, m.Wake()))
        others = [runtime.ask(lambda: 1) for _ in range(3)]
        stops = threading.Thread(target=runtime.stop)
        stops.start()
        process.until_depth(5)
        go_on.set()
        assert [other.result(PATIENCE_S) for other in others] == [1] * 3
        stops.join()


def test_a_disk_that_fails_ends_the_process() -> None:
    """Memory is ahead of the disk: nothing is answered, sent or shown any more."""
    with running() as process:
        sent, seen = len(process.sent), len(process.seen)
        process.disk.broken = True
        answer = process.runtime.call(ids.QUEUE, m.SubmitJobs((job(),)))
        assert process.ended.wait(PATIENCE_S)
        assert isinstance(process.failed[0], OSError)
        assert not answer.done()
        assert (len(process.sent), len(process.seen)) == (sent, seen)


@ends_the_process
def test_a_machine_that_raises_ends_the_process() -> None:
    """An event that a machine cannot take is not passed over: its state is in doubt."""
    with running() as process:
        process.runtime.post(ids.QUEUE, m.HostDown("east-1-0"))
        assert process.ended.wait(PATIENCE_S)
        assert isinstance(process.failed[0], KeyError)


def test_whoever_goes_away_harms_nobody() -> None:
    """A caller that cancelled gets nothing; the loop goes on."""
    with running() as process:
        process.disk.ready.clear()
        call = process.runtime.call(ids.QUEUE, m.SubmitJobs((job(),)))
        question = process.runtime.ask(lambda: 1)
        assert call.cancel()
        assert question.cancel()
        process.disk.ready.set()
        assert process.call(m.SubmitJobs((job(),))) == ("j2",)
        assert process.failed == []


def test_an_error_is_the_caller_s() -> None:
    """A request that is refused raises there; a question that fails, too."""
    with running() as process:
        process.call(m.SubmitJobs((job("one"),), "key", "digest"))
        with pytest.raises(Conflict):
            process.call(m.SubmitJobs((job("two"),), "key", "other"))
        with pytest.raises(ZeroDivisionError):
            process.runtime.ask(lambda: 1 // 0).result(PATIENCE_S)
        assert process.call(m.SubmitJobs((job(),))) == ("j2",)


@pytest.mark.parametrize(
    ("story", "news"),
    [
        ("half a character in an error", m.TaskLost("j1", 1, 0, "no \ud800")),
        (
            "half a character in a metric's name",
            m.TaskExited("j1", 1, 0, 0, 1.0, m.TaskReport(metrics={"\udcff": 1.0})),
        ),
        ("a time that is none", m.Checkpointed("j1", 1, 1, float("nan"))),
        ("a metric without a bound", m.TaskExited(
            "j1", 1, 0, 0, 1.0, m.TaskReport(metrics={"loss": float("inf")}))),
        ("a status that is no number", m.TaskExited("j1", 1, 0, "0", 1.0)),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_what_no_journal_can_hold_is_not_handled(story: str, news: m.Message) -> None:
    """News that could not be written, or not be read again, is dropped and told; all goes on."""
    with running() as process:
        process.call(m.SubmitJobs((job(),)))
        process.until(lambda: process.orders(m.StartGang))
        process.runtime.post("cluster/east-1", m.TaskStarted("j1", 1, 0, 0.0))
        process.runtime.post("cluster/east-1", news)
        assert process.call(m.SubmitJobs((job(),))) == ("j2",)
        assert [message for message, _ in process.dropped] == [news]
        assert process.failed == []
    again = Process(process.disk)
    again.runtime.recover()
    assert list(again.machines.queue.jobs.records) == ["j1", "j2"]


def test_a_request_that_no_journal_can_hold_is_refused() -> None:
    """Whoever asks is told; the loop goes on."""
    with running() as process:
        with pytest.raises(InvalidInput, match="journal"):
            process.call(m.SubmitJobs((job("\ud800"),)))
        assert process.call(m.SubmitJobs((job(),))) == ("j1",)
        assert process.failed == []


def test_a_question_sees_only_what_is_on_the_disk() -> None:
    """It is asked between commits, in the order in which it came."""
    with running() as process:
        process.runtime.post(ids.QUEUE, m.SubmitJobs((job(),)))
        records, jobs = process.runtime.ask(
            lambda: (len(process.disk.written), len(process.machines.queue.jobs.records))
        ).result(PATIENCE_S)
        assert jobs == 1
        assert any(b"Admitted" in r.facts for r in process.disk.written[:records])


def test_the_loop_wakes_by_itself() -> None:
    """A delay after a failure ends although nothing happens."""
    with running() as process:
        process.call(m.SubmitJobs((job(),)))
        process.until(lambda: process.orders(m.StartGang))
        process.runtime.post("cluster/east-1", m.TaskStarted("j1", 1, 0, 0.0))
        process.runtime.post("cluster/east-1", m.TaskExited("j1", 1, 0, 1, 0.0))
        process.until(lambda: len(process.orders(m.StartGang)) == 2)
        assert process.orders(m.StartGang)[1].epoch == 2


def test_people_are_shown_what_happened() -> None:
    """Rows of the audit trail, after they were committed."""
    with running() as process:
        process.call(m.SubmitJobs((job(user="ann"),)))
        process.until(lambda: len(process.seen) >= 3)
        assert [row.kind for row in process.seen[:3]] == ["submitted", "placed", "STARTING"]
        assert process.seen == process.disk.rows[: len(process.seen)]


# --- snapshots and recovery -----------------------------------------------------------------------------


def test_stopping_saves_a_snapshot_and_starting_takes_it_up() -> None:
    """The next process replays nothing, and says again what may not have been heard."""
    disk = Disk()
    with running(disk) as process:
        process.call(m.SubmitJobs((job(),)))
        process.until(lambda: process.orders(m.StartGang))
    assert len(disk.snapshots) == 1
    again = Process(disk)
    rebuilt = again.runtime.recover()
    assert (rebuilt.seq, rebuilt.replayed) == (disk.written[-1].seq, 0)
    assert list(again.machines.queue.jobs.records) == ["j1"]
    again.runtime.start()
    again.until(lambda: again.orders(m.StartGang))
    assert again.orders(m.StartGang)[0].epoch == 1
    again.runtime.stop()


def test_stopping_without_news_saves_nothing() -> None:
    """A process that only looked leaves the journal as it was."""
    disk = Disk()
    with running(disk):
        pass
    saved = len(disk.snapshots)
    with running(disk):
        pass
    assert len(disk.snapshots) == saved


def test_a_snapshot_is_saved_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that recovery never has to replay too much."""
    monkeypatch.setattr(loop, "SNAPSHOT_RECORDS", 20)
    with running() as process:
        for _ in range(30):
            process.call(m.SubmitJobs((job(),)))
        assert process.disk.snapshots
        newest = process.disk.snapshots[-1]
        assert process.disk.written[-1].seq - newest.seq <= 60
        assert set(newest.machines) == {"queue", "placer/east", "cluster/east-1"}


def test_records_are_numbered_on_over_restarts() -> None:
    """The order of the journal is the order of what happened."""
    disk = Disk()
    for _ in range(3):
        with running(disk) as process:
            process.call(m.SubmitJobs((job(),)))
    assert [record.seq for record in disk.written] == list(range(1, len(disk.written) + 1))


def test_what_is_in_hand_is_done_before_the_end() -> None:
    """Stopping does not drop what was handed in before."""
    with running() as process:
        calls = [process.runtime.call(ids.QUEUE, m.SubmitJobs((job(),))) for _ in range(20)]
        process.runtime.stop()
        assert [call.result(0) for call in calls] == [(f"j{n}",) for n in range(1, 21)]
        process.runtime.stop()


# --- the audit log --------------------------------------------------------------------------------

ROW = ActRow("user:ann", "token", "10.0.0.5", "r1", "submit")


def test_an_act_is_audited_in_the_transaction_of_what_it_changed() -> None:
    """One line for each act: the object before and after, whatever became of it."""
    with running() as process:
        runtime, disk = process.runtime, process.disk
        jobs = process.machines.queue.jobs.records
        act = Act(ROW, lambda: str(len(jobs)), lambda ids: [",".join(ids)])
        submitted = runtime.call(ids.QUEUE, m.SubmitJobs((job(),), "k", "d"), act)
        (name,) = submitted.result(PATIENCE_S)
        (line,) = disk.acts(ActFilter())
        assert (line.object, line.before, line.after) == (name, "0", "1")
        assert line.outcome == "done"
        runtime.call(ids.QUEUE, m.SubmitJobs((job(),), "k", "d"), act).result(PATIENCE_S)
        refused = runtime.call(ids.QUEUE, m.SubmitJobs((job(),), "k", "other"), act)
        assert isinstance(refused.exception(PATIENCE_S), Conflict)
        runtime.note(ROW).result(PATIENCE_S)
        outcomes = [line.outcome.split(":")[0] for line in disk.acts(ActFilter())]
        assert outcomes == ["done", "refused", "unchanged", "done"]
