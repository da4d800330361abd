"""Servers of these tests load compiled kernels: a first start, which compiles, takes longer than they wait."""

import pytest

from topmast.adapters.kernels import load_kernels


@pytest.fixture(scope="session", autouse=True)
def compiled_kernels() -> None:
    """Compile once, in two processes, before the first server."""
    load_kernels()
