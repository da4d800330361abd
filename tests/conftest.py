"""What every test may ask for."""

import os
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of public traces: `$TOPMAST_DATA`, or `shared/data` beside the repository."""
    folder = Path(os.environ.get("TOPMAST_DATA", REPO.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no traces: {folder} is not a folder (set TOPMAST_DATA to the one you have)")
    return folder


REAL_PROCESSES = {"contract", "crash", "integration"}


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker runs all tests that start real processes, in turn; other files go to any worker."""
    for item in items:
        folder = item.path.relative_to(REPO / "tests").parts[0]
        group = "real processes" if folder in REAL_PROCESSES else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
