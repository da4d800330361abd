"""What a relay promises: in order, each message once, said again until heard, and only to its own peer."""

from dataclasses import dataclass

import pytest

from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import Conflict
from topmast.model.states import HostState, Outcome
from topmast.runtime.codec import decode_event, decode_facts, encode_event, encode_facts
from topmast.runtime.relay import LOST_HISTORY, Relay


class FleetPlacer:
    """A relay with a journal: what it decides can be read back into another one."""

    def __init__(self, *, paired: bool = True) -> None:
        self.relay = Relay("east")
        self.written: list[tuple[bytes, bytes]] = []
        self.tell(m.Recovered())
        self.tell(m.OpenStream("ours"))
        if paired:
            self.tell(m.Pair("theirs", 0))

    def tell(self, message: m.Message) -> tuple[object, list[m.Send]]:
        """Hand it a message, and what it says to itself; its answer and what it lets out."""
        outcome = self.relay.handle(message, 1.0)
        if outcome.facts:
            self.written.append((encode_event(message), encode_facts(outcome.facts)))
        out = []
        for send in outcome.sends:
            if send.to == ids.relay("east"):
                self.tell(send.message)
            else:
                out.append(send)
        return outcome.reply, out

    def restart(self) -> list[m.Send]:
        """Another process on the same journal; what it says first."""
        self.relay = Relay("east")
        for event, facts in self.written:
            for fact in decode_facts("relay/east", facts):
                self.relay.apply(decode_event(event), fact, 1.0)
        return self.tell(m.Recovered())[1]


def stop(job: str) -> m.StopAttempt:
    """An order that must arrive."""
    return m.StopAttempt(job, 1, Outcome.CANCELLED)


def news(*numbers: int, stream: str = "theirs", peer: str = "ours", applied: int = 0) -> m.Deliver:
    """A batch from the other side, each message named after its number."""
    envelopes = tuple(m.Envelope(n, m.PlanRefused(f"j{n}", 1, "")) for n in numbers)
    return m.Deliver(ids.QUEUE, stream, peer, applied, envelopes)


def jobs(sends: list[m.Send]) -> list[str]:
    """The jobs that messages are about."""
    return [getattr(s.message, "job", "") for s in sends]


# --- receiving --------------------------------------------------------------------------------------------


@dataclass
class Arrival:
    """Batches in order; what the queue is told of each; up to where all is applied in the end."""

    story: str
    batches: list[tuple[int, ...]]
    want: list[list[str]]
    applied: int


@pytest.mark.parametrize(
    "case",
    [
        Arrival("in order", [(1, 2), (3,)], [["j1", "j2"], ["j3"]], 3),
        Arrival(
            "the answer was lost, and all comes again", [(1, 2), (1, 2)], [["j1", "j2"], []], 2
        ),
        Arrival("again, with more behind it", [(1, 2), (1, 2, 3)], [["j1", "j2"], ["j3"]], 3),
        Arrival("an old batch comes late", [(1, 2, 3), (1,)], [["j1", "j2", "j3"], []], 3),
        Arrival("a gap: nothing behind it is taken", [(1, 3, 4)], [["j1"]], 1),
        Arrival("a batch before its time", [(2,), (1, 2)], [[], ["j1", "j2"]], 2),
        Arrival("what may be lost goes along", [(0, 1, 0)], [["j0", "j1", "j0"]], 1),
        Arrival("and comes again with whoever sends it", [(0,), (0,)], [["j0"], ["j0"]], 0),
        Arrival("but not over a gap", [(2, 0)], [[]], 0),
        Arrival("nothing", [()], [[]], 0),
    ],
    ids=lambda case: case.story,
)
def test_each_message_is_applied_once_and_in_order(case: Arrival) -> None:
    """Duplicates are dropped, gaps wait, and a receipt tells how far it is."""
    fleet_placer = FleetPlacer()
    for batch, want in zip(case.batches, case.want, strict=True):
        receipt, sends = fleet_placer.tell(news(*batch))
        assert jobs(sends) == want
        assert isinstance(receipt, m.Receipt)
        assert not receipt.refused
    assert receipt == m.Receipt("ours", case.applied, columns=True)
    fleet_placer.restart()
    assert jobs(fleet_placer.tell(news(*range(1, case.applied + 1)))[1]) == []


def test_what_is_applied_is_written_down_after_what_it_causes() -> None:
    """The number comes last in the cascade, so that one commit has the messages and the number."""
    relay = FleetPlacer().relay
    outcome = relay.handle(news(1, 2), 1.0)
    assert [s.to for s in outcome.sends] == [ids.QUEUE, ids.QUEUE, ids.relay("east")]
    assert outcome.sends[-1].message == m.Heard(2)


# --- sending ----------------------------------------------------------------------------------------------


def test_what_must_arrive_is_said_again_until_it_is_heard() -> None:
    """After a restart all goes out again in order, but for what the other side has."""
    fleet_placer = FleetPlacer()
    for name in ("j1", "j2", "j3"):
        _, sends = fleet_placer.tell(stop(name))
        assert [s.to for s in sends] == [ids.link("east")]
    fleet_placer.tell(m.Acked(1))
    said = [s.message for s in fleet_placer.relay.handle(m.Recovered(), 1.0).sends]
    assert said == [m.Forward(2, stop("j2")), m.Forward(3, stop("j3"))]
    # That something was heard is not worth a record: it is said again, and dropped there.
    assert len(fleet_placer.restart()) == 3
    fleet_placer.tell(m.Acked(3))
    assert fleet_placer.relay.state.outbox == []


def test_a_new_message_does_not_overtake_the_old_at_a_start() -> None:
    """Nothing is said before the relay has recovered; then the oldest comes first."""
    fleet_placer = FleetPlacer()
    fleet_placer.tell(stop("old"))
    fleet_placer.relay = Relay("east")
    for event, facts in fleet_placer.written:
        for fact in decode_facts("relay/east", facts):
            fleet_placer.relay.apply(decode_event(event), fact, 1.0)
    assert fleet_placer.tell(stop("new"))[1] == []
    _, sends = fleet_placer.tell(m.Recovered())
    assert [s.message for s in sends] == [m.Forward(1, stop("old")), m.Forward(2, stop("new"))]


def test_questions_are_asked_once_and_leave_no_trace() -> None:
    """They change no books; an answer that never comes is the asker's business."""
    fleet_placer = FleetPlacer()
    before = len(fleet_placer.written)
    _, sends = fleet_placer.tell(m.RequestRegionBids(1, ()))
    assert [s.message for s in sends] == [m.Forward(0, m.RequestRegionBids(1, ()))]
    assert len(fleet_placer.written) == before
    assert fleet_placer.restart() == []


def test_a_relay_survives_in_a_snapshot() -> None:
    """Counters, names and what was not heard."""
    fleet_placer = FleetPlacer()
    fleet_placer.tell(m.SetHost("east-1-0", HostState.CORDONED))
    fleet_placer.tell(news(1, 2))
    again = Relay("east")
    again.restore(fleet_placer.relay.snapshot())
    assert again.state == fleet_placer.relay.state


# --- who is who -------------------------------------------------------------------------------------------


@dataclass
class Stranger:
    """What somebody says, and why nothing of it is taken."""

    story: str
    batch: m.Deliver
    want: str


@pytest.mark.parametrize(
    "case",
    [
        Stranger("another journal", news(1, stream="somebody"), "another journal"),
        Stranger("meant for another", news(1, peer="somebody"), "another journal"),
        Stranger("knows what was never sent", news(1, applied=7), "lacks what was exchanged"),
    ],
    ids=lambda case: case.story,
)
def test_nobody_else_is_heard(case: Stranger) -> None:
    """Neither a new journal at the old address nor the old one of before."""
    receipt, sends = FleetPlacer().tell(case.batch)
    assert isinstance(receipt, m.Receipt)
    assert case.want in receipt.refused
    assert sends == []


def test_nothing_is_taken_before_the_other_side_was_reached() -> None:
    """Who answers at the configured address is the peer, not whoever speaks first."""
    fleet_placer = FleetPlacer(paired=False)
    receipt, sends = fleet_placer.tell(news(1))
    assert isinstance(receipt, m.Receipt)
    assert receipt.refused
    assert sends == []
    assert fleet_placer.tell(news())[0] == m.Receipt("ours", 0, columns=True)
    assert fleet_placer.tell(m.Pair("theirs", 0))[0] is None
    assert jobs(fleet_placer.tell(news(1))[1]) == ["j1"]
    assert isinstance(fleet_placer.tell(m.Pair("somebody", 0))[0], Conflict)


def test_nobody_is_paired_with_a_relay_that_has_no_name_yet() -> None:
    """Its first answer would stand for whoever answers next."""
    receipt = Relay("east").handle(news(), 1.0).reply
    assert isinstance(receipt, m.Receipt)
    assert receipt.refused


def test_an_old_copy_of_the_other_journal_severs_the_link_for_good() -> None:
    """It acknowledged what it does not have any more: what it says next may be old numbers anew."""
    fleet_placer = FleetPlacer()
    fleet_placer.tell(stop("j1"))
    fleet_placer.tell(m.Acked(1))
    assert isinstance(fleet_placer.tell(m.Pair("theirs", 0))[0], Conflict)
    fleet_placer.restart()
    assert isinstance(fleet_placer.tell(m.Pair("theirs", 1))[0], Conflict)
    receipt, _ = fleet_placer.tell(news(1))
    assert isinstance(receipt, m.Receipt)
    assert receipt.refused == LOST_HISTORY


def test_the_name_of_a_stream_is_given_once() -> None:
    """A restart offers another name; the journal has one already."""
    fleet_placer = FleetPlacer()
    fleet_placer.restart()
    receipt, _ = fleet_placer.tell(m.OpenStream("another"))
    assert receipt == m.Receipt("ours", 0)
