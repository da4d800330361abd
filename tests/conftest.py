"""What every test may ask for."""

import os
import signal
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]

# What a shell starts in the background ignores the signal of Ctrl-C, and so would all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of public traces: `$TOPMAST_DATA`, or `shared/data` beside the repository."""
    folder = Path(os.environ.get("TOPMAST_DATA", REPO.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no traces: {folder} is not a folder (set TOPMAST_DATA to the one you have)")
    return folder
