"""`topmast.progress` writes lines that an engine can read, and never disturbs training."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from topmast.report import progress


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The progress file of a task that we pretend to be."""
    file = tmp_path / "0.progress"
    monkeypatch.setenv("TOPMAST_PROGRESS_FILE", str(file))
    return file


def lines(file: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in file.read_text().splitlines()]
    for line in found:
        assert line.pop("at_s") > 0
    return found


def test_each_call_is_a_line(file: Path) -> None:
    """Only what was said is written."""
    progress()
    progress(3, loss=0.5)
    progress(step=4, checkpoint=True)
    progress(resumed_from=4)
    assert lines(file) == [
        {},
        {"step": 3, "metrics": {"loss": 0.5}},
        {"step": 4, "checkpoint": True},
        {"resumed_from": 4},
    ]


class Tensor:
    """What has one number inside, as tensors do."""

    def __float__(self) -> float:
        return 2.5


class Matrix:
    """What has many."""

    def __float__(self) -> float:
        raise RuntimeError("only one element tensors can be converted")


def test_metrics_are_finite_numbers(file: Path) -> None:
    """What is none is left out, the rest is kept."""
    metrics: dict[str, Any] = {
        "a": float("nan"),
        "b": float("-inf"),
        "c": "high",
        "d": None,
        "e": Tensor(),
        "f": Matrix(),
        "g": 10**400,
        "h": 1,
    }
    progress(1, **metrics)
    assert lines(file) == [{"step": 1, "metrics": {"e": 2.5, "h": 1.0}}]


@pytest.mark.parametrize("step", ["three", float("nan"), float("inf"), [1]])
def test_a_step_that_is_no_number_is_not_written(file: Path, step: Any) -> None:
    """Nor does it raise."""
    progress(step)
    assert not file.exists()


def test_outside_a_task_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script can be run by hand."""
    monkeypatch.delenv("TOPMAST_PROGRESS_FILE", raising=False)
    progress(1, loss=0.5)


@pytest.mark.parametrize("path", ["/nowhere/at/all", "/dev/full", "nul\0byte"])
def test_training_goes_on_when_reports_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """A full disk does not end a run of a week."""
    monkeypatch.setattr("os.environ", {"TOPMAST_PROGRESS_FILE": path})
    progress(1, checkpoint=True)


def test_lines_of_several_processes_do_not_mix(file: Path) -> None:
    """One write each, to the end of the file."""
    code = "from topmast.report import progress\nfor i in range(200): progress(i, loss=i / 7)"
    writers = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(4)]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    assert sorted(line["step"] for line in lines(file)) == sorted(list(range(200)) * 4)


def test_the_import_is_light() -> None:
    """Nothing but the standard library, and little of it."""
    code = "import sys, topmast; topmast.progress; print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"msgspec", "numpy", "pathlib2", "httpx", "asyncio"} & set(said.stdout.split())
