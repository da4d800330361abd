"""The benchmark of regions apart: real processes, with engines that start nothing."""

import pytest

from topmast.bench import FleetOptions, run_bench
from topmast.bench.apart import MODES, SCENARIOS


@pytest.mark.timeout(300)
def test_regions_apart_are_measured() -> None:
    """Every scenario in every mode: all jobs are decided, by the processes that there are."""
    document = run_bench("apart", jobs=6, seed=1, fleet=FleetOptions(hosts=6))
    rows = {(row["mode"], row["scenario"]): row for row in document["scenarios"]}
    assert set(rows) == {(mode.name, name) for mode in MODES for name in SCENARIOS}
    for (mode, _), row in rows.items():
        assert row["decisions"] == 6
        assert row["decisions_per_s"] > 0
        names = {"queue"} if mode == "one process" else {"queue", "east", "west"}
        assert set(row["cpu_s"]) == names
    assert {"jobs", "hosts", "delay_s", "seed", "machine"} <= set(document)
