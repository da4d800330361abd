"""The benchmark of submissions at a small scale: its figures, and what it leaves."""

from __future__ import annotations

from pathlib import Path

from topmast.bench.submit import measure_submission


def test_submissions_and_one_cancel_of_many_are_timed(tmp_path: Path) -> None:
    """All that was submitted in one request is cancelled in one; each figure is of real answers."""
    found = measure_submission(60, 2, 0.3, 1, tmp_path / "state")
    assert (found["bulk_jobs"], found["cancelled_jobs"], found["store"]) == (60, 60, "SQLite")
    for figure in ("single_per_s", "concurrent_per_s", "bulk_per_s", "cancel_s", "p99_ms"):
        assert found[figure] > 0.0, figure
