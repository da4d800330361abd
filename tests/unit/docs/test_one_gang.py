"""The page that follows one gang through the search shows what the code computes."""

import runpy
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[3]


def test_the_page_shows_what_the_script_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """Every block of the script's output is on the page, word for word."""
    runpy.run_path(str(REPO / "examples" / "one_gang.py"), run_name="__main__")
    page = (REPO / "docs" / "internals" / "one-gang.md").read_text("utf-8")
    for block in capsys.readouterr().out.rstrip().split("\n\n"):
        assert block in page
