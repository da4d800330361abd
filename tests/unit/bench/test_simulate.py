"""The benchmark of the simulator, and the bare pool beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from topmast.bench import FleetOptions, run_bench
from topmast.bench.pool import replay
from topmast.bench.simulate_scaling import growth_of
from topmast.model.errors import InvalidInput

FLEET = FleetOptions(regions=2, clusters=2, hosts=20, load=4.0, profile="fifo-skip")


def test_a_run_is_measured(tmp_path: Path) -> None:
    """Every job ends, and the figures are of this run."""
    document = run_bench(
        "simulate",
        jobs=60,
        fleet=FleetOptions(
            regions=2, clusters=2, hosts=20, load=4.0, profile="fifo-skip", out=tmp_path
        ),
    )
    assert document["finished"] == document["jobs"] == 60
    assert document["jobs_per_cpu_s"] == pytest.approx(60 / document["cpu_s"])
    assert document["us_per_job"] == pytest.approx(1e6 * document["cpu_s"] / 60)
    assert document["peak_rss_bytes"] > 1 << 20
    assert (tmp_path / "simulate.json").exists()


def test_the_same_seed_gives_the_same_run() -> None:
    """All but what the machine took."""
    first, again = (run_bench("simulate", jobs=40, seed=3, fleet=FLEET) for _ in range(2))
    for key in ("events", "wait_mean_s", "finished", "queue_max"):
        assert first[key] == again[key]


def test_a_load_of_nothing_is_refused() -> None:
    """With the option's name."""
    with pytest.raises(InvalidInput, match="--load"):
        run_bench("simulate", jobs=10, fleet=FleetOptions(regions=1, clusters=1, hosts=1, load=0.0))


def test_a_bare_pool_passes_over_who_does_not_fit() -> None:
    """Four GPUs: the second job waits for the first, the third goes before it, the last never fits."""
    begins_s = replay([0.0, 1.0, 2.0, 3.0], [10.0, 5.0, 1.0, 1.0], [3.0, 2.0, 1.0, 8.0], 4.0)
    assert begins_s == [0.0, 10.0, 2.0, float("inf")]


def test_linear_growth_has_the_exponent_1() -> None:
    """Twice the jobs in twice the time, each at the same cost."""
    rows = [
        {"axis": "jobs", "jobs": n, "us_per_job": 5.0, "cpu_s": 5e-6 * n, "peak_rss_bytes": 100}
        for n in (10, 20, 40)
    ]
    assert growth_of(rows) == [
        {"axis": "jobs", "us_per_job": 0.0, "cpu_s": 1.0, "peak_rss_bytes": 0.0}
    ]
