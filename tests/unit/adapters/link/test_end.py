"""Two ends of a link and a bad line between them: real threads, real batches, no sockets."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import httpx
import pytest
import structlog

from tests.support.live import eventually
from topmast.adapters.link import LinkEnd, Peer, decode_batch, encode_receipt
from topmast.adapters.link import end as link_end
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.columns import PlanColumns
from topmast.model.errors import InvalidInput
from topmast.model.states import Outcome
from topmast.runtime.relay import LOST_HISTORY, OTHER_JOURNAL, Relay

BROKEN = {
    "nested": b'{"stream":"s","applied":0,"x":' + b"[" * 100_000,
    "not UTF-8": b'{"stream":"\xff","applied":0}',
    "not JSON": b"<html>",
}
"""What is no receipt, and why."""


class Side(httpx.BaseTransport):
    """A relay, its end, and the machine it serves: a list of what arrives. Also the line to it."""

    def __init__(self, name: str, other: str) -> None:
        self.name, self.other = name, other
        self.served = ids.QUEUE if name == "queue" else ids.placer(name)
        self.got: list[m.Message] = []
        self.news: list[tuple[bool, str]] = []
        self.columns: list[bool] = []
        """Whether the other side knew of columns, with each of these."""
        self.fate: list[str] = []
        """What happens to the next requests: ``lost``, ``answer lost``."""
        self.requests = 0
        self.is_older = False
        """Whether its receipts are those of a version that knows no columns."""
        self.relay = Relay(other)
        self.end: LinkEnd
        self._lock = threading.RLock()
        self.tell(ids.relay(other), m.Recovered())

    def connect(self, line: "Side") -> None:
        """Give it an end whose requests go through ``line``."""
        peer = Peer("east", "http://127.0.0.1:1", transport=line)
        self.end = LinkEnd(self.other, self.served, peer, self, self.changed)

    def changed(self, up: bool, why: str) -> None:
        """What the queue is told of its link."""
        self.news.append((up, why))
        self.columns.append(self.end.columns)

    def tell(self, to: str, message: m.Message) -> Any:
        """What the runtime does, in short."""
        with self._lock:
            if to == self.served:
                self.got.append(message)
                return None
            outcome = self.relay.handle(message, 0.0)
            for send in outcome.sends:
                if isinstance(send.message, m.Forward):
                    self.end.carry(send.message)
                else:
                    self.tell(send.to, send.message)
            return outcome.reply

    def post(self, to: str, message: m.Message) -> None:
        """Hand a message to a machine."""
        self.tell(to, message)

    def call(self, to: str, message: m.Message) -> Future[Any]:
        """Hand a message to a machine, for its answer."""
        answer: Future[Any] = Future()
        reply = self.tell(to, message)
        if isinstance(reply, Exception):
            answer.set_exception(reply)
        else:
            answer.set_result(reply)
        return answer

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """The line to this side."""
        self.requests += 1
        fate = self.fate.pop(0) if self.fate else ""
        if fate == "lost":
            raise httpx.ConnectError("the line is dead")
        if fate in BROKEN:
            return httpx.Response(200, content=BROKEN[fate])
        try:
            batch = decode_batch(request.read(), for_queue=self.name == "queue")
        except InvalidInput as error:
            return httpx.Response(422, json={"detail": str(error)})
        receipt = self.end.receive(batch).result()
        if fate == "answer lost":
            raise httpx.ReadTimeout("no answer")
        if self.is_older:
            older = {"stream": receipt.stream, "applied": receipt.applied, "refused": ""}
            return httpx.Response(200, json=older)
        return httpx.Response(200, content=encode_receipt(receipt))


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Side, Side]]:
    """A queue and a placer, linked."""
    monkeypatch.setattr(link_end, "HEARTBEAT_S", 0.02)
    monkeypatch.setattr(link_end, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(link_end, "OTHER_VERSION_PAUSE_S", 0.02)
    queue, east = Side("queue", "east"), Side("east", "queue")
    queue.connect(east)
    east.connect(queue)
    queue.end.open("queue-journal")
    east.end.open("east-journal")
    eventually(lambda: queue.end.up and east.end.up, "the link is up")
    yield queue, east
    queue.end.close()
    east.end.close()


def stop(number: int) -> m.StopAttempt:
    """An order that must arrive."""
    return m.StopAttempt(f"j{number}", 1, Outcome.CANCELLED)


@pytest.mark.parametrize("fate", ["lost", "answer lost"])
def test_orders_arrive_once_and_in_order_whatever_the_line_does(
    sides: tuple[Side, Side], fate: str
) -> None:
    """Requests fail, before or after they were taken; what is behind them comes after them."""
    queue, east = sides
    for number in range(200):
        if number % 20 == 7:
            east.fate += [fate]
        queue.post("relay/east", stop(number))
    eventually(lambda: len(east.got) == 200, "all arrive")
    assert east.got == [stop(number) for number in range(200)]
    eventually(lambda: not queue.relay.state.outbox, "and that is known")


@pytest.mark.parametrize("fate", BROKEN)
def test_a_receipt_that_cannot_be_decoded_does_not_end_the_link(
    sides: tuple[Side, Side], fate: str
) -> None:
    """It is a failed request like others; the orders arrive with the next."""
    queue, east = sides
    east.fate.append(fate)
    eventually(lambda: any("not a Topmast" in why for _, why in queue.news), "it is noticed")
    queue.post("relay/east", stop(1))
    eventually(lambda: east.got == [stop(1)], "the order arrives")


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_a_batch_that_cannot_be_decoded_is_refused(body: bytes) -> None:
    """Whatever is wrong with it."""
    with pytest.raises(InvalidInput, match="not a batch of this version"):
        decode_batch(body, for_queue=True)


def test_many_go_in_one_request(sides: tuple[Side, Side]) -> None:
    """What is sent while a request is under way goes with the next, all of it."""
    queue, east = sides
    before = east.requests
    for number in range(1_000):
        queue.post("relay/east", stop(number))
    eventually(lambda: len(east.got) == 1_000, "all arrive")
    assert east.requests - before < 500


def test_a_question_is_lost_with_its_request_and_orders_are_not(sides: tuple[Side, Side]) -> None:
    """It is not asked again when nobody waits for the answer any more."""
    queue, east = sides
    east.fate += ["lost"] * 10_000
    eventually(lambda: not queue.end.up, "the line is known to be dead")
    queue.post("relay/east", m.RequestRegionBids(1, ()))
    queue.post("relay/east", stop(1))
    east.fate.clear()
    eventually(lambda: queue.end.up and east.got, "the order arrives")
    queue.post("relay/east", m.RequestRegionBids(2, ()))
    eventually(lambda: len(east.got) == 2, "so does a question, now")
    assert east.got == [stop(1), m.RequestRegionBids(2, ())]


def test_each_side_takes_only_what_the_other_may_say(sides: tuple[Side, Side]) -> None:
    """A placer cannot submit jobs, and a queue cannot report the end of an attempt."""
    queue, east = sides
    east.end.carry(m.Forward(0, m.SubmitJobs(())))
    eventually(lambda: any("422" in why for _, why in east.news), "it is refused")
    eventually(lambda: east.end.up, "and forgotten")
    assert queue.got == []


def test_a_side_of_an_older_version_is_known_by_its_receipts(sides: tuple[Side, Side]) -> None:
    """Before anything is sent that it does not know; also when it changes while the link is up."""
    old, east = sides
    old.end.close()
    east.is_older = True
    queue = Side("queue", "east")
    queue.connect(east)
    queue.end.open("queue-journal")
    eventually(lambda: queue.columns == [False], "the link is up")
    east.is_older = False
    eventually(lambda: queue.columns == [False, True], "it is told anew")
    assert queue.news == [(True, ""), (True, "")]
    queue.end.close()


def test_an_older_side_refuses_columns_in_words(sides: tuple[Side, Side]) -> None:
    """An order that it cannot read waits, and the link says what to do."""
    queue, east = sides
    told = b'"type":"CommitPlans"'
    post = Peer.post

    def as_older(self: Peer, body: bytes) -> bytes:
        return post(self, body.replace(told, b'"type":"SaidByLaterOnes"'))

    with pytest.MonkeyPatch.context() as older:
        older.setattr(Peer, "post", as_older)
        queue.post("relay/east", m.CommitPlans(PlanColumns.of([]), (), (), (), (), ()))
        eventually(lambda: not queue.end.up, "it is refused")
        assert "not a batch of this version" in queue.end.why
        assert east.got == []
    eventually(lambda: east.got, "once the other side is of this version, it arrives")


def test_a_link_to_a_side_of_another_version_does_not_come_and_go(
    sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes empty batches: then a question would have it down, and the next trial up."""
    queue, east = sides
    monkeypatch.setattr(link_end, "OTHER_VERSION_PAUSE_S", 3600.0)
    east.end.carry(m.Forward(0, m.SubmitJobs(())))
    eventually(lambda: not east.end.up, "it is refused")
    asked = queue.requests
    for _ in range(20):
        east.end.carry(m.Forward(0, m.SubmitJobs(())))
        time.sleep(0.01)
    assert [up for up, _ in east.news] == [True, False]
    assert queue.requests == asked


def test_a_link_is_up_once_and_not_before_orders_are_taken(sides: tuple[Side, Side]) -> None:
    """At a start the other side may not know this one yet: it refuses orders, and nothing else."""
    for side in sides:
        side.end.close()
    queue, east = Side("queue", "east"), Side("east", "queue")
    queue.connect(east)
    east.connect(queue)
    east.tell("relay/queue", m.OpenStream("east-journal"))
    queue.post("relay/east", stop(1))
    queue.end.open("queue-journal")
    eventually(lambda: "has not connected" in queue.end.why, "orders are refused")
    before = east.requests
    eventually(lambda: east.requests > before + 4, "it is tried again")
    assert not any(up for up, _ in queue.news)
    east.end.open("east-journal")
    eventually(lambda: queue.end.up and east.end.up, "they know each other")
    eventually(lambda: bool(east.got) and any(up for up, _ in queue.news), "it is told")
    assert [up for up, _ in queue.news].count(True) == 1
    assert east.got == [stop(1)]
    queue.end.close()
    east.end.close()


def test_silence_from_the_other_side_counts_as_out_of_reach(
    sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One way may be cut: it takes what we say, and nothing comes back."""
    queue, _ = sides
    monkeypatch.setattr(link_end, "SILENCE_S", 0.1)
    queue.fate += ["lost"] * 10_000
    eventually(lambda: not queue.end.up, "the queue notices")
    assert "does not reach this side" in queue.end.why
    queue.fate.clear()
    eventually(lambda: queue.end.up, "and when it is back")


def test_another_journal_at_the_address_is_not_the_same_region(sides: tuple[Side, Side]) -> None:
    """A placer that lost its state must not take the place of the one that had it."""
    queue, east = sides
    east.relay.state.stream = "a-new-journal"
    eventually(lambda: not queue.end.up, "the queue does not go on with it")
    assert "another journal" in queue.end.why


def test_a_link_that_is_refused_from_the_start_says_so_in_the_log(
    sides: tuple[Side, Side],
) -> None:
    """A queue whose journal was lost does not wait for its region in silence; it says it once."""
    old, east = sides
    old.end.close()
    queue = Side("queue", "east")
    with structlog.testing.capture_logs() as logs:
        queue.connect(east)
        queue.end.open("a-new-journal")
        asked = east.requests
        eventually(lambda: east.requests > asked + 5, "it is refused many times")
        queue.end.close()
    found = [line for line in logs if line["log_level"] == "error" and line["link"] == "east"]
    assert len(found) == 1
    assert found[0]["why"].endswith("refuses: " + OTHER_JOURNAL)
    assert "start it with the folder" in found[0]["remedy"]


def test_each_refusal_that_lasts_is_in_the_log(sides: tuple[Side, Side]) -> None:
    """Also the second, of a link that was down already; what passes by itself is no error."""
    queue, east = sides

    def refused(why: str) -> bool:
        return queue.end.why.endswith(why)

    with structlog.testing.capture_logs() as logs:
        for stream, severed in (("a-new-journal", ""), ("east-journal", LOST_HISTORY)):
            east.fate += ["lost"]
            east.relay.state.stream, east.relay.state.severed = stream, severed
            eventually(partial(refused, severed or OTHER_JOURNAL), "it is refused")
    errors = [
        line["why"] for line in logs if (line["log_level"], line["link"]) == ("error", "east")
    ]
    assert [why.removeprefix("http://127.0.0.1:1 refuses: ") for why in errors] == [
        OTHER_JOURNAL,
        LOST_HISTORY,
    ]
