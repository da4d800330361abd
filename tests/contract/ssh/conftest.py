"""Real hosts behind SSH for the tests in this folder, where root can make them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.engines import HOSTS
from tests.support.sshlab import SshLab, missing, ssh_lab

LIMIT_S = 300


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshLab]:
    """Three hosts. Tests leave them connected, and with nothing running."""
    if reason := missing():
        pytest.skip(reason)
    with ssh_lab(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


@pytest.fixture(scope="session")
def plain_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshLab]:
    """Two hosts whose processes have the numbers that this machine sees."""
    if reason := missing():
        pytest.skip(reason)
    with ssh_lab(tmp_path_factory.mktemp("plain"), *HOSTS, own_pids=False) as lab:
        yield lab


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of them need real hosts; a machine that is busy takes its time."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.ssh)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(LIMIT_S))
