"""Every public format, on a small sample of it: what becomes of each column."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from topmast.cli.traces import TRACE_FORMATS
from topmast.model.errors import InvalidInput
from topmast.model.job import Band
from topmast.traces.formats import FORMATS
from topmast.traces.reading import read
from topmast.traces.throughputs import Work, read_throughputs
from topmast.traces.trace import Texts, Trace

SAMPLES = Path(__file__).parent / "samples"


def column(trace: Trace, name: str) -> list[Any]:
    """A column as a list, row by row."""
    value = getattr(trace, name)
    if isinstance(value, Texts):
        return value.values()
    return value if isinstance(value, list) else list(value.tolist())


CASES: list[tuple[str, str, dict[str, list[Any]]]] = [
    (
        "topmast", "topmast.csv",
        {
            "job_id": ["train", "batch", "eval, once"],
            "submit_s": [0, 7, 12.5],
            "duration_s": [3600, 7200, 60.25],
            "gpus": [8, 1, 0.5],
            "tasks": [2, 1, 1],
            "min_tasks": [1, 1, 1],
            "max_tasks": [4, 1, 1],
            "tenant": ["vision", "nlp", "default"],
            "group": ["nightly", "", ""],
            "band": [Band.HIGH, Band.OPPORTUNISTIC, Band.NORMAL],
            "gpu_models": ["H100|A100", "", ""],
            "speeds": ["1|0.6", "", ""],
            "memory_gb": [512, 0, 0],
            "datasets": ["imagenet|labels", "", ""],
            "home_region": ["east", "", ""],
            "preemptible": [True, False, True],
            "checkpoint_interval_s": [300, 600, 600],
            "depends_on": ["", "train|eval, once", "train"],
            "expected_s": ["4000|0.25:3700", "", ""],
            "more_tasks": ["2x0/16/64|1x4", "", ""],
        },
    ),
    (
        "pai-tasks", "pai_tasks.csv",
        {
            "job_id": ["a", "2", "b"],
            "submit_s": [0, 10, 20],
            "duration_s": [120, 5, 60],
            "gpus": [6, 2, 1],
            "tasks": [2, 1, 1],
        },
    ),
    ("helios-jobs", "pai_tasks.csv", {"job_id": ["a", "2", "b"], "duration_s": [120, 5, 60]}),
    (
        "philly", "philly.csv",
        {
            "job_id": ["1", "2", "0"],
            "submit_s": [0, 5, 10],
            "duration_s": [2951, 10, 66],
            "gpus": [8, 6, 1],
            "tasks": [2, 2, 1],
            "tenant": ["vc1", "default", "vc2"],
        },
    ),
    (
        "helios", "helios.csv",
        {
            "job_id": ["8", "7", "9"],
            "submit_s": [0, 60, 87],
            "duration_s": [249, 100, 2],
            "gpus": [1, 4, 0],
            "tasks": [1, 4, 1],
            "cpus": [4, 8, 8],
            "tenant": ["vcB", "vcA", "vcB"],
            "user": ["u2", "u1", "u2"],
            "waited_s": [0, 10, 0],
        },
    ),
    (
        "openb", "openb.csv",
        {
            "job_id": ["pod-1", "pod-2", "pod-0"],
            "submit_s": [0, 10, 50],
            "duration_s": [30, 30, 970],
            "gpus": [2, 0, 0.46],
            "tasks": [1, 1, 1],
            "cpus": [6, 4, 12],
            "memory_gb": [12.884901888, 1.073741824, 17.179869184],
            "gpu_models": ["V100M16|V100M32", "", ""],
            "band": [Band.LOW, Band.NORMAL, Band.HIGH],
            "waited_s": [0, math.nan, 30],
        },
    ),
    (
        "tiresias", "tiresias.csv",
        {
            "submit_s": [0, 30, 53],
            "duration_s": [164, 147, 127],
            "gpus": [1, 8, 2],
            "tasks": [1, 2, 1],
            "model": ["vgg19", "resnet50", "unheard"],
            "skew": [102.76 / 143.67, 2.36 / 25.56, math.nan],
        },
    ),
    (
        "muri-iterations", "muri.csv",
        {"submit_s": [0, 1456], "duration_s": [927474.546, 926132.733], "gpus": [4, 4]},
    ),
    ("muri", "muri.csv", {"submit_s": [0, 1456], "duration_s": [927475.5, 926133], "gpus": [4, 4]}),
    (
        "sia", "sia.csv",
        {
            "job_id": ["cifar10-0", "imagenet-1"],
            "submit_s": [0, 3.5],
            "duration_s": [0.5 * 3600 / 6, 10**2.5 * 3600 / 32],
            "gpus": [6, 8],
            "tasks": [1, 4],
            "model": ["cifar10", "imagenet"],
        },
    ),
    (
        "gavel", "gavel.trace",
        {
            "job_id": ["1", "0"],
            "submit_s": [0, 50],
            "duration_s": [100, 100],
            "gpus": [1, 2],
            "gpu_models": ["V100", "V100|K80"],
            "speeds": ["1.0", "1.0|0.25"],
            "model": ["LM (batch size 5)", "ResNet-18 (batch size 16)"],
            "band": [Band.NORMAL, Band.HIGH],
            "deadline_s": [math.nan, 120],
        },
    ),
    (
        "shockwave", "shockwave.trace",
        {"submit_s": [0, 7], "duration_s": [3164, 720], "gpus": [1, 2], "gpu_models": ["", ""]},
    ),
    (
        "pai", "pai_jobs.csv",
        {
            "job_id": ["2", "3", "1"],
            "submit_s": [0, 5, 10],
            "gpus": [2, 0, 0.5],
            "tasks": [4, 1, 1],
            "cpus": [12, 8, 6],
            "gpu_models": ["V100", "", "MISC"],
            "user": ["u2", "u1", "u1"],
            "group": ["g1", "", "g1"],
            "waited_s": [math.nan, 0, 12],
        },
    ),
    (
        "pai", "pai",
        {
            "job_id": ["j1/worker", "j1/ps", "j2/tensorflow"],
            "submit_s": [0, 0, 990],
            "duration_s": [400, 420, 100],
            "gpus": [0.5, 0, 8],
            "tasks": [2, 1, 1],
            "cpus": [6, 4, 12],
            "memory_gb": [29.296875, 10, 59],
            "gpu_models": ["MISC", "", "V100"],
            "user": ["ua", "ua", "ub"],
            "group": ["groupA", "groupA", ""],
            "waited_s": [100, 90, 10],
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("format", "sample", "want"), CASES, ids=lambda value: str(value)[:20])
def test_samples(format: str, sample: str, want: dict[str, list[Any]]) -> None:
    """Each column of a format arrives as documented, in the order of submission."""
    trace = read(SAMPLES / sample, format)
    for name, values in want.items():
        assert (
            column(trace, name) == pytest.approx(values, nan_ok=True)
            if (isinstance(values[0], float | int))
            else column(trace, name) == values
        ), name


def test_every_format_has_a_sample_and_is_named_by_the_help() -> None:
    """No format is left out of the tests, or of what `--help` lists."""
    assert {format for format, _, _ in CASES} == set(FORMATS)
    assert sorted(TRACE_FORMATS.replace(" or ", ", ").split(", ")) == sorted(FORMATS)


def test_the_largest_host_decides_how_a_count_is_split() -> None:
    """Sixteen GPUs are one task where a host has sixteen, and four where it has four."""
    sample = SAMPLES / "philly.csv"
    assert column(read(sample, "philly", host_gpus=16), "tasks") == [1, 1, 1]
    assert column(read(sample, "philly", host_gpus=4), "tasks") == [4, 3, 1]
    assert column(read(sample, "philly", host_gpus=4), "gpus") == [4, 4, 1]


def test_instances_say_when_a_gang_really_ran(tmp_path: Path) -> None:
    """With the instance table beside it, a task lasts from its first instance to its last."""
    for name in ("pai_task_table.csv", "pai_job_table.csv"):
        (tmp_path / name).write_bytes((SAMPLES / "pai" / name).read_bytes())
    instances = tmp_path / "pai_instance_table.csv"
    instances.write_text(
        "j1,worker,a,wa,i1,Terminated,1150.0,1400.0,m1\n"
        "j1,worker,b,wb,i1,Terminated,1120.0,1490.0,m2\n"
        "j9,worker,b,wb,i1,Terminated,1.0,2.0,m2\n"
    )
    for path in (instances, tmp_path, tmp_path / "pai_task_table.csv"):
        trace = read(path, "pai")
        assert column(trace, "duration_s") == [370, 420, 100]
        assert column(trace, "waited_s") == [120, 90, 10]


def test_instances_alone_are_not_enough(tmp_path: Path) -> None:
    """The instance table does not say what instances ask for; the error says what to add."""
    path = tmp_path / "pai_instance_table.csv"
    path.write_text("j1,worker,a,wa,i1,Terminated,1150.0,1400.0,m1\n")
    with pytest.raises(InvalidInput, match=r"no pai_task_table\.csv.*same folder"):
        read(path, "pai")


def test_rows_of_joined_tables_count(tmp_path: Path) -> None:
    """A bad row of any table stops the read, or is counted; tasks that were not over are no bad rows."""
    for name in ("pai_task_table.csv", "pai_job_table.csv"):
        (tmp_path / name).write_bytes((SAMPLES / "pai" / name).read_bytes())
    (tmp_path / "pai_job_table.csv").open("a").write("j3,i3,uc,Failed,soon,1\n")
    with pytest.raises(InvalidInput, match=r"pai_job_table\.csv:3: start_time: 'soon'"):
        read(tmp_path, "pai")
    trace = read(tmp_path, "pai", skip_bad_rows=True)
    assert (len(trace), trace.skipped, trace.unfinished) == (3, 1, 2)


def test_a_header_is_read_where_tables_come_without_one(tmp_path: Path) -> None:
    """The official tables of PAI with their documented header on top are the same tables."""
    text = (SAMPLES / "pai" / "pai_task_table.csv").read_text()
    header = (
        "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type"
    )
    (tmp_path / "tasks.csv").write_text(f"{header}\n{text}")
    (tmp_path / "plain.csv").write_text(text)
    with_header, plain = read(tmp_path / "tasks.csv", "pai"), read(tmp_path / "plain.csv", "pai")
    assert with_header.job_id == plain.job_id
    assert np.isnan(plain.waited_s).all(), "without the job table, nobody knows who waited"


def test_throughputs() -> None:
    """The table tells work alone, work spread over hosts, and pairs of which neither stands still."""
    table = read_throughputs(SAMPLES / "simulation_throughputs.json")
    resnet, lm = Work("ResNet-18 (batch size 16)", 2), Work("LM (batch size 5)", 1)
    assert list(table.speeds(resnet).items()) == [("V100", 10.0), ("K80", 2.5)]
    assert table.speeds(lm) == {"V100": 3.0}, "it does not run on K80"
    assert table.spread == {resnet: {"V100": 8.0}}
    assert table.together == {(lm, lm): {"V100": (2.0, 1.5)}}
    assert table.speeds(Work("unheard", 1)) == {}


def test_shockwave_takes_speeds_from_a_table(tmp_path: Path) -> None:
    """A table that is given says how fast GPU models are; what it does not know is a bad row."""
    sample, table = SAMPLES / "shockwave.trace", SAMPLES / "simulation_throughputs.json"
    with pytest.raises(InvalidInput, match=r"shockwave\.trace:1: job_type: .* on 2 GPUs is not in"):
        read(sample, "shockwave", throughputs=table)
    trace = read(sample, "shockwave", throughputs=table, skip_bad_rows=True)
    assert (column(trace, "gpu_models"), trace.skipped) == (["V100"], 1)


def test_gavel_without_a_table(tmp_path: Path) -> None:
    """Steps without throughputs are no durations; the error says what to give."""
    (tmp_path / "x.trace").write_bytes((SAMPLES / "gavel.trace").read_bytes())
    with pytest.raises(InvalidInput, match="--throughputs FILE"):
        read(tmp_path / "x.trace", "gavel")
