"""`topmast allocate`: what it prints, and how it ends."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Call

PROBLEM: dict[str, Any] = {
    "workers": {"V100": 1, "K80": 1},
    "jobs": [
        {"id": "a", "throughputs": {"V100": 40, "K80": 10}, "steps_left": 4000, "entity": "x"},
        {"id": "b", "throughputs": {"V100": 12, "K80": 4}, "steps_left": 400, "entity": "x"},
    ],
    "pairs": [{"ids": ["b", "a"], "throughputs": {"V100": [11, 36]}}],
    "costs": {"V100": 3, "K80": 1},
    "entities": {"x": {"weight": 1}},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The problem in a file."""
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(PROBLEM))
    return path


def test_the_answer(call: Call, file: Path) -> None:
    """Rows are jobs, and pairs in the order of their ids; nothing that is 0 is listed."""
    done = call("allocate", "--policy", "max-throughput", file, "--json")
    assert done.code == 0
    document = done.document
    assert document.pop("wall_s") > 0
    assert document == {
        "policy": "max-throughput",
        "status": "optimal",
        "objective": 47.0,
        "allocation": {"b,a": {"V100": 1.0}},
    }


def test_levels(call: Call, file: Path) -> None:
    """Water-filling says where every job ended."""
    document = call("allocate", "--policy", "hierarchical", "--agnostic", file, "--json").document
    assert list(document) == ["policy", "status", "objective", "allocation", "levels", "wall_s"]
    assert document["levels"] == {"a": pytest.approx(1), "b": pytest.approx(1)}


def test_deadlines_that_cannot_be_met(call: Call, file: Path) -> None:
    """The answer says whose, and the command fails."""
    problem = json.loads(file.read_text())
    problem["jobs"][0]["deadline_s"] = 1
    file.write_text(json.dumps(problem))
    done = call("allocate", "--policy", "min-cost-slo", file, "--json")
    assert done.code == 1
    assert done.document["status"] == "infeasible"
    assert done.document["objective"] is None
    assert done.document["violated"] == ["a"]
    assert "violated" in call("allocate", "--policy", "min-cost-slo", file).out


def test_for_people(call: Call, file: Path) -> None:
    """A few fields, and a table of fractions."""
    out = call("allocate", "--policy", "fifo", file).out
    assert "objective  1.333" in out
    assert "a     1.0000       -" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--policy", "lottery"), ["--policy", "unknown policy 'lottery'", "makespan"]),
        (("--policy", "allox"), ["jobs[0].scale_factor"]),
    ],
)
def test_misuse(call: Call, file: Path, arguments: tuple[str, ...], words: list[str]) -> None:
    """One line that names the field."""
    problem = json.loads(file.read_text())
    problem["jobs"][0]["scale_factor"] = problem["jobs"][1]["scale_factor"] = 2
    file.write_text(json.dumps(problem))
    done = call("allocate", *arguments, file, "--json")
    assert done.code == 2
    assert done.out == ""
    assert all(word in done.error for word in words)


def test_no_such_file(call: Call, tmp_path: Path) -> None:
    """Misuse as well."""
    assert call("allocate", "--policy", "fifo", tmp_path / "none.json").code == 2
