"""What the machines have in common: dispatch, facts, replay."""

from collections.abc import Callable
from typing import Any, get_args

import pytest

from tests.support.build import cluster, fleet, job, profile
from tests.support.world import World
from topmast.accounts.machine import DECIDERS
from topmast.fast.cluster.machine import ClusterManager
from topmast.fast.fleet_placer import FleetPlacer
from topmast.fast.machine import EventMachine, Fact
from topmast.fast.region.machine import RegionalPlacer
from topmast.model import messages as m
from topmast.policies.registry import policies_of
from topmast.runtime.codec import decode_event, encode_event
from topmast.runtime.machines import Machines
from topmast.runtime.relay import Relay

MACHINES: dict[str, Callable[[], EventMachine]] = {
    "queue": lambda: Machines(profile()).queue,
    "placer": lambda: RegionalPlacer("east", profile(), policies_of(profile()).score),
    "cluster": lambda: ClusterManager("east-1"),
    "relay": lambda: Relay("east"),
}


@pytest.mark.parametrize("name", MACHINES)
def test_every_event_of_a_machine_can_be_journalled(name: str) -> None:
    """What a machine handles, the codec's union of events contains."""
    assert set(MACHINES[name]().handlers) <= set(get_args(m.Event))


def test_every_event_has_a_machine_that_handles_it() -> None:
    """An event in the union that nobody handles would be a message into the void."""
    handled: set[Any] = set(FleetPlacer.handlers) | set(DECIDERS)
    for make in MACHINES.values():
        handled |= set(make().handlers)
    assert handled == set(get_args(m.Event))


def test_a_message_for_another_machine_raises() -> None:
    """A wrong address is a fault of the composition, and is not passed over in silence."""
    with pytest.raises(KeyError):
        Machines(profile()).queue.handle(m.HostDown("east-1-0"), 0.0)


def test_a_fact_of_a_later_version_raises() -> None:
    """A machine that does not know a fact must not pretend to have applied it."""

    class FromTheFuture(Fact, frozen=True):
        pass

    with pytest.raises(KeyError):
        Machines(profile()).queue.apply(m.Wake(), FromTheFuture(), 0.0)


def test_handling_returns_only_what_this_event_led_to() -> None:
    """Facts and messages of one event do not leak into the outcome of the next."""
    queue = Machines(profile()).queue
    first = queue.handle(m.ConfigureFleet(fleet(cluster("east-1"))), 0.0)
    second = queue.handle(m.SubmitJobs((job(),)), 1.0)
    assert [type(fact).__name__ for fact in first.facts] == ["FleetSet"]
    assert [type(fact).__name__ for fact in second.facts] == ["Admitted"]
    assert second.reply == ("j1",)
    assert not second.sends


def test_an_event_survives_the_journal() -> None:
    """Every event of a busy day reads back equal to what was written."""
    world = World(fleet(cluster("east-1", hosts=1)))
    world.submit(job("a", gpus=8), job("b", gpus=8))
    world.finish("j1", 1)
    world.lose("east-1-0")
    for record in world.journal.written:
        assert encode_event(decode_event(record.event)) == record.event
