"""`topmast bench`: measurements on this machine, as one JSON document each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from topmast.bench.eta import measure_eta
from topmast.bench.ranking import measure_ranking
from topmast.bench.recover import measure_recovery
from topmast.bench.submit import measure_submission
from topmast.model.errors import InvalidInput

__all__ = ["run_bench"]


def run_bench(
    name: str,
    *,
    jobs: int | None = None,
    clients: int | None = None,
    duration_s: float | None = None,
    seed: int = 0,
    state: Path | None = None,
) -> dict[str, Any]:
    """Run the benchmark ``name``; what is None takes the benchmark's default."""
    if name == "submit":
        return measure_submission(jobs or 10_000, clients or 64, duration_s or 5.0, seed, state)
    if name == "recover":
        return measure_recovery(jobs or 100_000, seed, state)
    if name == "ranking":
        return measure_ranking(jobs or 1_000_000, seed)
    if name == "eta":
        return measure_eta(jobs or 10_000, seed)
    raise InvalidInput(f"no benchmark '{name}'", remedy="submit, recover, ranking or eta")
