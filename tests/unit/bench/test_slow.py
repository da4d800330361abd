"""Small runs of the benchmarks of the slow path: they measure what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from topmast.bench.mover import MoverOptions, measure_mover
from topmast.bench.plancapacity import PlanCapacityOptions, measure_plan_capacity
from topmast.model.errors import InvalidInput


def test_the_mover_beside_a_plain_copy(tmp_path: Path) -> None:
    """Both copied everything in every round; nothing is left."""
    found = measure_mover(MoverOptions(size_bytes=1 << 22, files=3, rounds=2), tmp_path)
    assert len(found["mover_s"]) == len(found["plain_s"]) == 2
    assert found["share"] == pytest.approx(min(found["plain_s"]) / min(found["mover_s"]))
    assert list(tmp_path.iterdir()) == []


def test_a_copy_of_no_files(tmp_path: Path) -> None:
    """There is nothing to measure."""
    with pytest.raises(InvalidInput, match="--files"):
        measure_mover(MoverOptions(files=0), tmp_path)


def test_plans_of_capacity(tmp_path: Path) -> None:
    """A row for each amount asked, with a gap; the figures are kept."""
    options = PlanCapacityOptions(hosts=300, clusters=5, domains=6, limit_s=20.0, out=tmp_path)
    rows = measure_plan_capacity(options)["rows"]
    assert [row["asked"] for row in rows] == [0.86, 0.93, 0.97, 1.05]
    assert all(0.0 <= row["gap"] <= 0.05 for row in rows)
    assert (tmp_path / "plan-capacity.json").exists()
