"""Documents that are in memory already, such as the JSON body of a request, as trees."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from topmast.model.errors import InvalidInput
from topmast.model.files.source import NO_NUL, Kind, Limits, Node, below
from topmast.model.units import show


def from_document(document: object, where: str, limits: Limits) -> Node:
    """The tree of a document in memory, such as the JSON body of a request."""
    try:
        return _Walker(where, limits).node(document, 1)
    except _Unusable as error:
        field = reduce(below, reversed(error.path), "")
        raise InvalidInput(str(error), field=field, where=where) from None


class _Unusable(Exception):
    """A value that no document may have; ``path`` leads from it up to the document."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.path: list[str | int] = []


class _Walker:
    """Makes a tree of Python values; only what JSON knows is accepted."""

    def __init__(self, where: str, limits: Limits) -> None:
        self._where = where
        self._limits = limits
        self._nodes = 0
        self._chars = 0

    def node(self, value: Any, depth: int) -> Node:
        self._nodes += 1
        if depth > self._limits.depth:
            raise self._refusal(f"nested deeper than {self._limits.depth} levels")
        if self._nodes > self._limits.nodes:
            raise self._refusal(f"the document has more than {self._limits.nodes:,} values")
        if isinstance(value, str):
            return Node(Kind.TEXT, text=self._text(value))
        if isinstance(value, Mapping):
            return self._mapping(value, depth)
        if isinstance(value, list | tuple):
            return self._list(value, depth)
        return _scalar(value)

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> Node:
        entries, key = dict[str, Node](), ""
        try:
            for key, item in value.items():
                if not isinstance(key, str) or not key:
                    raise self._refusal("the name of a field must be text, and not empty")
                entries[self._text(key)] = self.node(item, depth + 1)
        except _Unusable as error:
            error.path.append(key)
            raise
        return Node(Kind.MAPPING, entries=entries)

    def _list(self, value: Sequence[Any], depth: int) -> Node:
        items = list[Node]()
        try:
            for item in value:
                items.append(self.node(item, depth + 1))
        except _Unusable as error:
            error.path.append(len(items))
            raise
        return Node(Kind.LIST, items=tuple(items))

    def _text(self, text: str) -> str:
        self._chars += len(text)
        if self._chars > self._limits.bytes:
            raise self._refusal(f"the document has more than {self._limits.bytes:,} characters")
        if "\0" in text:
            raise _Unusable(NO_NUL)
        if not text.isascii() and not _is_unicode(text):
            raise _Unusable("text must not contain lone surrogates")
        return text

    def _refusal(self, message: str) -> InvalidInput:
        return InvalidInput(message, where=self._where)


def _scalar(value: object) -> Node:
    if value is None:
        return Node(Kind.NOTHING)
    if isinstance(value, bool):
        return Node(Kind.BOOLEAN, text="true" if value else "false")
    if isinstance(value, int):
        if value.bit_length() > 10_000:
            raise _Unusable("a number is too large")
        return Node(Kind.NUMBER, text=str(value))
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _Unusable("NaN and infinity are not accepted")
        return Node(Kind.NUMBER, text=repr(value))
    raise _Unusable(f"a value of type {show(type(value).__name__)} is not accepted")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
