"""Figures of two versions: what is a change, and what is noise."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from topmast.bench import series
from topmast.bench.series import Change, Figure, SeriesFile
from topmast.model.errors import InvalidInput


def _write(path: Path, **figures: list[float]) -> Path:
    found = {name: Figure(values, name.endswith("_per_s")) for name, values in figures.items()}
    path.write_bytes(msgspec.json.encode(SeriesFile(1, {"cores": 2}, 3, found)))
    return path


def _changes(tmp_path: Path, before: list[float], after: list[float], name: str) -> Change:
    old, new = _write(tmp_path / "a", **{name: before}), _write(tmp_path / "b", **{name: after})
    (change,) = series.compare(old, new)["changes"]
    assert isinstance(change, Change)
    return change


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ([1.0, 1.01, 1.2], [1.04, 1.05, 1.06], "same"),
        ([1.0, 1.01, 1.2], [1.10, 1.11, 1.12], "slower"),
        ([1.0, 1.01, 1.2], [0.80, 0.81, 0.82], "faster"),
        ([1.0, 1.30, 1.4], [1.20, 1.21, 1.22], "same"),
    ],
)
def test_a_change_counts_beyond_the_noise(
    tmp_path: Path, before: list[float], after: list[float], verdict: str
) -> None:
    """Best against best; the noise is how far the middle turn lies from the best one."""
    change = _changes(tmp_path, before, after, "search.p50_us")
    assert change.verdict == verdict
    assert change.ratio == pytest.approx(min(after) / min(before))


def test_of_rates_more_is_better(tmp_path: Path) -> None:
    """A ratio above 1 is slower, whatever the figure is."""
    change = _changes(tmp_path, [100.0, 99.0, 80.0], [50.0, 49.0, 48.0], "burst.placed_per_s")
    assert (change.verdict, change.ratio) == ("slower", 2.0)


def test_figures_of_one_file_are_named(tmp_path: Path) -> None:
    """Nothing is compared with nothing."""
    old, new = _write(tmp_path / "a", a_s=[1.0]), _write(tmp_path / "b", b_s=[1.0])
    found = series.compare(old, new)
    assert (found["in_one_file_only"], found["changes"]) == (["a_s", "b_s"], [])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"format": 1, "machine": {}, "turns": 1, "figures": {"a_s": {"values": [], "more_is_better": false}}}',
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    """With its name."""
    (tmp_path / "a").write_text(text)
    with pytest.raises(InvalidInput, match=r"a(:| is no file)"):
        series.compare(tmp_path / "a", _write(tmp_path / "b", a_s=[1.0]))


def test_only_numbers_with_units_are_figures() -> None:
    """What the benchmark was told is none, nor is a count."""
    document = {
        "jobs": 5, "seed": 1, "p50_us": 2, "machine": {"memory_bytes": 1}, "big": True,
        "rows": [{"solve_s": 0.5, "policy": "las"}], "placed_per_s": 7.0,
    }  # fmt: skip
    assert dict(series._numbers(document, "x")) == {
        "x.p50_us": 2.0, "x.rows.0.solve_s": 0.5, "x.placed_per_s": 7.0,
    }  # fmt: skip


def test_an_unknown_benchmark_is_refused(tmp_path: Path) -> None:
    """Before any is run."""
    with pytest.raises(InvalidInput, match="no benchmark nonsense"):
        series.measure_all(["ranking", "nonsense"], 1, tmp_path / "out", print)


def test_turns_of_a_benchmark_are_in_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each in a process of its own; the file is compared with itself."""
    monkeypatch.setitem(series.BENCHES, "ranking", ("--jobs", "2000"))
    out = tmp_path / "out"
    found = series.measure_all(["ranking"], 2, out, lambda line: None)
    assert {len(figure.values) for figure in found.figures.values()} == {2}
    same = series.compare(out, out)
    assert (same["faster"], same["slower"], same["same_machine"]) == (0, 0, True)
    assert same["same"] == len(same["changes"]) > 0
