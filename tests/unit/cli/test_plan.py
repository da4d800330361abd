"""`plan data` and `plan example`, called as people call them."""

import json
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.support.dataplan import check
from tests.unit.cli.program import ROOT
from topmast.cli import plan_files
from topmast.cli.main import main
from topmast.cli.output import note

SMALL = ("--tables", "20", "--regions", "3", "--workloads", "20")


@pytest.fixture
def problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A small problem in a file."""
    path = tmp_path / "problem.json"
    assert main(ROOT, ["plan", "example", *SMALL, "--out", str(path)]) == 0
    capsys.readouterr()
    return path


def _answer(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("solver", ["exact", "large"])
def test_an_answer_is_one_json_document(
    solver: str, problem: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It passes the checker that knows only the two documents."""
    assert main(ROOT, ["plan", "data", "--solver", solver, "--json", str(problem)]) == 0
    check(json.loads(problem.read_text()), _answer(capsys))


def test_an_answer_warms_the_next(
    problem: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The answer file of one call is the start of another."""
    call = ["plan", "data", "--solver", "large", "--json"]
    assert main(ROOT, [*call, str(problem)]) == 0
    text = capsys.readouterr().out
    earlier = tmp_path / "answer.json"
    earlier.write_text(text)
    assert main(ROOT, [*call, "--warm-start", str(earlier), str(problem)]) == 0
    assert _answer(capsys)["objective"] <= json.loads(text)["objective"] + 1e-6


def test_people_get_fields_and_moves(problem: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What it costs, how good it is, and the largest moves."""
    assert main(ROOT, ["plan", "data", str(problem)]) == 0
    shown = capsys.readouterr().out
    assert "controllable_gap" in shown
    assert "MOVE" in shown


def test_an_infeasible_problem_ends_with_1(
    problem: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The document says so on stdout, one line of words on stderr."""
    document = json.loads(problem.read_text())
    document["tables"][0]["allowed"] = []
    problem.write_text(json.dumps(document))
    assert main(ROOT, ["plan", "data", "--json", str(problem)]) == 1
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert answer["status"] == "infeasible"
    assert answer["conflict"]["tables"] == ["table-00000"]
    assert "table-00000" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--solver", "magic"], "--solver"),
        (["--time-limit", "0"], "--time-limit"),
        (["--time-limit", "soon"], "--time-limit"),
        (["--ablation", "none"], "--ablation"),
    ],
)
def test_bad_options_are_misuse(
    arguments: list[str], words: str, problem: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and the option is named."""
    assert main(ROOT, ["plan", "data", *arguments, str(problem)]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{", "[]", '{"regions": []}'])
def test_bad_files_are_misuse(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, one line, and no traceback."""
    path = tmp_path / "bad.json"
    path.write_text(text)
    assert main(ROOT, ["plan", "data", str(path)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"topmast: {path}")
    assert err.count("\n") == 1
    assert main(ROOT, ["plan", "data", str(tmp_path / "none.json")]) == 2


def test_it_is_said_while_kernels_are_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    """At once when it takes time, and not a word when it does not."""
    told = Event()

    def said(text: str) -> None:
        note(text)
        told.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_files, "note", said)
        with plan_files.compiling_told(after_s=0.01):
            assert told.wait(30.0), "while it goes on"
    assert "compiling the kernels" in capsys.readouterr().err
    with plan_files.compiling_told(after_s=3_600.0):
        pass
    assert capsys.readouterr().err == ""
