"""A real Slurm cluster for the tests in this folder, where Slurm is installed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.slurmlab import SlurmCluster, missing, slurm_cluster

LIMIT_S = 300
QUICK = ("starts_and_ends", "ranks_and_hosts", "starts_once", "leaves_time", "survive_a_restart")
"""Tests of the contract that a smoke test has too."""


@pytest.fixture(scope="session")
def lab() -> Iterator[SlurmCluster]:
    """Three hosts with eight fake GPUs each. Tests leave it as they found it."""
    if reason := missing():
        pytest.skip(reason)
    with slurm_cluster(parameters=("SchedulerParameters=batch_sched_delay=1",)) as cluster:
        yield cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of them need a real Slurm; a machine that is busy takes its time."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.slurm)
            if item.path.stem == "test_contract" and not any(word in item.name for word in QUICK):
                item.add_marker(pytest.mark.slow)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(LIMIT_S))
