"""Rounds of chaos must be able to fail: with an engine that breaks a promise they see it broken."""

import json
from collections.abc import Callable

import pytest

from tests.crash import far

LOST_AFTER_S = 60.0
"""A round waits longer for ends that may come, and here one never does."""


def broken_promises(
    main: Callable[[list[str]], int], mutant: str,
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> dict[str, int]:  # fmt: skip
    """The result of a round with the mutant, in which nothing else goes wrong."""
    monkeypatch.setattr(far, "PATIENCE_S", LOST_AFTER_S)
    asked = ["--rounds", "1", "--seed", "6", "--only", "topmast_anew", "--mutant", mutant]
    assert main(asked) == 1
    found: dict[str, int] = json.loads(capfd.readouterr().out.splitlines()[-1])
    return found
