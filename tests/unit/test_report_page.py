"""The page of a comparison: on what it ran, what its figures mean, and GPUs that are there beside those held."""

from __future__ import annotations

from pathlib import Path

import pytest

from topmast.experiments.compare import compare
from topmast.experiments.report import FIGURES, SPREADS
from topmast.experiments.run import RunOptions

TRACE = "job_id,submit_s,duration_s,gpus\na,0,7200,8\nb,10,3600,8\nc,20,60,1\n"
FLEET = "regions: {r: {clusters: {c: {hosts: [{count: 1, gpu: G, gpus: 8}]}}}}\n"


@pytest.fixture
def options(tmp_path: Path) -> RunOptions:
    """Three jobs on a host of eight GPUs."""
    (tmp_path / "jobs.csv").write_text(TRACE)
    (tmp_path / "small.yaml").write_text(FLEET)
    return RunOptions(
        trace=tmp_path / "jobs.csv", format="topmast", fleet=tmp_path / "small.yaml", profile="",
        seed=7, load=2.0, overheads=False, out=tmp_path / "runs",
    )  # fmt: skip


def test_a_page_can_be_read_alone(options: RunOptions) -> None:
    """Fleet, load, seed and version; durations for people; each figure explained; the GPUs that there are."""
    document = compare(options, ["fifo", "sjf"])
    assert options.out is not None
    page = (options.out / "compare.html").read_text("utf-8")
    version = document["profiles"]["fifo"]["version"]
    assert (
        f"3 jobs of jobs at 2 times their load, on small.yaml (8 GPUs); seed 7, Topmast {version}."
        in page
    )
    assert "3h1m (10,8" in page, "the makespan"
    for what in (*FIGURES.values(), *SPREADS.values()):
        assert what in page
    assert "present" in page
    assert (document["profiles"]["sjf"]["gpus"], document["profiles"]["sjf"]["load"]) == (8, 2.0)
