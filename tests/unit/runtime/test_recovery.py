"""Rebuilding machines from a journal: what is read, up to when, and what is passed over."""

import pytest

from tests.support.build import cluster, fleet, job, profile
from tests.support.world import World
from topmast.model import messages as m
from topmast.model.errors import UnknownRecord
from topmast.ports import Record
from topmast.runtime.codec import encode_event, encode_facts
from topmast.runtime.machines import Machines
from topmast.runtime.recovery import Follower, Rebuilt, rebuild


def _day() -> World:
    """A job at 10 s, its end at 20 s, a snapshot at 25 s, another job at 30 s."""
    world = World(fleet(cluster("east-1")), profile())
    world.advance(10)
    world.submit(job("first"))
    world.advance(10)
    world.finish("j1")
    world.advance(5)
    world.snapshot()
    world.advance(5)
    world.submit(job("second"))
    return world


def _states(world: World, until_s: float | None) -> tuple[dict[str, str], Rebuilt]:
    machines = Machines(profile())
    rebuilt = rebuild(machines, world.journal, until_s)
    return {name: r.state.value for name, r in machines.queue.jobs.records.items()}, rebuilt


@pytest.mark.parametrize(
    ("until_s", "want", "from_snapshot"),
    [
        (None, {"j1": "SUCCEEDED", "j2": "RUNNING"}, True),
        (30.0, {"j1": "SUCCEEDED", "j2": "RUNNING"}, True),
        (29.0, {"j1": "SUCCEEDED"}, True),
        (25.0, {"j1": "SUCCEEDED"}, True),
        (24.0, {"j1": "SUCCEEDED"}, False),
        (19.0, {"j1": "RUNNING"}, False),
        (9.0, {}, False),
        (-1.0, {}, False),
    ],
)
def test_any_time_can_be_rebuilt(
    until_s: float | None, want: dict[str, str], from_snapshot: bool
) -> None:
    """From the newest snapshot at or before it, or from the first record."""
    states, rebuilt = _states(_day(), until_s)
    assert states == want
    assert bool(rebuilt.snapshot_seq) is from_snapshot


def test_an_empty_journal_is_an_empty_world() -> None:
    """Nothing was read, and nobody is there."""
    world = World(None)
    states, rebuilt = _states(world, None)
    assert (states, rebuilt) == ({}, Rebuilt(0, 0, 0, 0.0))


def test_the_numbers_tell_what_was_read() -> None:
    """The last record, how many were replayed, and where the snapshot stood."""
    world = _day()
    _, rebuilt = _states(world, None)
    last, saved = world.journal.written[-1].seq, world.journal.snapshots[0].seq
    assert rebuilt == Rebuilt(last, last - saved, saved, world.journal.written[-1].at_s)


def test_the_past_decides_nothing_anew() -> None:
    """A record whose facts today's machine would never decide is applied as it stands."""
    world = World(fleet(cluster("east-1")))
    world.submit(job())
    fact = b'[{"type":"Ended","job":"j1","to":"FAILED","cause":"as it was then"}]'
    event = encode_event(m.AttemptEnded("j1", 1, "succeeded", 0.0, 1.0, 1.0))  # type: ignore[arg-type]
    seq = world.journal.written[-1].seq + 1
    world.journal.written.append(Record(seq, 1.0, "queue", event, fact))
    machines = world.rebuilt()
    record = machines.queue.jobs.records["j1"]
    assert (record.state.value, record.cause) == ("FAILED", "as it was then")


def test_a_record_of_something_outside_is_passed_over() -> None:
    """An address that no machine lives at (any more) holds nobody up."""
    world = _day()
    seq = world.journal.written[-1].seq + 1
    record = Record(seq, 31.0, "oracle", encode_event(m.Wake()), encode_facts(()))
    world.journal.written.append(record)
    states, rebuilt = _states(world, None)
    assert (states["j1"], rebuilt.seq) == ("SUCCEEDED", seq)


@pytest.mark.parametrize(
    ("event", "facts"),
    [(b'{"type":"Foretold"}', b"[]"), (b'{"type":"Wake"}', b'[{"type":"Foreseen","job":"j1"}]')],
    ids=["an event", "a fact"],
)
def test_what_another_version_wrote_stops_a_recovery_at_its_record(
    event: bytes, facts: bytes
) -> None:
    """All before it has been applied, nothing of it."""
    world = _day()
    last = world.journal.written[-1].seq
    world.journal.written.append(Record(last + 1, 31.0, "queue", event, facts))
    follower = Follower(Machines(profile()))
    with pytest.raises(UnknownRecord, match=rf"record {last + 1} is not of this version .*Fore"):
        follower.follow(world.journal)
    assert follower.rebuilt.seq == last
