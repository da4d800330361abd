"""All errors of a document at once.

A reader stops at the first error. So the part at fault is *set aside*, and the document is read
again until nothing more is found. An optional field that is set aside counts as left out. A
required one counts as the example that its error would name. An error that exists only because
something is set aside is not reported.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TypeVar

from msgspec import structs

from topmast.model.errors import InvalidInput
from topmast.model.files.fields import Value
from topmast.model.files.source import Kind, Limits, Node, parse_text

T = TypeVar("T")

MAX_ERRORS = 20
MAX_NODES_READ = 1_000_000
"""How many values all readings together may visit, so that a large document is not read twenty
times.
"""


def every_error(read: Callable[[Node], T], node: Node) -> T:
    """What ``read`` makes of a document; its error has all others in ``more``, and in ``rest`` what
    ``read`` makes of the parts without an error.

    O(errors x document).
    """
    found: list[InvalidInput] = []
    rest: T | None = None
    aside: set[str] = set()
    lost: list[str] = []
    rounds = max(1, min(2 * MAX_ERRORS, MAX_NODES_READ // node.nodes))
    for _ in range(rounds):
        try:
            result = read(node)
        except InvalidInput as error:
            place = error.field
            follows = any(_is_within(one, place) for one in aside) or _may_be_defined(error, lost)
            if not follows or not found:
                found.append(error)
            while place in aside:
                place = _above(node, place)
                lost.append(place)
            if not place or len(found) == MAX_ERRORS:
                break
            aside.add(place)
            node = _without(node, "", place)
        else:
            if not found:
                return result
            rest = result
            break
    first, *more = sorted(found, key=_line)
    first.more, first.rest = tuple(more), rest
    raise first


def _line(error: InvalidInput) -> int:
    line = error.where.rpartition(":")[2]
    return int(line) if line.isdecimal() else 0


def _may_be_defined(error: InvalidInput, lost: list[str]) -> bool:
    """Whether what an error misses may be defined in a part that was set aside as a whole."""
    return bool(error.refers) and any(_is_within(place, error.refers) for place in lost)


def _is_within(place: str, other: str) -> bool:
    """Whether ``place`` is ``other`` or a part of it; every place is a part of the document, named
    "".
    """
    return place == other or not other or place.startswith((f"{other}.", f"{other}["))


def _parts(node: Node, name: str) -> list[tuple[str | int, str, Node]]:
    """The parts of a list or mapping, each with its key or index and its whole name."""
    here = Value(node, name, "")
    if node.kind is Kind.LIST:
        return [(i, f"{name}[{i}]", item) for i, item in enumerate(node.items)]
    return [(key, here.part(key, part).field, part) for key, part in node.entries.items()]


def _inner(node: Node, name: str, place: str) -> tuple[str | int, str, Node] | None:
    """The part that ``place`` is, or is in. A key may have dots: with ``gpu`` and ``gpu.H100`` in
    one mapping the second is no part of the first.
    """
    inner = [found for found in _parts(node, name) if _is_within(place, found[1])]
    return max(inner, key=lambda found: len(found[1]), default=None)


def _above(node: Node, place: str) -> str:
    """The name of the list or mapping that ``place`` is in."""
    name = ""
    while True:
        inner = _inner(node, name, place)
        if inner is None or inner[1] == place:
            return name
        _, name, node = inner


def line_of(node: Node, place: str) -> int:
    """The line of the part named ``place``, or of the nearest part around it; 0 outside of all."""
    name, line = "", 0
    while name != place:
        inner = _inner(node, name, place)
        if inner is None:
            break
        _, name, node = inner
        line = node.line
    return line


def at_lines(data: bytes, where: str, limits: Limits) -> Callable[[InvalidInput], InvalidInput]:
    """What says an error of the line of a text; one of no part of it stays as it is."""
    root = cache(partial(parse_text, data, where, limits))

    def placed(error: InvalidInput) -> InvalidInput:
        line = line_of(root(), error.field) if error.field and not error.where else 0
        return error.at(where=f"{where}:{line}") if line else error

    return placed


def _without(node: Node, name: str, place: str) -> Node:
    """The document with the part ``place`` set aside, be it there or missing."""
    if inner := _inner(node, name, place):
        index, whole, part = inner
        new = Node(Kind.ASIDE, part.line) if whole == place else _without(part, whole, place)
        if isinstance(index, int):
            items = (*node.items[:index], new, *node.items[index + 1 :])
            return structs.replace(node, items=items)
        return structs.replace(node, entries={**node.entries, index: new})
    key = place.removeprefix(f"{name}.") if name else place
    return structs.replace(node, entries={**node.entries, key: Node(Kind.ASIDE, node.line)})
