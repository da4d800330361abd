"""Servers of these tests load compiled kernels: a first start, which compiles, takes longer than they wait."""

from pathlib import Path

import pytest

from topmast.adapters.kernels import load_kernels

LIMIT_S = 400


@pytest.fixture(scope="session", autouse=True)
def compiled_kernels() -> None:
    """Compile once, in two processes, before the first server."""
    load_kernels()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that starts a dozen processes takes minutes on a machine that is busy with other things."""
    for item in items:
        here = item.path.is_relative_to(Path(__file__).parent)
        if here and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LIMIT_S))
