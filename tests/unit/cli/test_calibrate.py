"""`calibrate`: the world in which jobs ran is found again, and what does not fit is said."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Call

FLEET = "regions: {r: {clusters: {c: {hosts: [{count: 1, gpu: G, gpus: 8}]}}}}\n"
JOBS = 24
TRUE_S = {"sim.startup_s": 75.0}


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, ...]:
    """A trace whose jobs wait for each other, and a fleet."""
    (tmp_path / "fleet.yaml").write_text(FLEET)
    rows = [f"job-{n},{40 * n},{100 + 37 * (n % 7)},{(1, 4, 8)[n % 3]}" for n in range(JOBS)]
    (tmp_path / "jobs.csv").write_text("\n".join(["job_id,submit_s,duration_s,gpus", *rows]) + "\n")
    return (
        "--trace", str(tmp_path / "jobs.csv"), "--fleet", str(tmp_path / "fleet.yaml"),
        "--profile", "fifo",
    )  # fmt: skip


def test_the_settings_of_a_run_are_found_again(
    call: Call, files: tuple[str, ...], tmp_path: Path
) -> None:
    """From its table of jobs alone; `--set @FILE` then gives the same times."""
    true = [f"--set={name}={value}" for name, value in TRUE_S.items()]
    call("simulate", *files, *true, "--out", str(tmp_path / "real"), "--json")
    measured, written = tmp_path / "real" / "jobs.csv", tmp_path / "world.set"
    found = call(
        "calibrate", *files, "--measured", str(measured), "--fit", "sim.startup_s",
        "--write", str(written), "--json",
    ).document  # fmt: skip
    assert found["settings"]["sim.startup_s"] == pytest.approx(75.0, abs=1.0)
    assert (found["jobs"], found["unmatched"]) == (JOBS, 0)
    assert abs(found["before"]["mean"]) > 0.05
    for half in ("after", "held_out_after"):
        assert abs(found[half]["mean"]) < 0.005
        assert abs(found[half]["makespan"]) < 0.005
    again = call("simulate", *files, "--set", f"@{written}", "--json").document
    real = json.loads((tmp_path / "real" / "summary.json").read_text())
    assert again["jct_s"]["mean"] == pytest.approx(real["jct_s"]["mean"], rel=0.005)


@pytest.mark.parametrize(
    ("table", "options", "told"),
    [
        ("job_id,submit_s\na,1\n", (), "no column finish_s"),
        ("job_id,submit_s,finish_s\na,5,1\na,x,1\n", (), "line 2: job 'a' twice"),
        ("job_id,submit_s,finish_s\na,5,\n", (), "no job in it has ended"),
        ("job_id,submit_s,finish_s\na,5,6\n", (), "only 0 of its jobs end in the simulation"),
        ("job_id,submit_s,finish_s\na,5,6\n", ("--fit", "sim.loss"), "sim.loss cannot be fitted"),
        ("job_id,submit_s,finish_s\na,5,6\n", ("--fit", ","), "nothing to fit"),
        ("job_id,submit_s,finish_s\na,5,6\n", ("--set", "@none"), "none cannot be read"),
    ],
)
def test_what_does_not_fit_is_said(
    call: Call,
    files: tuple[str, ...],
    tmp_path: Path,
    table: str,
    options: tuple[str, ...],
    told: str,
) -> None:
    """Before anything is written."""
    measured, written = tmp_path / "measured.csv", tmp_path / "world.set"
    measured.write_text(table)
    called = call(
        "calibrate", *files, "--measured", str(measured), "--write", str(written), *options
    )
    assert called.code == 2
    assert told in called.error
    assert not written.exists()
