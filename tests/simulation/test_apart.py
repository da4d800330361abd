"""Storms over a queue and placers in processes of their own; as many seeds as you like with

TOPMAST_STORM_SEEDS=0:300 pytest tests/simulation/test_apart.py
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.simulation.apart import ApartStorm
from topmast.fast.placement.machine import RegionalPlacer
from topmast.model import messages as m
from topmast.runtime.relay import Relay

STEPS = 2_000
FIRST, BEYOND = (int(x) for x in os.environ.get("TOPMAST_STORM_SEEDS", "0:6").split(":"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(FIRST, BEYOND))
def test_nothing_is_lost_or_done_twice_between_processes(seed: int) -> None:
    """Whatever breaks between them, every job ends once, and both sides' books are empty then."""
    ApartStorm(seed).run(STEPS)


def test_a_storm_between_processes_is_one() -> None:
    """Over a few seeds each kind of trouble comes up."""
    seen: dict[str, int] = {}
    for seed in range(4):
        storm = ApartStorm(seed)
        storm.run(STEPS)
        for what, count in storm.seen.items():
            seen[what] = seen.get(what, 0) + count
    assert set(seen) == {"request lost", "answer lost", "kill", "cut"}


# --- does anybody watch? --------------------------------------------------------------------------------


def _takes_all(self: Relay, event: m.Deliver) -> m.Receipt:
    """Everything that arrives is taken, whether or not it was before."""
    last = self.state.applied
    for parcel in event.parcels:
        self.send(event.to, parcel.message)
        last = max(last, parcel.seq)
    self.send(f"relay/{self.name}", m.Heard(last))
    return m.Receipt(self.state.stream, last)


def _says_nothing_again(self: Relay, event: m.Recovered) -> None:
    """What was not heard before a restart is not said again."""
    self._speaks = True
    self.state.outbox.clear()


def _always_fits(self: RegionalPlacer, plan: Any, event: Any) -> str:
    """A plan is carried out however old it is."""
    return ""


BROKEN: dict[str, tuple[type, str, Any]] = {
    "messages are applied twice": (Relay, "_deliver", _takes_all),
    "what was under way is forgotten": (Relay, "_recovered", _says_nothing_again),
    "plans are not looked at again": (RegionalPlacer, "_no_longer_fits", _always_fits),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_link_is_noticed(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break one thing on purpose: some storm of a few must fail, or nobody is watching."""
    owner, name, broken = BROKEN[what]
    monkeypatch.setattr(owner, name, broken)
    if name in ("_deliver", "_recovered"):
        kind = m.Deliver if name == "_deliver" else m.Recovered
        monkeypatch.setitem(Relay.handlers, kind, broken)
    with pytest.raises((AssertionError, KeyError)):
        for seed in range(12):
            ApartStorm(seed).run(STEPS)
