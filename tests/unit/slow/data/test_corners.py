"""Problems at the edge of making sense: solved all the same, by both solvers."""

from typing import Any

import pytest

from tests.support.dataplan import check
from topmast.slow.data.planner import Options, Planner, Solver
from topmast.slow.data.reading import convert_problem

PRICES = {
    "non_collocated_gpu": 1.0, "overload_gpu": [[0.5, 2.0]], "replica_byte": 0.1, "moved_byte": 0.1,
}  # fmt: skip
EAST = {"name": "east", "storage_bytes": 10, "gpus": {"A": 4}, "cpus": 4}
WEST = {"name": "west", "storage_bytes": 10}
TABLE = {"name": "t", "bytes": 5, "replicas": ["east"]}
WORK = {"name": "w", "tables": ["t"], "gpus": {"A": 2}}

CASES: list[tuple[str, dict[str, Any], float]] = [
    ("no workload", {"regions": [EAST], "tables": [TABLE]}, 0.5),
    ("no table", {"regions": [EAST], "tables": [], "workloads": [{**WORK, "tables": []}]}, 0.0),
    ("nothing at all", {"regions": [WEST], "tables": []}, 0.0),
    ("a table without bytes", {"regions": [EAST], "tables": [{"name": "t", "bytes": 0}], "workloads": [WORK]}, 0.0),
    ("no GPU anywhere", {"regions": [WEST], "tables": [{**TABLE, "replicas": []}], "workloads": [{**WORK, "gpus": {"B": 2}}]}, 3.0),
    ("a workload that wants nothing", {"regions": [EAST], "tables": [TABLE], "workloads": [{"name": "w", "tables": ["t"]}]}, 0.5),
    ("a demand of zero on a model that is nowhere", {"regions": [EAST], "tables": [TABLE], "workloads": [{**WORK, "gpus": {"A": 2, "B": 0}}]}, 0.5),
    ("a replica that must be dropped", {"regions": [EAST, WEST], "tables": [{**TABLE, "allowed": ["west"]}], "workloads": [WORK], "links": [{"from": "east", "to": "west", "bytes_per_period": 5}]}, 3.0),
    ("two links that add up", {"regions": [EAST, WEST], "tables": [{**TABLE, "min_replicas": 2}], "links": [{"from": "east", "to": "west", "bytes_per_period": n} for n in (2, 3)]}, 1.5),
    ("a table that nobody needs to keep", {"regions": [EAST], "tables": [{**TABLE, "min_replicas": 0}]}, 0.0),
    ("a new table, without a link", {"regions": [EAST], "tables": [{**TABLE, "replicas": []}]}, 1.0),
    ("more demand than GPUs", {"regions": [EAST], "tables": [TABLE], "workloads": [{**WORK, "gpus": {"A": 6}}]}, 2.5),
    ("half of the CPUs", {"regions": [EAST], "tables": [TABLE], "workloads": [{**WORK, "cpus": 8}]}, 1.5),
]  # fmt: skip


@pytest.mark.parametrize("solver", ["exact", "large"])
@pytest.mark.parametrize(("story", "document", "want"), CASES, ids=[case[0] for case in CASES])
def test_a_corner(solver: Solver, story: str, document: dict[str, Any], want: float) -> None:
    """The answer is allowed, and costs what it must."""
    problem = {
        "workloads": [],
        "links": [],
        "move_budget_bytes": None,
        "prices": PRICES,
        **document,
    }
    answer = Planner(Options(solver=solver), lambda: 0.0).plan(convert_problem(problem))
    check(problem, answer)
    assert answer["objective"] == pytest.approx(want, abs=1e-9)
    assert answer["bound"] <= want + 1e-9
    if solver == "exact":
        assert answer["status"] == "optimal"


@pytest.mark.parametrize("solver", ["exact", "large"])
def test_everything_may_be_free(solver: Solver) -> None:
    """Prices of 0 are prices."""
    prices = {"non_collocated_gpu": 0, "overload_gpu": [[1, 0]], "replica_byte": 0, "moved_byte": 0}
    problem = {"regions": [EAST], "tables": [TABLE], "workloads": [WORK], "prices": prices}
    answer = Planner(Options(solver=solver), lambda: 0.0).plan(convert_problem(problem))
    check(problem, answer)
    assert answer["objective"] == 0
    assert answer["status"] == "optimal"
