"""`topmast bench engines` on a cluster of this machine: what it says is of gangs that did start."""

from pathlib import Path

import pytest

from topmast.bench.engines import measure_engines
from topmast.bench.engines.doorbell import Doorbell
from topmast.bench.options import EnginesOptions
from topmast.model.errors import InvalidInput, Unavailable

FLEET = "regions: {here: {clusters: {one: {hosts: [{names: [a, b], gpu: H100, gpus: 8}]}}}}"
KEYS = {
    "engine", "cluster", "latency_p50_s", "latency_p99_s", "bare_p50_s", "bare_p99_s", "goal_s", "reached",
    "starts_per_s", "bare_starts_per_s", "listing_s", "listing_jobs",
}  # fmt: skip


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A fleet file."""
    file = tmp_path / "fleet.yaml"
    file.write_text(FLEET)
    return file


def test_each_cluster_has_a_row_beside_its_own_tool(fleet: Path, tmp_path: Path) -> None:
    options = EnginesOptions(fleet=fleet, starts=2, gangs=3, jobs=10)
    document = measure_engines(options, tmp_path / "state")
    (row,) = document["rows"]
    assert row.keys() >= KEYS
    assert (row["engine"], row["cluster"], row["tasks"]) == ("local", "one", 2)
    assert 0 < row["latency_p50_s"] <= row["latency_p99_s"]
    assert 0 < row["bare_p50_s"] <= row["bare_p99_s"]
    assert row["goal_s"] == 1.5 * row["bare_p50_s"] + 0.2
    assert row["reached"] is (row["latency_p50_s"] <= row["goal_s"])
    assert document["load"].keys() == {"before", "after"}
    assert row["starts_per_s"] > 0
    assert row["bare_starts_per_s"] > 0
    assert row["listing_jobs"] == 0  # the local engine has no scheduler that could be listed


def test_a_cluster_that_is_not_in_the_file_is_an_error(fleet: Path) -> None:
    with pytest.raises(InvalidInput, match="no cluster 'two'"):
        measure_engines(EnginesOptions(fleet=fleet, names=("two",)), None)


def test_a_gang_has_started_when_the_last_of_its_tasks_called() -> None:
    bell = Doorbell("127.0.0.1")
    try:
        bell.heard("gang", 1.0)
        with pytest.raises(Unavailable, match="1 of 2 tasks of gang called"):
            bell.wait("gang", 2, 0.0)
        bell.heard("gang", 3.0)
        assert bell.wait("gang", 2, 0.0) == 3.0
    finally:
        bell.close()
