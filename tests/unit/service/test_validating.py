"""A server that checks what must hold, while it runs: what it finds, and that it goes on."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.support.build import job
from tests.support.entrance import Entrance, entrance
from tests.support.live import eventually
from topmast.fast.queue import GlobalQueue
from topmast.fast.region.inventory.index import index_of
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.states import JobState
from topmast.runtime.invariants import INVARIANTS
from topmast.runtime.machines import Machines
from topmast.service.validating import Validator


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Entrance]:
    """A control plane with a job that has GPUs, and one that waits."""
    with entrance(tmp_path) as found:
        two = m.SubmitJobs((job(gpus=2, tenant="vision"), job(gpus=4, tenant="vision")))
        found.system.runtime.call(ids.QUEUE, two).result()
        placed = found.system.machines.queue.jobs.placed
        eventually(lambda: len(placed) == 1, "one has a place")
        yield found


@pytest.fixture
def validator(door: Entrance) -> Iterator[Validator]:
    """It checks this control plane over and over."""
    found = Validator(door.system.runtime, round_s=0.0)
    found.open()
    yield found
    found.close()


def rounds(validator: Validator, name: str) -> None:
    """Wait until all was checked twice more."""
    sums = validator.found.checks.sums
    before = sums[name,]
    eventually(lambda: sums[name,] >= before + 2, f"{name} is checked")


def test_on_a_sound_server_nothing_is_broken(validator: Validator) -> None:
    """Each invariant has its turn."""
    for name in INVARIANTS:
        rounds(validator, name)
    assert set(validator.found.broken.sums.values()) == {0.0}
    assert sum(validator.found.took_s.counts) >= len(INVARIANTS)


def quotas(machines: Machines) -> None:
    """A tenant is said to hold less than its attempts do."""
    held = machines.queue.tenancy.ledger.held
    del held[next(iter(held))]


def hosts(machines: Machines) -> None:
    """A GPU that an attempt has is free for another."""
    machines.placers["east"].columns.free_milli[:] = 1000


def attempts(machines: Machines) -> None:
    """The region forgets an attempt."""
    machines.placers["east"].state.allocations.clear()


def index(machines: Machines) -> None:
    """The search counts more hosts of each size than there are."""
    index_of(machines.placers["east"].columns).arrays.hist[:] += 1


def jobs(machines: Machines) -> None:
    """A job that is over holds a plan."""
    record = next(iter(machines.queue.jobs.placed.values()))
    machines.queue.jobs.move(record, JobState.SUCCEEDED)


SPOILED = {"quotas": quotas, "hosts": hosts, "attempts": attempts, "index": index, "jobs": jobs}


@pytest.mark.parametrize("name", INVARIANTS)
def test_what_is_broken_is_counted_and_told_and_the_server_goes_on(
    door: Entrance, validator: Validator, name: str
) -> None:
    """The story says what is wrong."""
    spoil: Callable[[Machines], None] = SPOILED[name]
    system = door.system
    with capture_logs() as logs:
        system.runtime.ask(lambda: spoil(system.machines)).result()
        eventually(lambda: validator.found.broken.sums[name,] > 0, "it is found")
        validator.close()
    assert any(line.get("invariant") == name and line["story"] for line in logs)
    assert system.runtime.ask(lambda: len(system.machines.queue.jobs.records)).result() == 2


def test_a_check_that_fails_is_no_finding(door: Entrance, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of the checks is not one of the server."""

    def fails(queue: GlobalQueue) -> None:
        raise KeyError("oops")

    monkeypatch.setattr("topmast.runtime.invariants.check_quotas", fails)
    validator = Validator(door.system.runtime, round_s=0.0)
    validator.open()
    rounds(validator, "jobs")
    validator.close()
    assert set(validator.found.broken.sums.values()) == {0.0}
