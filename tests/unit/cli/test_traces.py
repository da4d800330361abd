"""`topmast traces`: what its commands write, print and refuse."""

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Call
from topmast.cli.traces import KINDS, MACHINE_FORMATS
from topmast.model.files.fleetfile import read_fleet
from topmast.traces import generate, machines
from topmast.traces.reading import read

SAMPLES = Path(__file__).parents[1] / "traces" / "samples"


def test_convert(call: Call, tmp_path: Path) -> None:
    """A public trace becomes one of ours; counts of GPUs become tasks that a host holds."""
    out = tmp_path / "jobs.csv"
    done = call(
        "traces", "convert", SAMPLES / "philly.csv", "--format", "philly", "--out", out, "--json"
    )
    assert done.document == {"out": str(out), "jobs": 3, "skipped": 0, "span_s": 10.0}
    assert out.read_text().splitlines() == [
        "job_id,submit_s,duration_s,gpus,tasks,tenant",
        "1,0,2951,8,2,vc1",
        "2,5,10,6,2,default",
        "0,10,66,1,1,vc2",
    ]
    call(
        "traces",
        "convert",
        SAMPLES / "philly.csv",
        "--format",
        "philly",
        "--out",
        out,
        "--host-gpus",
        4,
    )
    assert "1,0,2951,4,4,vc1" in out.read_text()


def test_convert_a_part(call: Call, tmp_path: Path) -> None:
    """A trace is cut by time, then to a number of jobs, and its load is changed last."""
    out = tmp_path / "part.csv.gz"
    source = SAMPLES / "topmast.csv"
    when = ("--from", "5s", "--to", "1m")
    done = call("traces", "convert", source, "--out", out, *when, "--load", 0.5)
    assert done.code == 0
    part = read(out)
    assert part.job_id == ["batch", "eval, once"]
    assert part.submit_s.tolist() == [4, 15]
    assert part.depends_on.values() == ["eval, once", ""], "what is cut off counts as done"
    call("traces", "convert", source, "--out", out, "--limit", 1)
    assert read(out).job_id == ["train"]


def test_describe(call: Call, tmp_path: Path) -> None:
    """The description is a document, or tables for people; figures are drawn if a folder is named."""
    done = call("traces", "describe", SAMPLES / "openb.csv", "--format", "openb", "--json")
    assert done.document["jobs"] == 3
    assert done.document["wait_s"]["max"] == 30
    done = call(
        "traces", "describe", SAMPLES / "pai_jobs.csv", "--format", "pai", "--out", tmp_path / "f"
    )
    assert "gangs            33.3% of jobs" in done.out
    assert "run time, s" in done.out
    assert "P90" in done.out
    assert (tmp_path / "f" / "waits.svg").exists()
    assert done.err.count("drawn: ") == 12


def test_generate(call: Call, tmp_path: Path) -> None:
    """A trace and its fleet are written; the same seed writes the same bytes."""
    paths = [tmp_path / name for name in ("a.csv", "b.csv")]
    for path in paths:
        done = call(
            "traces", "generate", "--kind", "mast-like", "--jobs", 2000, "--seed", 5, "--out", path,
            "--fleet-out", tmp_path / "fleet.yaml", "--json",
        )  # fmt: skip
    assert done.document["gpus"] == read_fleet(tmp_path / "fleet.yaml").gpus()
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert len(read(paths[0])) == 2000


def test_fleet(call: Call, tmp_path: Path) -> None:
    """A list of machines becomes a fleet file, on stdout or in a file."""
    source = SAMPLES / "pai_machines.csv"
    done = call("traces", "fleet", source, "--format", "pai-machines")
    (tmp_path / "fleet.yaml").write_text(done.out)
    assert read_fleet(tmp_path / "fleet.yaml").gpus() == {"V100": 16, "T4": 2}
    out = tmp_path / "out.yaml"
    done = call("traces", "fleet", source, "--format", "pai-machines", "--out", out, "--json")
    assert done.document == {"out": str(out), "hosts": 4, "gpus": {"V100": 16, "T4": 2}}
    assert out.read_text() == (tmp_path / "fleet.yaml").read_text()


MISUSE = [
    (["convert", "t.csv", "--out", "o.csv"], "t.csv:3: duration_s: 'soon' is not a number (a number from 0 to 1e+09)"),
    (["describe", "t.csv", "--format", "excel"], "format: no format 'excel' is known (topmast, "),
    (["describe", "t.csv", "--skip-bad-rows", "--from", "9d"], "--from, --to: no job is left (the last job comes at 0 s)"),
    (["describe", "t.csv", "--from", "soon"], "'soon' is not a duration"),
    (["describe", "t.csv", "--skip-bad-rows", "--load", "0"], "load: is not a number above 0"),
    (["describe", "nothing.csv"], "nothing.csv: no such file"),
    (["generate", "--kind", "x", "--out", "o.csv"], "kind: no kind 'x' is known (pai-like, philly-like, mast-like, gavel-like, gandiva-like, gandiva-elastic-like)"),
    (["fleet", "t.csv", "--format", "x"], "format: no list of machines 'x' is known"),
    (["fleet", "t.csv"], "Missing option '--format'"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "want"), MISUSE)
def test_misuse(
    arguments: list[str], want: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Misuse is one line, exit code 2, and no file is left behind."""
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("job_id,submit_s,duration_s,gpus\na,0,5,1\nb,0,soon,1\n")
    done = call("traces", *arguments)
    assert done.code == 2
    assert want in done.err
    assert done.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_bad_rows_left_out_are_mentioned(call: Call, tmp_path: Path) -> None:
    """What was left out is counted in the document and said on stderr."""
    path = tmp_path / "t.csv"
    path.write_text("job_id,submit_s,duration_s,gpus\na,0,5,1\nb,0,soon,1\n")
    done = call("traces", "describe", path, "--skip-bad-rows", "--json")
    assert done.document["skipped"] == 1
    assert done.error == "warning: 1 bad row left out"


def test_the_help_names_what_there_is(call: Call) -> None:
    """Kinds and lists that the help names are those that there are; alone, the group shows its help."""
    assert KINDS.replace(" or ", ", ").split(", ") == list(generate.KINDS)
    assert tuple(MACHINE_FORMATS.split(" or ")) == machines.FORMATS
    done = call("traces")
    assert done.code == 0
    assert "generate" in done.out
