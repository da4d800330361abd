"""No import runs in a circle, not inside a function and not for the type checker alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"


def _modules() -> dict[str, ast.Module]:
    found = {}
    for path in sorted((SOURCE / "topmast").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text("utf-8"))
    return found


def _imports(tree: ast.Module, known: Mapping[str, ast.Module]) -> Iterator[str]:
    """The modules that a module names in its imports, wherever these stand."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inside = f"{node.module}.{alias.name}"
                yield inside if inside in known else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _graph(modules: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    return {
        name: {other for other in _imports(tree, modules) if other in modules and other != name}
        for name, tree in modules.items()
    }


def test_no_import_runs_in_a_circle() -> None:
    """Each module can be read without those that use it."""
    modules = _modules()
    assert len(modules) > 400
    order = list(TopologicalSorter(_graph(modules)).static_order())
    assert len(order) == len(modules)


def test_a_circle_would_be_found() -> None:
    """Also one that only runs when a function is called."""
    modules = {
        "a": ast.parse("from b import x"),
        "b": ast.parse("def f():\n    from a import y"),
    }
    with pytest.raises(CycleError):
        TopologicalSorter(_graph(modules)).prepare()
