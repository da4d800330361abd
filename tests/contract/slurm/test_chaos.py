"""Rounds of chaos must be able to fail: what they look for is there, and they see it."""

import pytest

from tests.contract.chaos import broken_promises
from tests.crash.mutants import SEEN
from tests.crash.slurm import main
from tests.support.slurmlab import missing


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "promise"), SEEN)
def test_a_broken_promise_is_seen(
    mutant: str,
    promise: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Second bodies, one that lives when it is told dead, and an end that is never told."""
    if reason := missing():
        pytest.skip(reason)
    assert broken_promises(main, mutant, capfd, monkeypatch)[promise] > 0
