"""`simulate`: files in, a summary and tables out, and one line for what does not fit."""

import csv
import json
from pathlib import Path

import msgspec
import pytest

from tests.unit.cli.conftest import Call
from topmast.cli.simulate import Progress
from topmast.cli.whatif import write_json
from topmast.experiments.worlds import world_of
from topmast.model.whatif_views import WhatIfProgress

FLEET = "regions: {r: {clusters: {c: {hosts: [{count: 1, gpu: G, gpus: 8}]}}}}\n"
TRACE = "job_id,submit_s,duration_s,gpus\na,0,100,8\nb,10,50,4\nc,20,5,9\n"


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, ...]:
    """The options that name a small trace and a small fleet."""
    (tmp_path / "fleet.yaml").write_text(FLEET)
    (tmp_path / "jobs.csv").write_text(TRACE)
    return ("--trace", str(tmp_path / "jobs.csv"), "--fleet", str(tmp_path / "fleet.yaml"))


def test_the_document_has_what_is_promised(call: Call, files: tuple[str, ...]) -> None:
    """`--json` prints the contract's keys; a warning about jobs set aside goes to stderr, exit 0."""
    called = call("simulate", *files, "--profile", "fifo", "--overheads", "none", "--json")
    assert called.code == 0
    assert "1 of 3 jobs can never start" in called.error
    document = called.document
    for key in (
        "jobs", "finished", "failed", "makespan_s", "allocation_rate", "goodput_rate",
        "preemptions", "migrations", "lost_gpu_s", "never_startable", "allocation_rate_waiting",
        "wall_s", "total_s", "jobs_per_s", "seed", "version", "config_hash",
    ):  # fmt: skip
        assert key in document
    for key in ("jct_s", "wait_s"):
        assert list(document[key]) == ["mean", "p50", "p90", "p99"]
    assert (document["jobs"], document["finished"], document["never_startable"]) == (3, 2, 1)
    assert document["jct_s"]["mean"] == (100.0 + 140.0) / 2
    assert document["set_aside"] == [{"job_id": "c", "reason": "NoMatchingHardware", "detail": ""}]


def test_for_people_there_are_tables(call: Call, files: tuple[str, ...]) -> None:
    """Without `--json` the figures stand one to a line."""
    called = call("simulate", *files, "--profile", "fifo")
    assert called.code == 0
    assert "finished" in called.out
    assert "jct_s" in called.out


def test_the_folder_holds_the_tables(call: Call, files: tuple[str, ...], tmp_path: Path) -> None:
    """`--out` writes the summary and four tables, whose columns are promised."""
    out = tmp_path / "out" / "run"
    called = call("simulate", *files, "--profile", "fifo", "--out", str(out), "--json")
    assert json.loads((out / "summary.json").read_text()) == called.document
    heads = {
        name: next(csv.reader((out / f"{name}.csv").open()))
        for name in ("jobs", "allocations", "timeline", "copies")
    }
    assert heads["jobs"] == [
        "job_id",
        "tenant",
        "user",
        "group",
        "band",
        "state",
        "submit_s",
        "first_start_s",
        "finish_s",
        "wait_s",
        "region",
        "cluster",
        "gpus",
        "preemptions",
        "restarts",
        "lost_gpu_s",
        "collocated",
    ]
    assert heads["allocations"] == [
        "job_id",
        "epoch",
        "region",
        "cluster",
        "host",
        "gpu_model",
        "gpus",
        "start_s",
        "end_s",
        "kept_s",
        "end_reason",
    ]
    assert heads["copies"] == ["dataset", "from", "to", "bytes", "start_s", "end_s", "cause"]
    rows = list(csv.DictReader((out / "jobs.csv").open()))
    assert {row["job_id"]: row["state"] for row in rows} == {
        "a": "SUCCEEDED", "b": "SUCCEEDED", "c": "PENDING"
    }  # fmt: skip


def test_the_same_inputs_give_the_same_bytes(
    call: Call, files: tuple[str, ...], tmp_path: Path
) -> None:
    """Tables are equal byte by byte, and so is the summary but for the times of this machine."""
    outs = [tmp_path / "one", tmp_path / "two"]
    for out in outs:
        call("simulate", *files, "--profile", "mast", "--seed", "5", "--out", str(out))
    for name in ("jobs", "allocations", "timeline", "copies"):
        assert (outs[0] / f"{name}.csv").read_bytes() == (outs[1] / f"{name}.csv").read_bytes()
    summaries = [json.loads((out / "summary.json").read_text()) for out in outs]
    for summary in summaries:
        for key in ("wall_s", "total_s", "jobs_per_s", "spent_s"):
            del summary[key]
    assert summaries[0] == summaries[1]


def test_a_trace_can_be_cut_and_hurried(call: Call, files: tuple[str, ...]) -> None:
    """`--limit`, `--from`, `--to` and `--load`."""
    base = ("simulate", *files, "--profile", "fifo", "--overheads", "none", "--json")
    assert call(*base, "--limit", "1").document["jobs"] == 1
    assert call(*base, "--from", "10", "--to", "20").document["jobs"] == 1
    assert call(*base, "--limit", "2", "--load", "2").document["makespan_s"] == 150.0


def test_steps_that_no_table_has_are_said_not_to_count(
    call: Call, files: tuple[str, ...], tmp_path: Path
) -> None:
    """Where a policy adds up speeds of several jobs, and only as long as there is no table."""
    table = tmp_path / "table.json"
    table.write_text(json.dumps({"G": {"('A (batch size 1)', 1)": {"null": 2.0}}}))
    base = ("simulate", *files, "--overheads", "none", "--json", "--profile")
    for profile, more, count in (
        ("gavel-max-throughput-as-published", (), 1),
        ("gavel-max-throughput-as-published", ("--throughputs", str(table)), 0),
        ("gavel-max-min-fairness-as-published", (), 0),
        ("gavel-max-throughput", (), 0),
    ):
        warnings = call(*base, profile, *more).document["warnings"]
        assert len([w for w in warnings if w.startswith("shares.raw counts steps")]) == count


def test_a_run_ends_when_it_is_told_to(call: Call, files: tuple[str, ...], tmp_path: Path) -> None:
    """One job is done, one runs, one waits, and one comes later: each is told as what it is."""
    (tmp_path / "jobs.csv").write_text(
        "job_id,submit_s,duration_s,gpus\na,0,40,8\nb,10,50,8\nc,20,5,8\nd,70,5,1\n"
    )
    out = tmp_path / "out"
    base = ("simulate", *files, "--profile", "fifo", "--overheads", "none", "--json")
    cut = call(*base, "--until", "1m", "--out", str(out)).document
    assert [cut[x] for x in ("jobs", "finished", "running", "waiting")] == [3, 1, 1, 1]
    assert cut["attempts"] == 2
    assert [job["job_id"] for job in cut["still_waiting"]] == ["c"]
    assert "1 job still ran when the run ended" in cut["warnings"]
    with (out / "allocations.csv").open() as file:
        rows = [(row["job_id"], row["end_s"], row["end_reason"]) for row in csv.DictReader(file)]
    assert rows == [("a", "40.0", "succeeded"), ("b", "60.0", "running")]
    whole = call(*base, "--until", "1d").document
    assert [whole[x] for x in ("jobs", "finished", "running", "waiting")] == [4, 4, 0, 0]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--profile", "fiffo"), "did you mean 'fifo'?"),
        (("--set", "nope=1"), "nope"),
        (("--set", "sim.nope=1"), "nope"),
        (("--set", "sim.startup=3"), "did you mean 'sim.startup_s'?"),
        (("--set", "sim.loss=2"), "sim.loss"),
        (("--overheads", "some"), "neither 'default' nor 'none'"),
        (("--format", "xml"), "format"),
        (("--load", "0"), "load"),
        (("--from", "20", "--to", "10"), "--to"),
        (("--from", "1h"), "no job is left"),
        (("--until", "0"), "no job is left"),
        (("--until", "soon"), "--until"),
        (("--limit", "0"), "--limit"),
    ],
)
def test_what_does_not_fit_is_one_line(
    arguments: tuple[str, ...], says: str, call: Call, files: tuple[str, ...]
) -> None:
    """Misuse ends with 2 and says what was wrong."""
    called = call("simulate", *files, *arguments)
    assert called.code == 2
    assert says in called.error


def test_files_that_are_not_there(call: Call, files: tuple[str, ...], tmp_path: Path) -> None:
    """A missing or malformed file is named."""
    missing = call("simulate", "--trace", str(tmp_path / "no.csv"), *files[2:])
    assert missing.code in (1, 2)
    assert "no.csv" in missing.error
    (tmp_path / "bad.csv").write_text("job_id,submit_s,duration_s,gpus\na,0,-5,1\n")
    bad = call("simulate", "--trace", str(tmp_path / "bad.csv"), *files[2:])
    assert bad.code == 2
    assert "bad.csv:2" in bad.error
    both = call(
        "simulate", "--trace", str(tmp_path / "no.csv"), "--fleet", str(tmp_path / "no.yaml")
    )
    assert both.code == 2
    assert ["no.yaml" in line or "no.csv" in line for line in both.err.splitlines()] == [True, True]
    (tmp_path / "a-file").write_text("")
    record = call("simulate", *files, "--record", "/proc/x")
    assert record.code == 2
    assert "--record: /proc/x cannot be written" in record.error
    out = call("simulate", *files, "--out", str(tmp_path / "a-file"))
    assert out.code == 2
    assert "a-file" in out.error


def test_progress_tells_how_long_it_still_takes(capsys: pytest.CaptureFixture[str]) -> None:
    """At the rate of the last half minute: a slow beginning is forgotten."""
    times_s = iter((0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0))
    progress = Progress(lambda: next(times_s))
    told = []
    for over in (0, 100, 200, 1200, 2200, 3200):
        progress(over, 4200, 86_400.0)
        told.append(capsys.readouterr().err.strip().rpartition(", ")[2])
    assert told[0] == "day 1.0"
    assert told[1:3] == ["about 13m40s left", "about 10m left"]
    assert told[-1] == "about 10s left"


def test_progress_of_a_whatif_travels_as_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    """A server reads how many jobs are over, and shows the words as they are."""
    times_s = iter((0.0, 10.0))
    Progress(lambda: next(times_s), write=write_json)(3, 8, 8_640.0)
    told = msgspec.json.decode(capsys.readouterr().err, type=WhatIfProgress)
    assert (told.jobs_over, told.jobs) == (3, 8)
    assert told.text == "3 of 8 jobs over, day 0.1, about 17s left"


def test_what_set_says_goes_before_overheads_none() -> None:
    """So that a calibrated world can be told from one in which all else takes no time."""
    own, world = world_of("srtf", {"sim.startup_s": "7", "min_runtime_s": "3"}, overheads=False)
    assert (world.startup_s, world.restore_s, world.checkpoint_s, world.switch_s) == (7, 0, 0, 0)
    assert own.min_runtime_s == 3
