"""Modules stay short enough to be read at one sitting."""

from pathlib import Path

import topmast

LINES = 500


def test_no_module_is_long() -> None:
    """What grows beyond it is two things: give the second a module of its own."""
    files = sorted(Path(topmast.__file__).parent.rglob("*.py"))
    lengths = {str(file): len(file.read_text("utf-8").splitlines()) for file in files}
    assert len(lengths) > 500
    assert {file: length for file, length in lengths.items() if length > LINES} == {}
