"""The closed loop, small: real jobs, a calibrated simulator, and the errors before and after."""

import math

import pytest

from topmast.bench import ClosedLoopOptions, run_bench
from topmast.bench.closed_loop import GPUS_PER_HOST, HOSTS_PER_CLUSTER, REAL, jobs_of
from topmast.demo.lab import slurm


def test_the_jobs_keep_the_fleet_busy_while_they_arrive() -> None:
    """The work that comes in the window is what the fleet can do in it; a seed gives the same."""
    trace = jobs_of(400, 1)
    work_gpu_s = float((trace.duration_s * trace.gpus * trace.tasks).sum())
    speed = sum(REAL.values()) * HOSTS_PER_CLUSTER * GPUS_PER_HOST
    window_s = float(trace.submit_s[-1] - trace.submit_s[0])
    assert work_gpu_s / (window_s * speed) == pytest.approx(1.0, abs=0.02)
    assert jobs_of(400, 1).submit_s.tolist() == trace.submit_s.tolist()
    assert jobs_of(400, 2).submit_s.tolist() != trace.submit_s.tolist()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "engine", ["local", pytest.param("slurm", marks=[pytest.mark.slurm, pytest.mark.slow])]
)
def test_a_run_is_foretold(engine: str) -> None:
    """Twelve jobs: how near the simulation came is measured, and no job is left out."""
    if engine == "slurm" and (programs := slurm.lacking()):
        pytest.skip(f"no Slurm: {', '.join(programs)} not found (run `make slurm-tools`)")
    options = ClosedLoopOptions(engine=engine, jobs=12, seed=3, profiles=("fifo",))
    document = run_bench("closed-loop", loop=options)
    assert document["engine"] == engine
    assert set(document["settings"]) >= {"sim.startup_s"}
    assert document["settings"]["sim.startup_s"] >= 0.5
    run = document["profiles"]["fifo"]
    assert run["jobs"] == 12
    assert run["makespan_s"] > run["mean_jct_s"] > 1.5
    assert run["before"]["mean"] < 0
    assert abs(run["after"]["mean"]) < abs(run["before"]["mean"])
    assert all(math.isfinite(run["after"][key]) for key in ("mean", "p50", "p99", "makespan"))
    assert run["within_5_pct"] == document["within_5_pct"]
