"""Agreement with figures measured elsewhere, on real traces (skipped without `$TOPMAST_DATA`)."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest

from tests.support.build import cluster, fleet
from tests.support.simulated import run
from topmast.traces.trace import trace_of

JOBS = 10_000


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("profile", "jct_s", "wait_s"),
    [("fifo-skip", 11_118.87, 5_576.37), ("sjf", 7_099.07, 1_556.57)],
)
def test_one_pool_agrees_with_a_plain_simulator(
    profile: str, jct_s: float, wait_s: float, data_dir: Path
) -> None:
    """PAI tasks, one every 0.06 s, on one host of 6,500 GPUs: means as a bare pool has them."""
    with gzip.open(data_dir / "alibaba" / "pai_tasks_60k.csv.gz", "rt") as file:
        rows = [row for row, _ in zip(csv.DictReader(file), range(JOBS), strict=False)]
    trace = trace_of(
        "pai",
        submit_s=[0.06 * i for i in range(JOBS)],
        duration_s=[float(row["service_sec"]) for row in rows],
        gpus=[float(row["gpu_count"]) for row in rows],
    )
    pool = fleet(cluster("pool-1", hosts=1, gpus=6_500))
    summary = run(trace, pool, profile).result.summary
    assert summary["finished"] == JOBS
    assert summary["jct_s"]["mean"] == pytest.approx(jct_s, rel=1e-3)
    assert summary["wait_s"]["mean"] == pytest.approx(wait_s, rel=1e-3)
