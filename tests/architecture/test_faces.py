"""Outside `fast`, modules import the faces of its three scopes, and none of what stands behind them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
SCOPES = ("topmast.fast.queue", "topmast.fast.region", "topmast.fast.cluster")
OPEN = ("facts", "warm")
"""Modules of a scope that are used without the rest of it: the journal's vocabulary, the kernels."""


def _behind_faces(tree: ast.Module) -> Iterator[str]:
    """What is imported from behind a face."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        for scope in SCOPES:
            if node.module.startswith(f"{scope}."):
                if node.module.removeprefix(f"{scope}.") not in OPEN:
                    yield f"{node.module} in line {node.lineno}"
            elif node.module == scope:
                folder = SOURCE.joinpath(*scope.split("."))
                inner = {path.stem for path in folder.iterdir()} - {*OPEN}
                names = (alias.name for alias in node.names if alias.name in inner)
                yield from (f"{scope}.{name} in line {node.lineno}" for name in names)


def test_only_faces_are_imported() -> None:
    """Who changes a module of a scope sees in its face what others rely on."""
    outside = [p for p in sorted((SOURCE / "topmast").rglob("*.py")) if "fast" not in p.parts]
    assert len(outside) > 200
    wrong = {
        str(path.relative_to(SOURCE)): list(_behind_faces(ast.parse(path.read_text("utf-8"))))
        for path in outside
    }
    assert {name: found for name, found in wrong.items() if found} == {}


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("from topmast.fast.queue import GlobalQueue", 0),
        ("from topmast.fast.queue import facts as f", 0),
        ("from topmast.fast.queue.facts import Planned", 0),
        ("from topmast.fast.queue.backlog.backlog import Backlog", 1),
        ("from topmast.fast.queue import machine", 1),
        ("def later():\n    from topmast.fast.region.search import kernels", 1),
    ],
)
def test_an_import_from_behind_is_found(line: str, want: int) -> None:
    """Wherever it stands, and whether it names a module or what is in one."""
    assert len(list(_behind_faces(ast.parse(line)))) == want
