"""Jobs that were refused are asked about again when it may help them, and only then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topmast.experiments.placement import PlacementOptions, place
from topmast.experiments.watching import Watch
from topmast.fast.fleet_placer import FleetPlacer
from topmast.fast.machine import EventMachine
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.files.fleetfile import parse_fleet
from topmast.policies.registry import load_profile
from topmast.ports import Decision
from topmast.sim import ahead
from topmast.sim.settings import read_settings
from topmast.sim.simulation import Simulation
from topmast.traces.generate import generate

JOBS, LOAD = 400, 4.0
OPTIONS = {
    "on_demand_copies": "false",
    # These look at what the last request left behind: when it was settled which gangs are common, and where room
    # is kept. Requests in vain change that, and so which of two good places is taken.
    "score.fragmentation": "0",
    "reserve_after_s": "1000000000",
}


Placed = tuple[float, str, tuple[str, ...], tuple[str, ...]]


def _decisions(monkeypatch: pytest.MonkeyPatch) -> tuple[list[Placed], int]:
    """What was launched when and where, and what was stopped for it; and how many requests that took."""
    trace, document = generate("mast-like", 2_000, 1, 1.0)
    fleet = place(trace, parse_fleet(document), PlacementOptions(overhead=0.6), 1)
    trace = trace.head(JOBS).with_load(LOAD)
    watch = Watch(trace)
    profile = load_profile("mast", OPTIONS)
    simulation = Simulation(trace, fleet, profile, read_settings({}), watch.tables(), 1)
    watch.simulation = simulation
    events: list[tuple[float, m.Message]] = []
    handle = EventMachine.handle

    def seen(machine: EventMachine, event: m.Message, now: float) -> Decision:
        events.append((now, event))
        return handle(machine, event, now)

    with monkeypatch.context() as patched:
        patched.setattr(EventMachine, "handle", seen)
        simulation.run()
    requests = sum(isinstance(event, m.RequestFleetBids) for _, event in events)
    plans = [(now, event.plan) for now, event in events if isinstance(event, m.CommitPlan)]
    decisions = [
        (now, p.job, tuple(s.host for s in p.seats), tuple(v.job for v in p.victims))
        for now, p in plans
    ]
    return decisions, requests


def test_a_memory_of_refusals_changes_no_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    """To ask about all jobs whenever anything is freed finds the same places, with many more requests."""
    monkeypatch.setattr(ahead, "REPORT_S", 0.0)  # else news depends on when was asked before
    remembered, few = _decisions(monkeypatch)

    def about_all(fleet_placer: FleetPlacer, event: m.CheckBlocked) -> None:
        fleet_placer.send(ids.QUEUE, m.Unblocked(None))

    handlers: dict[type[m.Message], Callable[..., Any]] = dict(FleetPlacer.handlers)
    handlers[m.CheckBlocked] = about_all
    monkeypatch.setattr(FleetPlacer, "handlers", handlers)
    anew, many = _decisions(monkeypatch)
    assert remembered == anew
    assert len(remembered) > JOBS
    assert any(victims for *_, victims in remembered)
    assert few < many / 3
