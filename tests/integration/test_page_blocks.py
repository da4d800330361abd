"""How many of the console blocks of README and the documentation are run, and why others are not."""

import re
from collections import Counter
from pathlib import Path

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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_sets_the_variables_that_its_commands_use(page: Path) -> None:
    """What only the tests' shell knows, as the number of the server's process, a reader has not."""
    shown = "\n".join(call.command for step in steps(page) for call in step.calls)
    used = set(re.findall(r"(?<!\\)\$\{?([A-Z][A-Z_]*)\b", re.sub(r"'[^']*'", "", shown)))
    text = page.read_text("utf-8")
    missing = {name for name in used if not re.search(rf"\b{name}=|\bread {name}\b", text)}
    assert missing <= {"HOME", "PATH", "PWD", "USER"}
