"""Problems without an answer: which tables, which regions, how many bytes."""

from typing import Any

import pytest

from topmast.slow.data.planner import Options, Planner, Solver
from topmast.slow.data.reading import convert_problem

PRICES = {
    "non_collocated_gpu": 1.0, "overload_gpu": [[1.0, 2.0]], "replica_byte": 0.0, "moved_byte": 0.0,
}  # fmt: skip


def _conflict(solver: Solver, tables: list[dict[str, Any]], storage: list[int]) -> dict[str, Any]:
    regions = [{"name": f"r{i}", "storage_bytes": size} for i, size in enumerate(storage)]
    document = {"regions": regions, "tables": tables, "prices": PRICES}
    answer = Planner(Options(solver=solver), lambda: 0.0).plan(convert_problem(document))
    assert answer["status"] == "infeasible"
    found: dict[str, Any] = answer["conflict"]
    return found


@pytest.mark.parametrize("solver", ["exact", "large"])
class TestConflicts:
    """Told by both solvers."""

    def test_a_table_that_may_lie_nowhere(self, solver: Solver) -> None:
        """`allowed` names no region."""
        found = _conflict(solver, [{"name": "t", "bytes": 5, "allowed": []}], [10, 10])
        assert found["tables"] == ["t"]
        assert found["bytes"] == 5

    def test_a_table_that_is_too_large(self, solver: Solver) -> None:
        """No region stores it."""
        found = _conflict(solver, [{"name": "a", "bytes": 1}, {"name": "b", "bytes": 20}], [10, 10])
        assert found["tables"] == ["b"]

    def test_tables_that_must_be_in_a_small_region(self, solver: Solver) -> None:
        """Residency and storage together; the third table has nothing to do with it."""
        tables = [
            {"name": "a", "bytes": 6, "allowed": ["r0"]},
            {"name": "b", "bytes": 6, "allowed": ["r0"]},
            {"name": "c", "bytes": 6},
        ]
        found = _conflict(solver, tables, [10, 100])
        assert found["tables"] == ["a", "b"]
        assert found["regions"] == ["r0"]
        assert found["bytes"] == 2

    def test_tables_that_cannot_leave(self, solver: Solver) -> None:
        """Without links what is there stays there, and a second replica is impossible."""
        tables = [{"name": "a", "bytes": 1, "replicas": ["r0"], "min_replicas": 2}]
        assert _conflict(solver, tables, [10, 10])["tables"] == ["a"]

    def test_whole_tables_that_no_choice_of_regions_fits(self, solver: Solver) -> None:
        """Three of 6 bytes would fit two regions of 10 in parts, and do not in one piece."""
        tables = [{"name": name, "bytes": 6} for name in "abc"] + [{"name": "tiny", "bytes": 1}]
        assert _conflict(solver, tables, [10, 10])["tables"] == ["a", "b", "c"]
