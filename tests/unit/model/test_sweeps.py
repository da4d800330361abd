"""Sweeps in a job file: the settings that they become, and what is refused."""

from typing import Any

import pytest

from topmast.model.errors import InvalidInput
from topmast.model.expansion import jobs_of, size_of
from topmast.model.files.jobfile import dump_job, parse_job
from topmast.model.ids import job_in_sweep, sweep_id, sweep_number


def settings(**sweep: Any) -> list[dict[str, str]]:
    """The settings of a sweep, which is written and read back first."""
    spec = parse_job({"run": "x", "sweep": sweep}).spec
    again = parse_job(dump_job(spec)).spec
    assert again == spec
    assert spec.sweep
    return [spec.sweep.setting(index) for index in range(spec.sweep.size)]


def test_a_matrix_is_all_combinations() -> None:
    """Numbers stay as they are written."""
    assert settings(matrix={"LR": [0.1, "1e-3"], "SEED": [1, 2]}) == [
        {"LR": "0.1", "SEED": "1"}, {"LR": "0.1", "SEED": "2"},
        {"LR": "1e-3", "SEED": "1"}, {"LR": "1e-3", "SEED": "2"},
    ]  # fmt: skip


def test_a_list_is_what_it_says() -> None:
    """Each setting may have variables of its own."""
    assert settings(list=[{"LR": 0.1}, {"LR": 0.2, "DEBUG": "1"}]) == [
        {"LR": "0.1"}, {"LR": "0.2", "DEBUG": "1"},
    ]  # fmt: skip


def test_a_range_has_both_ends() -> None:
    """It begins at 0 unless it says where."""
    assert settings(range={"variable": "SEED", "to": 2}) == [{"SEED": str(n)} for n in range(3)]
    spread = {"variable": "N", "from": -4, "to": 5, "step": 4}
    assert settings(range=spread) == [{"N": "-4"}, {"N": "0"}, {"N": "4"}]


@pytest.mark.parametrize(
    ("sweep", "field", "message"),
    [
        ({}, "sweep", "give one of matrix, list and range"),
        ({"list": [{"A": 1}], "matrix": {"A": [1]}}, "sweep", "matrix and list"),
        ({"list": []}, "sweep", "becomes 0 jobs"),
        ({"matrix": {"A": []}}, "sweep.matrix.A", "lists no value"),
        ({"matrix": {"A": list(range(400)), "B": list(range(400))}}, "sweep.matrix", "100,000"),
        ({"matrix": {"TOPMAST_X": [1]}}, "sweep.matrix.TOPMAST_X", "set by Topmast"),
        ({"matrix": {"A": [[1]]}}, "sweep.matrix.A[0]", "wanted text or a number"),
        ({"range": {"variable": "A", "to": 100_000}}, "sweep", "becomes 100,001 jobs"),
        ({"range": {"to": 3}}, "sweep.range.variable", "missing"),
        ({"range": {"variable": "A", "from": 4, "to": 3}}, "sweep.range.to", "out of range"),
        ({"range": {"variable": "A", "to": 3, "step": 0}}, "sweep.range.step", "out of range"),
        ({"list": [{"A": 1}], "max_parallel": 0}, "sweep.max_parallel", "out of range"),
        ({"list": [{"A": 1}], "parallel": 2}, "sweep.parallel", "unknown field"),
    ],
)
def test_what_is_no_sweep_is_refused(sweep: Any, field: str, message: str) -> None:
    """The error names the part at fault."""
    with pytest.raises(InvalidInput, match=message) as caught:
        parse_job({"run": "x", "sweep": sweep})
    assert caught.value.field == field


def test_a_job_of_a_sweep_can_be_written_as_a_job_file() -> None:
    """With its setting, and without its place."""
    spec = parse_job({"run": "x", "sweep": {"matrix": {"LR": [1, 2]}}}).spec
    assert size_of((spec, parse_job({"run": "y"}).spec)) == 3
    one = list(jobs_of((spec,), 7))[1]
    assert one.in_sweep == "s7"
    assert dump_job(one)["envs"] == {"LR": "2"}
    assert "sweep" not in dump_job(one)


def test_names_of_sweeps() -> None:
    """A sweep has the number of its first job, and a job a place in brackets."""
    assert sweep_id(7) == "s7"
    assert [sweep_number(name) for name in ("s7", "s07", "j7", "s")] == [7, -1, -1, -1]
    assert job_in_sweep("s7[3]") == ("s7", 3)
    assert [job_in_sweep(name) for name in ("s7", "j7[3]", "s7[-1]", "s7[03]")] == [None] * 4
