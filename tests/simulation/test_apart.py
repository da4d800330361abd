"""Storms over a queue and placers in processes of their own; as many seeds as you like with

TOPMAST_STORM_SEEDS=0:300 pytest tests/simulation/test_apart.py
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.simulation.apart import ApartStorm
from tests.support.build import cluster, fleet
from topmast.fast.queue.cycle import bulk
from topmast.fast.region.facts import AllTaken
from topmast.fast.region.reservation.leases import OfferLeases
from topmast.model import messages as m
from topmast.model.states import WAITING
from topmast.runtime.relay import Relay

STEPS = 2_000
FIRST, BEYOND = (int(x) for x in os.environ.get("TOPMAST_STORM_SEEDS", "0:6").split(":"))


@pytest.fixture(autouse=True)
def _few_in_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where regions make plans in columns, they do so for a few jobs."""
    monkeypatch.setattr(bulk, "LEAST", 2)
    monkeypatch.setattr(bulk, "LEAST_APART", 2)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(FIRST, BEYOND))
def test_nothing_is_lost_or_done_twice_between_processes(seed: int) -> None:
    """Whatever breaks between them, every job ends once, and both sides' books are empty then."""
    ApartStorm(seed).run(STEPS)


def test_a_storm_between_processes_is_one() -> None:
    """Over a few seeds each kind of trouble comes up, and jobs are placed one by one and in bulk."""
    seen: dict[str, int] = {}
    for seed in range(2):
        storm = ApartStorm(seed)
        storm.run(STEPS)
        taken = [bool(part.facts(AllTaken)) for part in storm.placers.values()]
        assert any(taken) is storm.in_bulk
        for what, count in storm.seen.items():
            seen[what] = seen.get(what, 0) + count
    assert set(seen) == {"request lost", "answer lost", "kill", "cut"}


@pytest.mark.parametrize("seed", range(4))
def test_a_job_that_one_region_can_run_does_not_miss_its_return(seed: int) -> None:
    """Whenever it comes, also between two questions to the others: nothing else would wake the job."""
    hosts = fleet(cluster("east-1", hosts=1), cluster("west-1", hosts=1, model="A100"))
    storm = ApartStorm(seed, hosts=hosts)
    states = [storm.return_under_a_question() for _ in range(25)]
    assert [state for state in states if state in WAITING] == []


# --- does anybody watch? --------------------------------------------------------------------------------


def _forgets_what_it_heard(self: Relay, event: m.Heard) -> None:
    """What was applied is not written down."""


def _says_nothing_again(self: Relay, event: m.Recovered) -> None:
    """What was not heard before a restart is not said again."""
    self._speaks = True
    self.state.outbox.clear()


def _keeps_for_ever(self: OfferLeases) -> float | None:
    """A hold does not expire."""
    return None


BROKEN: dict[str, tuple[type, str, Any]] = {
    "what is heard is forgotten": (Relay, "_heard", _forgets_what_it_heard),
    "what was under way is forgotten": (Relay, "_recovered", _says_nothing_again),
    "holds are for ever": (OfferLeases, "next_expiry_s", _keeps_for_ever),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_link_is_noticed(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break one thing on purpose: some storm of a few must fail, or nobody is watching."""
    owner, name, broken = BROKEN[what]
    monkeypatch.setattr(owner, name, broken)
    kinds: dict[str, type[m.Message]] = {"_heard": m.Heard, "_recovered": m.Recovered}
    if name in kinds:
        monkeypatch.setattr(Relay, "handlers", {**Relay.handlers, kinds[name]: broken})
    with pytest.raises(AssertionError):
        _storms(8)


def _storms(count: int) -> None:
    for seed in range(count):
        ApartStorm(seed, calm_s=600.0).run(STEPS)
