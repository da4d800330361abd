"""Futures where two have the same GPUs: the copy of the system begins as the system is, and knows how fast they are."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.support.build import cluster, fleet
from tests.support.simulated import FREE, jobs
from topmast.model.states import WAITING
from topmast.policies.options import Profile
from topmast.policies.registry import load_profile
from topmast.sim.books import Tables
from topmast.sim.forecast import Forecast
from topmast.sim.outlook import Outlook
from topmast.sim.simulation import Simulation
from topmast.sim.whatif import StateSnapshot, state_snapshot_of
from topmast.traces.throughputs import Throughputs, Work

ONE_GPU = fleet(cluster("lab-1", hosts=1, gpus=1, model="V100"))
A, B, C = Work("a", 1), Work("b", 1), Work("c", 1)
SPEEDS = Throughputs(
    "here", {w: {"V100": 1.0} for w in (A, B, C)}, {},
    {(A, B): {"V100": (0.9, 0.9)}, (B, A): {"V100": (0.9, 0.9)}},
)  # fmt: skip


def nowhere(row: object) -> None:
    """No table is looked at."""


def _run(profile: Profile, at_s: float) -> Simulation:
    """Three jobs of 9,000 s want one GPU; two of them lose a tenth beside each other."""
    trace = jobs((0, 9_000, 1), (0, 9_000, 1), (50, 9_000, 1), model=["a", "b", "c"])
    tables = Tables(nowhere, nowhere, nowhere, nowhere)
    run = Simulation(trace, ONE_GPU, profile, FREE, tables, throughputs=SPEEDS)
    run.begin()
    _until(run, at_s)
    return run


def _until(run: Simulation, at_s: float) -> None:
    while len(run.heap) and run.heap.next_s() <= at_s:
        run.loop.step()


def _snapshot(run: Simulation, at_s: float) -> StateSnapshot:
    return state_snapshot_of(run.machines.queue, run.machines.region_states(), at_s, 0)


@pytest.mark.parametrize(("at_s", "waits"), [(100.0, ["j3"]), (500.0, ["j1", "j2"])])
def test_a_start_is_forecast_where_two_share(at_s: float, waits: list[str]) -> None:
    """The one that waits gets its turn within a few rounds."""
    profile = load_profile("gavel-max-min-fairness-packed")
    run = _run(profile, at_s)
    records = run.machines.queue.jobs.records
    waiting = [record.id for record in records.values() if record.state in WAITING]
    forecast = Forecast(_snapshot(run, at_s), profile)
    for job in waiting:
        found = forecast.start_of(job)
        assert found.at_s is not None
        assert at_s < found.at_s <= at_s + 3 * profile.shares.round_s
    assert waiting == waits


@pytest.mark.parametrize("at_s", [100.0, 4_000.0])
@pytest.mark.parametrize("knows", [True, False], ids=["told", "not told"])
def test_those_who_share_are_as_slow_as_the_table_says(knows: bool, at_s: float) -> None:
    """Two at 0.9 of their speed end at 10,000 s, and only then the third begins; untold one would be wrong."""
    profile = load_profile("gavel-max-throughput-packed")
    run = _run(profile, at_s)
    state = _snapshot(run, at_s)
    assert state.pair_speeds is SPEEDS
    told = state if knows else replace(state, pair_speeds=None)
    found = Forecast(told, profile).start_of("j3")
    _until(run, 20_000.0)
    really_s = run.machines.queue.jobs.records["j3"].first_start_s
    assert really_s == pytest.approx(10_000.0, abs=1.0)
    assert (found.at_s == pytest.approx(really_s, abs=1.0)) == knows


def test_whatif_knows_who_shares() -> None:
    """By 9,500 s nobody of the two has finished, by 10,500 s both have."""
    profile = load_profile("gavel-max-throughput-packed")
    run = _run(profile, 100.0)
    ended = [
        Outlook(_snapshot(run, 100.0), profile, for_s).run()["finished"]
        for for_s in (9_400.0, 10_400.0)
    ]
    assert ended == [0, 2]
