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
