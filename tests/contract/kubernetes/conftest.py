"""A real Kubernetes for the tests in this folder, where its programs are."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.kubernetes.launched import Launched
from tests.support.kubelab.lab import Lab
from tests.support.kubelab.programs import missing

LIMIT_S = 300


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Two nodes with eight fake GPUs each. Tests leave it as they found it."""
    if reason := missing(nodes=True):
        pytest.skip(reason)
    with Lab(nodes=2) as lab:
        yield lab


@pytest.fixture
def launched(lab: Lab, tmp_path: Path) -> Iterator[Launched]:
    """A launcher of a fleet of its own; what it made is removed."""
    with Launched(lab, tmp_path) as launched:
        yield launched


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of them need a real Kubernetes; a machine that is busy takes its time."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.kubernetes)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(LIMIT_S))
