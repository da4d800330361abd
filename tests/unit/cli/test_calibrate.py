"""`calibrate`: the world in which jobs ran is found again, and what does not fit is said."""

import csv
import json
from pathlib import Path

import pytest
from msgspec.structs import asdict

from tests.unit.cli.conftest import Call
from topmast.experiments.calibrate import Times, error_of

FLEET = "regions: {r: {clusters: {c: {hosts: [{count: 1, gpu: G, gpus: 8}]}}}}\n"
JOBS = 24
COLUMNS = ("job_id", "submit_s", "finish_s", "wait_s", "preemptions", "restarts")
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
        for figure in ("mean", "p50", "p99", "makespan", "by_job"):
            assert abs(found[half][figure]) < 0.005
        assert found[half]["correlation"] > 0.999
    again = call("simulate", *files, "--set", f"@{written}", "--json").document
    real = json.loads((tmp_path / "real" / "summary.json").read_text())
    assert again["jct_s"]["mean"] == pytest.approx(real["jct_s"]["mean"], rel=0.005)


def test_the_errors_are_those_of_their_names() -> None:
    """Jobs of 100, 200 and 300 s come out as 110, 180 and 330; the last ends 20 s late in 420."""
    real = {f"j{n}": Times(60.0 * n, 160.0 * n + 100.0) for n in range(3)}
    lengths_s = {"j0": 110.0, "j1": 180.0, "j2": 330.0, "one side only": 1.0}
    simulated = {
        job: Times(60.0 * n, 60.0 * n + length_s)
        for n, (job, length_s) in enumerate(lengths_s.items())
    }
    found = error_of(real, simulated, [*real])
    assert asdict(found) == pytest.approx(
        {
            "mean": 620 / 600 - 1, "p50": 180 / 200 - 1, "p99": 327 / 298 - 1,
            "makespan": 450 / 420 - 1, "by_job": 0.1, "correlation": 0.97866,
        },
        abs=1e-4,
    )  # fmt: skip
    alike = {job: Times(0.0, 50.0) for job in real}
    assert error_of(real, alike, [*real]).correlation is None


@pytest.mark.parametrize(("real_s", "found_s"), [("120", 120.0), ("null", None)])
def test_rounds_are_found_by_when_jobs_start(
    call: Call, tmp_path: Path, real_s: str, found_s: float | None
) -> None:
    """A cluster that decides every two minutes, and one that decides at once."""
    fleet, trace = tmp_path / "fleet.yaml", tmp_path / "jobs.csv"
    fleet.write_text(FLEET)
    rows = [f"j{n},{31.7 * n},{100 + 37.3 * (n % 7)},{(1, 2, 4)[n % 3]}" for n in range(60)]
    trace.write_text("\n".join(["job_id,submit_s,duration_s,gpus", *rows]) + "\n")
    files = ("--trace", str(trace), "--fleet", str(fleet), "--profile", "fifo-skip")
    real = tmp_path / "real"
    call("simulate", *files, "--set", f"rounds_s={real_s}", "--out", str(real), "--json")
    found = call("calibrate", *files, "--measured", str(real / "jobs.csv"), "--json").document
    assert found["settings"].get("rounds_s") == found_s
    assert found["held_out_after"]["by_job"] < 0.001


def test_a_table_that_names_gpu_models_gives_their_speeds(call: Call, tmp_path: Path) -> None:
    """Jobs say that B is half as fast as A; on the cluster it is a quarter less than that."""
    fleet, trace = tmp_path / "fleet.yaml", tmp_path / "jobs.csv"
    hosts = "{count: 1, gpu: %s, gpus: 4}"
    fleet.write_text(
        f"regions: {{r: {{clusters: {{c: {{hosts: [{hosts % 'A'}, {hosts % 'B'}]}}}}}}}}\n"
    )
    rows = [f"j{n},{20 * n},{100 + 37 * (n % 7)},2,A|B,1|0.5" for n in range(32)]
    trace.write_text("\n".join(["job_id,submit_s,duration_s,gpus,gpu_models,speeds", *rows]) + "\n")
    files = ("--trace", str(trace), "--fleet", str(fleet), "--profile", "fifo-skip")
    true = ("--set", "sim.startup_s=12", "--set", "sim.gpu_speed.B=0.75")
    call("simulate", *files, *true, "--out", str(tmp_path / "real"), "--json")
    measured = tmp_path / "measured.csv"
    measured.write_text(_with_models(tmp_path / "real"))
    found = call("calibrate", *files, "--measured", str(measured), "--json").document
    true_s = {"sim.gpu_speed.A": 1.0, "sim.gpu_speed.B": 0.75, "sim.startup_s": 12.0}
    assert found["settings"] == pytest.approx(true_s, rel=0.001)
    assert found["unseen"] == ["sim.restore_s", "sim.checkpoint_s"]
    assert found["before"]["by_job"] > 0.05
    assert found["held_out_after"]["by_job"] < 0.001


def test_stopped_jobs_show_restores_and_checkpoints(call: Call, tmp_path: Path) -> None:
    """Short jobs stop long ones, which go on from where they were."""
    fleet, trace = tmp_path / "fleet.yaml", tmp_path / "jobs.csv"
    fleet.write_text(FLEET)
    kinds = ((3000, 8), (500, 4), (100, 8), (900, 2), (200, 8))
    rows = [f"j{n},{150 * n},{kinds[n % 5][0] + 7 * n},{kinds[n % 5][1]}" for n in range(80)]
    trace.write_text("\n".join(["job_id,submit_s,duration_s,gpus", *rows]) + "\n")
    files = ("--trace", str(trace), "--fleet", str(fleet), "--profile", "srtf")
    true_s = {"sim.startup_s": 12.0, "sim.restore_s": 33.0, "sim.checkpoint_s": 8.0}
    world = [f"--set={name}={value}" for name, value in true_s.items()]
    real = call("simulate", *files, *world, "--out", str(tmp_path / "real"), "--json").document
    assert real["preemptions"] > 10
    table = str(tmp_path / "real" / "jobs.csv")
    found = call("calibrate", *files, "--measured", table, "--json").document
    assert found["settings"] == pytest.approx(true_s, rel=0.1)
    assert abs(found["held_out_after"]["mean"]) < 0.02


def test_without_the_times_that_jobs_waited_simulations_are_searched(
    call: Call, files: tuple[str, ...], tmp_path: Path
) -> None:
    """Then only the times from submission to end are known, and no speed can be told."""
    call("simulate", *files, "--set=sim.startup_s=75", "--out", str(tmp_path / "real"), "--json")
    table = tmp_path / "measured.csv"
    with (tmp_path / "real" / "jobs.csv").open() as file:
        rows = [f"{r['job_id']},{r['submit_s']},{r['finish_s']}" for r in csv.DictReader(file)]
    table.write_text("\n".join(["job_id,submit_s,finish_s", *rows]) + "\n")
    given = ("calibrate", *files, "--measured", str(table), "--json")
    found = call(*given, "--fit", "sim.startup_s").document
    assert found["runs"] > 2
    assert found["settings"]["sim.startup_s"] == pytest.approx(75.0, abs=1.0)
    assert "does not show sim.gpu_speed.G" in call(*given, "--fit", "sim.gpu_speed.G").error


def _with_models(run: Path) -> str:
    """The table of jobs of a run, each with the GPU model of its allocations."""
    with (run / "allocations.csv").open() as file:
        models = {row["job_id"]: row["gpu_model"] for row in csv.DictReader(file)}
    with (run / "jobs.csv").open() as file:
        rows = [
            ",".join([*(row[name] for name in COLUMNS), models[row["job_id"]]])
            for row in csv.DictReader(file)
        ]
    return "\n".join([",".join([*COLUMNS, "gpu_model"]), *rows]) + "\n"


@pytest.mark.parametrize(
    ("table", "options", "told"),
    [
        ("job_id,submit_s\na,1\n", (), "no column finish_s"),
        ("job_id,submit_s,finish_s\na,5,1\na,x,1\n", (), "line 2: job 'a' twice"),
        ("job_id,submit_s,finish_s\na,5,\n", (), "no job in it has ended"),
        ("job_id,submit_s,finish_s\na,5,6\n", (), "only 0 of its jobs end in the simulation"),
        ("job_id,submit_s,finish_s\na,5,6\n", ("--fit", "sim.loss"), "sim.loss cannot be fitted"),
        (
            "job_id,submit_s,finish_s\na,5,6\n",
            ("--fit", "sim.plan_s"),
            "sim.plan_s cannot be fitted",
        ),
        ("job_id,submit_s,finish_s\na,5,6\n", ("--fit", ","), "nothing to fit"),
        ("job_id,submit_s,finish_s\na,5,6\n", ("--fit", "sim.gpu_speed."), "cannot be fitted"),
        (
            "job_id,submit_s,finish_s,wait_s,preemptions,restarts,gpu_model\na,5,6,0,0,0,Z\n",
            (),
            "the fleet has no such GPU model",
        ),
        ("job_id,submit_s,finish_s\na,5,6\n", ("--set", "sim.gpu_speed.G=0"), "is out of range"),
        ("job_id,submit_s,finish_s\na,5,6\n", ("--set", "@none"), "none cannot be read"),
        ("\udcff\udcfe", (), "measured.csv: is not text (a table of jobs as CSV"),
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
    measured.write_bytes(table.encode(errors="surrogateescape"))
    called = call(
        "calibrate", *files, "--measured", str(measured), "--write", str(written), *options
    )
    assert called.code == 2
    assert told in called.error
    assert not written.exists()


def test_all_that_is_wrong_is_said_at_once(call: Call, tmp_path: Path) -> None:
    """Of each command that runs a trace: the profile, settings, and each file."""
    absent = [str(tmp_path / name) for name in ("no.csv", "no.yaml", "no.json", "measured.csv")]
    trace, fleet, table, measured = absent
    base = ("--trace", trace, "--fleet", fleet, "--throughputs", table, "--set", "nope=1")
    for command, files in (
        (("simulate", "--profile", "fiffo"), absent[:3]),
        (("calibrate", "--profile", "fiffo", "--measured", measured), absent),
        (("compare", "--profile", "fiffo", "--profile", "sjf"), absent[:3]),
    ):
        called = call(*command, *base)
        assert called.code == 2
        lines = called.err.splitlines()
        assert sum("no such file" in line for line in lines) == len(files)
        for text in (*files, "did you mean 'fifo'?"):
            assert sum(text in line for line in lines) == 1
