"""Skipped tests are counted by cause, and `make test-all` does not take them."""

from pathlib import Path

import pytest

from tests.support.skips import main, summed_up

PROBE = """
import pytest

@pytest.mark.parametrize("reason", ["no traces: x is not a folder (set TOPMAST_DATA)", "no PostgreSQL here", "odd"])
def test_skipped(reason):
    pytest.skip(reason)

@pytest.fixture
def missing():
    pytest.skip("no traces: x is not a folder (set TOPMAST_DATA)")

def test_without(missing):
    pass

@pytest.mark.skipif(True, reason="PostgreSQL is not installed")
def test_marked():
    pass

def test_run():
    pass
"""
pytest_plugins = ["pytester"]


def test_skips_are_summed_up() -> None:
    """Most frequent first; what has no known cause stands for itself."""
    reasons = ["no traces: a", "Skipped: no PostgreSQL", "no traces: b", "the moon is full"]
    assert summed_up(reasons) == "4 skipped: 2 no data, 1 no PostgreSQL, 1 the moon is full"
    assert summed_up([]) == "0 skipped"


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_every_skip_is_noted_once(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], workers: tuple[str, ...],
) -> None:  # fmt: skip
    """Of tests, fixtures and marks; with processes beside one another too."""
    notes = tmp_path / "notes"
    monkeypatch.setenv("TOPMAST_SKIPS", str(notes))
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # this test may run in one
    pytester.makepyfile(PROBE)
    pytester.makeconftest((Path(__file__).parents[1] / "conftest.py").read_text("utf-8"))
    pytester.runpytest_subprocess(*workers).assert_outcomes(passed=1, skipped=5)
    capsys.readouterr()
    assert main([str(notes)]) == 0
    assert capsys.readouterr().out == "5 skipped: 2 no PostgreSQL, 2 no data, 1 odd\n"
    assert main(["--none", str(notes)]) == 1
    assert main(["--none", str(tmp_path / "none")]) == 0
