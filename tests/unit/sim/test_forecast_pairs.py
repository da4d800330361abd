"""Expected starts where two have the same GPUs: the copy of the system begins as the system is."""

from __future__ import annotations

import pytest

from tests.support.build import cluster, fleet
from tests.support.simulated import FREE, jobs
from topmast.model.states import WAITING
from topmast.policies.registry import load_profile
from topmast.sim.books import Tables
from topmast.sim.forecast import Forecast
from topmast.sim.fork import moment_of
from topmast.sim.simulation import Simulation
from topmast.traces.throughputs import Throughputs, Work

ONE_GPU = fleet(cluster("lab-1", hosts=1, gpus=1, model="V100"))
A, B, C = Work("a", 1), Work("b", 1), Work("c", 1)
SPEEDS = Throughputs(
    "here", {w: {"V100": 1.0} for w in (A, B, C)}, {},
    {(A, B): {"V100": (0.9, 0.9)}, (B, A): {"V100": (0.9, 0.9)}},
)  # fmt: skip


@pytest.mark.parametrize(("at_s", "waits"), [(100.0, ["j3"]), (500.0, ["j1", "j2"])])
def test_a_start_is_forecast_where_two_share(at_s: float, waits: list[str]) -> None:
    """Nobody knows of pairs there, and all the same the one that waits gets its turn within a few rounds."""

    def nowhere(row: object) -> None:
        """No table is looked at."""

    profile = load_profile("gavel-max-min-fairness-packed")
    trace = jobs((0, 9_000, 1), (0, 9_000, 1), (50, 9_000, 1), model=["a", "b", "c"])
    run = Simulation(
        trace, ONE_GPU, profile, FREE, Tables(nowhere, nowhere, nowhere, nowhere),
        throughputs=SPEEDS,
    )  # fmt: skip
    run.begin()
    while run.heap.next_s() <= at_s:
        run.loop.step()
    records = run.machines.queue.jobs
    waiting = [record.id for record in records.values() if record.state in WAITING]
    moment = moment_of(run.machines.queue, run.machines.placers, at_s, 0)
    forecast = Forecast(moment, profile)
    for job in waiting:
        found = forecast.start_of(job)
        assert found.at_s is not None
        assert at_s < found.at_s <= at_s + 3 * profile.shares.round_s
    assert waiting == waits
