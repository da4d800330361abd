"""Events and facts as JSON: what is written is read alike, and what is unknown is refused."""

import math
from typing import Any, get_args

import msgspec
import pytest

from topmast.fast.cluster.facts import TaskDown
from topmast.fast.queue.facts import Ended, Moved
from topmast.fast.region.facts import HostSuspected
from topmast.model import messages as m
from topmast.model.states import JobState, Outcome
from topmast.runtime.codec import decode_event, decode_facts, encode_event, encode_facts

FLOATS = (0.1, 1 / 3, 1e-300, 1.7976931348623157e308, 123456789.123456789, -0.0, 5e-324)


@pytest.mark.parametrize("value", FLOATS)
def test_times_come_back_to_the_last_bit(value: float) -> None:
    """Replay computes with the same numbers as the first time."""
    event = m.TaskStarted("j1", 1, 0, value)
    assert decode_event(encode_event(event)) == event
    (fact,) = decode_facts("placer/east", encode_facts([HostSuspected("h", value)]))
    assert isinstance(fact, HostSuspected)
    assert math.copysign(1.0, fact.until_s) == math.copysign(1.0, value)
    assert fact.until_s == value


@pytest.mark.parametrize("text", ["", "é", "日本", "\u0000", "\\", '"', "a\nb", "\U0001f680"])
def test_text_comes_back_as_it_was(text: str) -> None:
    """Whatever people write."""
    event = m.CancelJobs((text,), text)
    assert decode_event(encode_event(event)) == event


def test_every_event_has_a_name_of_its_own() -> None:
    """The tag in the journal tells which it is."""
    names = [kind.__name__ for kind in get_args(m.Event)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("machine", "fact"),
    [
        ("queue", Moved("j1", JobState.RUNNING, "why")),
        ("queue", Ended("j1", JobState.RECOVERING, "why", 5.0, ("h",))),
        ("cluster/east-1", TaskDown("j1", 1, 0, None, 7, {"loss": 0.5})),
    ],
)
def test_the_address_tells_whose_facts_they_are(machine: str, fact: Any) -> None:
    """Machines of one kind share a language."""
    assert decode_facts(machine, encode_facts([fact])) == [fact]


@pytest.mark.parametrize(
    ("machine", "facts"),
    [
        ("queue", b'[{"type":"FromTheFuture"}]'),
        ("queue", b'[{"type":"Moved","job":"j1","to":"DANCING"}]'),
        ("queue", b'[{"type":"Moved"}]'),
        ("queue", encode_facts([TaskDown("j1", 1, 0, None)])),
        ("placer/east", b"torn"),
    ],
)
def test_facts_that_this_version_does_not_know_are_refused(machine: str, facts: bytes) -> None:
    """To skip one would be to come back as somebody else."""
    with pytest.raises(msgspec.DecodeError):
        decode_facts(machine, facts)


def test_an_event_of_an_earlier_version_lacks_what_was_added_since() -> None:
    """New fields have defaults: old journals stay readable."""
    old = b'{"type":"AttemptEnded","job":"j1","epoch":1,"outcome":"failed","start_s":0.0,"end_s":1.0,"kept_s":0.0}'
    assert decode_event(old) == m.AttemptEnded("j1", 1, Outcome.FAILED, 0.0, 1.0, 0.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_cannot_hold_must_not_be_journalled(value: float) -> None:
    """It would be written as null, and no process could read it again: engines must not post it."""
    event = m.TaskExited("j1", 1, 0, 0, 0.0, m.TaskReport(1, {"loss": value}))
    with pytest.raises(msgspec.ValidationError):
        decode_event(encode_event(event))
