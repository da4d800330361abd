"""What only compiled code may call is called by compiled code alone: from Python it would crash."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
SOURCE = REPO / "src"
COMPILED = ("kernel", "inner", "njit")

Inner = Mapping[str, set[str]]
"""By module, the functions that are compiled without a way in from Python."""


def _marks(node: ast.AST) -> list[str]:
    if not isinstance(node, ast.FunctionDef):
        return []
    return [mark.id for mark in node.decorator_list if isinstance(mark, ast.Name)]


def _all_inner() -> Inner:
    found: dict[str, set[str]] = {}
    for path in sorted((SOURCE / "topmast").rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and "inner" in _marks(node):
                found.setdefault(module, set()).add(node.name)
    return found


def _uses(tree: ast.Module, module: str, inner: Inner) -> list[tuple[str, int]]:
    """Where the Python of a module speaks of such functions: name and line."""
    names, modules = set(inner.get(module, ())), dict[str, set[str]]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                called = alias.asname or alias.name
                if alias.name in inner.get(node.module or "", ()):
                    names.add(called)
                modules[called] = inner.get(f"{node.module}.{alias.name}", set())
    return list(_spoken_of(tree, names, modules))


def _spoken_of(
    node: ast.AST, names: set[str], modules: Mapping[str, set[str]]
) -> Iterator[tuple[str, int]]:
    if any(mark in COMPILED for mark in _marks(node)):
        return  # compiled itself
    if isinstance(node, ast.Name) and node.id in names:
        yield node.id, node.lineno
    elif isinstance(node, ast.Attribute):
        of = node.value.id if isinstance(node.value, ast.Name) else ""
        if node.attr in modules.get(of, ()):
            yield node.attr, node.lineno
    for child in ast.iter_child_nodes(node):
        yield from _spoken_of(child, names, modules)


def test_python_calls_no_inner_function() -> None:
    """Not in the package, not in a test, and not in an example."""
    inner = _all_inner()
    assert "hist_of" in inner["topmast.fast.region.inventory.arrays"]
    places = (SOURCE, REPO / "tests", REPO / "examples")
    for path in sorted(path for place in places for path in place.rglob("*.py")):
        root = SOURCE if path.is_relative_to(SOURCE) else REPO
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        found = _uses(ast.parse(path.read_text("utf-8")), module, inner)
        assert not found, f"{path}: {found}; make it a @kernel"


def test_a_call_is_found() -> None:
    """By name, under another name or through the module; in compiled functions it is allowed."""
    text = """
from a.kernels import low as deep, high
from a import kernels
deep(1)
high(kernels.low)
@inner
def g(): deep(1)
"""
    found = _uses(ast.parse(text), "b", {"a.kernels": {"low"}})
    assert found == [("deep", 4), ("low", 5)]
