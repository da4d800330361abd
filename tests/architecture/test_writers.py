"""Each part of the queue's state is written in its own folder, and where facts are applied."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import topmast

PACKAGE = Path(topmast.__file__).parent
FACTS = ("fast/queue/applying.py", "fast/queue/cycle/state.py")
"""Facts are applied, and snapshots restored."""
WRITERS = {
    "jobs": ("fast/queue/jobs/", *FACTS),
    "tenancy": ("fast/queue/tenancy/", *FACTS),
    "backlog": ("fast/queue/backlog/", *FACTS),
    "data": ("fast/queue/data/", *FACTS),
    "cycle": ("fast/queue/cycle/",),
}
PART = re.compile(r"(?:^|\.)(?:_?queue|self)\.(jobs|tenancy|backlog|data|cycle)[.\[]")


def _written(source: str, in_queue: bool) -> list[tuple[str, int]]:
    """The parts of the queue's state that a module assigns to, with the lines."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Assign | ast.AugAssign | ast.Delete):
            continue
        targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
        for target in (t for one in targets for t in getattr(one, "elts", [one])):
            part = PART.search(ast.unparse(target))
            if part and (in_queue or "queue." in part[0]):
                found.append((part[1], node.lineno))
    return found


def test_each_part_has_its_writers() -> None:
    """Else: give the part a method for the change, and call it where the fact is applied."""
    findings = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        for part, line in _written(path.read_text("utf-8"), name.startswith("fast/queue/")):
            if not name.startswith(WRITERS[part]):
                findings.append(f"{name}:{line}: writes `{part}`")
    assert not findings, "\n".join(findings)


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("queue.jobs.next_number = 1", ["jobs"]),
        ("del self._queue.data.catalogue.datasets['d']", ["data"]),
        ("queue.cycle.budget -= 1", ["cycle"]),
        ("trial.data.catalogue = other", []),
        ("known = queue.jobs.records", []),
    ],
)
def test_writes_are_found(line: str, want: list[str]) -> None:
    """Assignments and deletions below a part count; reading does not, nor does a copy for a trial."""
    assert [part for part, _ in _written(line, in_queue=False)] == want
