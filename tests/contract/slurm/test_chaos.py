"""Rounds of chaos must be able to fail: what they look for is there, and they see it."""

import json

import pytest

from tests.crash.slurm import main
from tests.support.slurmlab import missing


@pytest.mark.slow
def test_second_bodies_are_seen(capfd: pytest.CaptureFixture[str]) -> None:
    """An engine that submits twice, holds nothing and grants every claim runs bodies twice."""
    if reason := missing():
        pytest.skip(reason)
    asked = ["--rounds", "5", "--seed", "6", "--only", "topmast_anew", "--credulous"]
    assert main(asked) == 1
    assert json.loads(capfd.readouterr().out.splitlines()[-1])["bodies_twice"] > 0
