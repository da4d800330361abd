"""`plan capacity` and `plan capacity-example`, called as people call them."""

import json
from pathlib import Path

import pytest

from tests.support.capacityplan import check
from tests.unit.cli.program import ROOT
from topmast.cli.main import main


@pytest.fixture
def problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A small problem in a file, which asks for more than there is."""
    path = tmp_path / "hosts.json"
    size = ("--hosts", "60", "--clusters", "4", "--domains", "4", "--asked", "1.2")
    assert main(ROOT, ["plan", "capacity-example", *size, "--out", str(path)]) == 0
    capsys.readouterr()
    return path


def test_an_answer_is_one_json_document(problem: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It passes the checker that knows only the two documents; what nobody can give is on stderr."""
    assert main(ROOT, ["plan", "capacity", "--time-limit", "30", "--json", str(problem)]) == 0
    shown = capsys.readouterr()
    check(json.loads(problem.read_text()), json.loads(shown.out))
    assert "cannot all have the H100 asked for" in shown.err


def test_people_get_fields_and_what_is_lacking(
    problem: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it costs, how good it is, and the largest shortfalls."""
    assert main(ROOT, ["plan", "capacity", str(problem)]) == 0
    shown = capsys.readouterr().out
    assert "cost of moves_in_use" in shown
    assert "capacities are not met" in shown


def test_a_bad_field_is_named(problem: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No traceback, the field and a remedy, and an exit that is not 0."""
    document = json.loads(problem.read_text())
    document["hosts"][3]["cluster"] = "gone"
    problem.write_text(json.dumps(document))
    assert main(ROOT, ["plan", "capacity", str(problem)]) != 0
    assert "hosts[3].cluster: unknown cluster" in capsys.readouterr().err
    assert main(ROOT, ["plan", "capacity", "--time-limit", "0", str(problem)]) != 0
