"""Where PyTorch and Ray are: in an environment of their own, as a user's are."""

import os
from pathlib import Path

import pytest

FRAMEWORKS = "TOPMAST_TEST_FRAMEWORKS"
"""The variable with the `bin` folder of an environment that has PyTorch and Ray."""
ENOUGH_S = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests here are of the suite `make test-frameworks`."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.frameworks)
            item.add_marker(pytest.mark.timeout(ENOUGH_S))


@pytest.fixture(autouse=True)
def frameworks(monkeypatch: pytest.MonkeyPatch) -> None:
    """`torchrun`, `ray` and a `python3` that has both are first on the path of servers."""
    folder = os.environ.get(FRAMEWORKS, "")
    if not all((Path(folder) / program).is_file() for program in ("torchrun", "ray")):
        pytest.skip(f"no frameworks: {FRAMEWORKS} names no folder with `torchrun` and `ray`")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
