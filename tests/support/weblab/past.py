"""A simulation that was recorded, and the server of its past."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.unit.docs.pages import REPO

FLEET = REPO / "examples" / "fleet.yaml"
BUSY_S = 7_200.0
"""A moment at which jobs run and others wait."""


def record(folder: Path, jobs: int = 400) -> Path:
    """Simulate a trace; the state folder."""
    trace, state = folder / "jobs.csv", folder / "easy"
    made = "traces", "generate", "--kind", "philly-like", "--jobs", str(jobs), "--seed", "1"
    _topmast(*made, "--out", trace)
    ran = "simulate", "--trace", trace, "--fleet", FLEET, "--load", "6", "--profile", "easy"
    _topmast(*ran, "--record", state)
    return state


def _topmast(*words: str | Path) -> None:
    command = [sys.executable, "-m", "topmast.app", *map(str, words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=600)


@contextmanager
def past(state: Path) -> Iterator[str]:
    """The pages of a state folder's past; their URL."""
    command = [
        sys.executable, "-m", "topmast.app", "replay", "--state", str(state), "--serve", "--json",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.wait(30)
