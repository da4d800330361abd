"""What a description says, on a trace small enough to count by hand; and that it can be drawn."""

import json
from pathlib import Path

import pytest

from topmast.model.errors import InvalidInput
from topmast.model.job import Band
from topmast.traces.describe import describe
from topmast.traces.generate import generate
from topmast.traces.pictures import draw
from topmast.traces.trace import Trace, trace_of


def trace() -> Trace:
    """Ten jobs, two an hour: five of one group, a gang of 16 GPUs, a share, one without GPUs."""
    return trace_of(
        "small",
        submit_s=[i * 1800.0 for i in range(10)],
        duration_s=[100.0] * 9 + [1000.0],
        gpus=[0, 0.5, 1, 1, 1, 1, 1, 1, 2, 8],
        tasks=[1] * 9 + [2],
        group=["", "", "", "g", "g", "g", "g", "g", "h", "h"],
        tenant=["a"] * 6 + ["b"] * 4,
        user=["u1"] * 9 + ["u2"],
        band=[Band.NORMAL] * 9 + [Band.HIGH],
        waited_s=[float("nan")] * 8 + [10.0, 30.0],
    )


def test_counts() -> None:
    """Jobs, GPU time, gangs, recurrence and users are those that one counts by hand."""
    found = describe(trace())
    gpu_s = 100 * (0.5 + 6 + 2) + 16_000
    assert (found["jobs"], found["gpu_jobs"], found["span_s"]) == (10, 9, 16_200)
    assert found["gpu_hours"] == pytest.approx(gpu_s / 3600)
    assert found["wait_s"]["mean"] == 20
    assert found["runtime_s"]["p50"] == 100
    assert found["requests"]["gpus_per_job"]["max"] == 16
    assert found["requests"]["cpus_per_task"] is None
    gangs = found["gangs"]
    assert gangs["gang_share"] == 0.1
    assert gangs["gang_gpu_time_share"] == pytest.approx(16_000 / gpu_s)
    assert gangs["multi_gpu_share"] == 0.2
    assert gangs["shared_gpu_share"] == 0.1
    assert (gangs["largest_gang"], gangs["largest_job_gpus"]) == (2, 16)
    recurrence = found["recurrence"]
    assert recurrence["groups"] == 2
    assert recurrence["tagged_share"] == 0.7
    assert recurrence["in_groups_of_5_share"] == 0.5
    assert recurrence["first_time_share"] == 0.5, "three without a tag, and the first of two groups"
    assert found["users"] == {"count": 2, "busiest_5_percent_share": 0.9}
    assert found["arrivals"]["share_by_hour"][:6] == [0.2, 0.2, 0.2, 0.2, 0.2, 0]
    assert found["gpu_requests"][0]["jobs"] == 6
    assert [band["band"] for band in found["bands"]] == ["high", "normal"]
    assert [row["jobs"] for row in found["busiest_tenants"]] == [6, 4]


def test_what_is_not_known_is_not_made_up() -> None:
    """Without tags, users or waits there is nothing said about them; one job is enough."""
    found = describe(trace_of("one", submit_s=[0], duration_s=[5], gpus=[0]))
    assert (found["recurrence"], found["users"], found["wait_s"]) == (None, None, None)
    assert found["requests"]["gpus_per_task"] is None
    json.dumps(found, allow_nan=False)


def test_the_published_marginals_are_in_the_description() -> None:
    """What the paper on PAI prints can be read off: P50 of run times, recurrence, P95 of requests."""
    found = describe(generate("pai-like", 5000, 0)[0])
    assert found["runtime_s"]["p50"] == pytest.approx(614, rel=0.05)
    assert found["recurrence"]["in_groups_of_5_share"] == pytest.approx(0.65, abs=0.01)
    assert found["requests"]["gpus_per_task"]["p95"] == 1


def test_figures(tmp_path: Path) -> None:
    """Each figure is drawn as PNG and as SVG, and is the same when it is drawn again."""
    paths = draw(trace(), tmp_path / "a")
    names = ["arrivals", "gangs", "recurrence", "requests", "runtimes", "waits"]
    wanted = sorted(f"{name}.{kind}" for name in names for kind in ("png", "svg"))
    assert sorted(path.name for path in paths) == wanted
    for path, again in zip(paths, draw(trace(), tmp_path / "b"), strict=True):
        begin = b"\x89PNG" if path.suffix == ".png" else b"<?xml"
        assert path.read_bytes().startswith(begin)
        assert path.read_bytes() == again.read_bytes()


def test_figures_of_little(tmp_path: Path) -> None:
    """One job without GPUs can be drawn too; what is not known has no figure."""
    paths = draw(trace_of("one", submit_s=[0], duration_s=[5], gpus=[0]), tmp_path)
    assert sorted(path.stem for path in paths[::2]) == ["arrivals", "gangs", "runtimes"]


def test_no_place_for_figures(tmp_path: Path) -> None:
    """A file in the place of the folder is an error with the path."""
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="file: cannot be made"):
        draw(trace(), tmp_path / "file")
