"""Preemptive orders in rounds beside a plain testbed that places every job anew at each round."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace as replace_struct

from tests.support.build import cluster, fleet
from tests.support.gavel_bed import GavelBed
from tests.support.simulated import FREE, run
from tests.support.testbed import Job, Testbed, drawn
from topmast.experiments.calibrate import calibrate
from topmast.experiments.run import RunOptions
from topmast.model.files.fleetfile import read_fleet
from topmast.policies.registry import load_profile
from topmast.traces.reading import read
from topmast.traces.trace import Trace, gangs, trace_of

ROUNDS_S = 360.0
ORDERS = {
    "srtf": "srtf",
    "srsf": "srsf",
    "tiresias-las-as-published": "las",
}


def _trace(jobs: Sequence[Job], gpus_per_host: int) -> Trace:
    gpus, tasks = gangs(np.array([float(job.gpus) for job in jobs]), gpus_per_host)
    return trace_of(
        "testbed",
        submit_s=[job.submit_s for job in jobs],
        duration_s=[job.duration_s for job in jobs],
        gpus=gpus,
        tasks=tasks,
    )


def _apart(profile: str, jobs: Sequence[Job], hosts: int, gpus: int) -> tuple[float, float]:
    """How far mean JCT and makespan are from the testbed's, as fractions."""
    options = {"rounds_s": str(ROUNDS_S)}
    found = run(
        _trace(jobs, gpus),
        fleet(cluster("bed-1", hosts=hosts, gpus=gpus)),
        load_profile(profile, options),
    )
    bed = Testbed(hosts, gpus, ROUNDS_S, ORDERS[profile])
    submit_s = {job.number: job.submit_s for job in jobs}
    bed.run(jobs)
    mean_s = statistics.fmean(bed.finish_s[job] - submit_s[job] for job in submit_s)
    summary = found.result.summary
    assert summary["finished"] == len(jobs)
    assert summary["preemptions"] > 0
    return summary["jct_s"]["mean"] / mean_s - 1, summary["makespan_s"] / max(
        bed.finish_s.values()
    ) - 1


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))])
@pytest.mark.parametrize("profile", ORDERS)
def test_on_one_pool_jobs_take_as_long_as_on_a_testbed(profile: str, seed: int) -> None:
    """The same for SRTF and SRSF. For 2D-LAS within 3%: of jobs that one stopped at a moment, the list knows which stood in front."""
    within = 0.03 if profile.startswith("tiresias") else 1e-4
    mean, makespan = _apart(profile, drawn(seed, 120, 64, 1.5), 1, 64)
    assert abs(mean) < within
    assert abs(makespan) < within


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("profile", ORDERS)
def test_on_hosts_the_jobs_of_muri_take_as_long_as_on_a_testbed(
    profile: str, data_dir: Path
) -> None:
    """Eight hosts of eight, the first 250 jobs of trace 3, most of them of 8 GPUs: within 5%."""
    trace = read(data_dir / "muri" / "trace3.csv", "muri-iterations").head(250)
    columns = (trace.submit_s, trace.duration_s, trace.total_gpus())
    jobs = [Job(n, *row) for n, row in enumerate(zip(*(c.tolist() for c in columns), strict=True))]
    mean, makespan = _apart(profile, [replace(job, gpus=int(job.gpus)) for job in jobs], 8, 8)
    assert abs(mean) < 0.05
    assert abs(makespan) < 0.05


ROUND_S, RECOMPUTE_S, STARTUP_S = 120.0, 1_000.0, 20.0
GAVEL_LIKE = {
    "gavel-max-min-fairness-agnostic-as-published": "max-min-fairness",
    "gavel-finish-time-fairness-agnostic-as-published": "finish-time-fairness",
    "gavel-makespan-as-published": "makespan",
}
"""By profile, the policy of the testbed."""
WITHIN = {"gavel-makespan-as-published": 0.15}
"""Of mean JCT: shares that leave work to choose are chosen otherwise than by the testbed. Others: 0.1."""


def _gavel_bed(profile: str, seed: int) -> tuple[GavelBed, Trace]:
    """Sixty jobs on 16 GPUs of one model, in rounds as Shockwave's testbed had them; which ended when."""
    jobs = drawn(seed, 60, 16, 1.3, sizes=(1, 2, 4, 8))
    bed = GavelBed(16, ROUND_S, RECOMPUTE_S, STARTUP_S, GAVEL_LIKE[profile])
    bed.run(jobs)
    return bed, _trace(jobs, 16)


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
@pytest.mark.parametrize("profile", GAVEL_LIKE)
def test_as_published_jobs_take_as_long_as_on_a_testbed_with_gavels_rounds(
    profile: str, seed: int
) -> None:
    """By the name of the profile, and what the testbed says of itself: within 10% in mean JCT (makespan policy: 15%) and makespan."""
    bed, trace = _gavel_bed(profile, seed)
    options = {"shares.round_s": str(ROUND_S), "shares.recompute_s": str(RECOMPUTE_S)}
    world = fleet(cluster("bed-1", hosts=1, gpus=16))
    settings = replace_struct(FREE, startup_s=STARTUP_S)
    found = run(trace, world, load_profile(profile, options), settings).result.summary
    submit_s = {run.job.number: run.job.submit_s for run in bed.ended}
    mean_s = statistics.fmean(bed.finish_s[job] - submit_s[job] for job in submit_s)
    assert found["finished"] == len(submit_s) == 60
    assert sum(run.starts for run in bed.ended) > 100, "rounds stop jobs"
    assert found["jct_s"]["mean"] == pytest.approx(mean_s, rel=WITHIN.get(profile, 0.1))
    assert found["makespan_s"] == pytest.approx(max(bed.finish_s.values()), rel=0.1)


def _measured(bed: GavelBed, folder: Path) -> Path:
    """The table of jobs that such a testbed keeps."""
    path = folder / "measured.csv"
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(
            ("job_id", "submit_s", "finish_s", "first_start_s", "wait_s", "preemptions", "restarts")
        )
        for each in bed.ended:
            job, finish_s = each.job, bed.finish_s[each.job.number]
            wait_s = finish_s - job.submit_s - each.held_s
            times = (job.submit_s, finish_s, each.first_start_s, wait_s)
            table.writerow((f"j{job.number}", *times, each.starts - 1, 0))
    return path


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("profile", GAVEL_LIKE)
def test_calibrated_on_a_testbed_with_gavels_rounds_other_jobs_are_foretold(
    profile: str, tmp_path: Path
) -> None:
    """Its rounds and starts are found by one table of jobs; then 60 other jobs are within 10% in mean JCT and makespan."""
    bed, _ = _gavel_bed(profile, 0)
    rows = [
        f"j{e.job.number},{e.job.submit_s},{e.job.duration_s},{e.job.gpus}"
        for e in sorted(bed.ended, key=lambda each: each.job.number)
    ]
    trace, world = tmp_path / "jobs.csv", tmp_path / "bed.yaml"
    trace.write_text("\n".join(["job_id,submit_s,duration_s,gpus", *rows]) + "\n")
    world.write_text("regions: {r: {clusters: {c: {hosts: [{count: 1, gpu: G, gpus: 16}]}}}}\n")
    options = RunOptions(
        trace=trace, format="topmast", fleet=world, profile=profile, overheads=False,
        settings={"shares.recompute_s": str(RECOMPUTE_S)},
    )  # fmt: skip
    found = calibrate(options, _measured(bed, tmp_path))
    assert found.settings["shares.round_s"] == ROUND_S
    assert found.settings["sim.startup_s"] == pytest.approx(STARTUP_S, abs=5.0)
    other, jobs = _gavel_bed(profile, 1)
    texts = {name: str(value) for name, value in found.settings.items()}
    made, settings = replace_struct(options, settings={**options.settings, **texts}).world()
    summary = run(jobs, read_fleet(world), made, settings).result.summary
    mean_s = statistics.fmean(other.finish_s[e.job.number] - e.job.submit_s for e in other.ended)
    assert summary["jct_s"]["mean"] == pytest.approx(mean_s, rel=WITHIN.get(profile, 0.1))
    assert summary["makespan_s"] == pytest.approx(max(other.finish_s.values()), rel=0.1)
