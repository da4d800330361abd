"""How many of the console blocks of README and the documentation are run, and why others are not."""

from collections import Counter

import pytest

from tests.support.pages.script import PAGES, steps


def test_most_blocks_are_run(capsys: pytest.CaptureFixture[str]) -> None:
    """A block is run, or says why it is not; how many of each there are is printed."""
    blocks = [
        step for page in PAGES for step in steps(page) if step.kind in ("run", "slow", "not run")
    ]
    count = Counter(step.kind for step in blocks)
    reasons = Counter(step.words for step in blocks if step.kind != "run")
    with capsys.disabled():
        print(f"\nconsole blocks: {dict(count)}; why not: {dict(reasons)}")
    assert all(len(reason) > len("because") for reason in reasons)
    assert count["run"] > count["slow"] + count["not run"]
