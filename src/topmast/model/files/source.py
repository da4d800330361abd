"""Where documents come from: files, made into one tree that knows its lines.

YAML is read event by event: no tag is honoured, no object is built, an alias costs what it expands
to, and depth, number of nodes and amount of text are limited while reading, so a hostile document
is refused long before it is read to its end. Scalars follow YAML 1.2's core schema: ``yes`` and
``2024-01-01`` are text. JSON is accepted, being YAML. `fields` gives the tree its meaning.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import stat
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from msgspec import Struct

from topmast.model.errors import InvalidInput
from topmast.model.units import show

_BETWEEN = re.compile(rb"^---(?=\s|$)", re.MULTILINE)
_CONTENT = re.compile(rb"^(?!---)[ \t]*[^#\s]", re.MULTILINE)
"""A line that is neither empty nor a comment."""
LONGEST_KEY = 128
"""Longer names of fields are shown in part."""
NO_NUL = "text must not contain NUL"
_BINARY = "this is a binary file, not YAML"
_LOOKED_AT_BYTES = 4_096


class Limits(Struct, frozen=True):
    """How large a document may be. Nodes and characters count what aliases expand to."""

    bytes: int
    nodes: int
    depth: int = 32


JOB_LIMITS = Limits(bytes=2**20, nodes=10_000)
FLEET_LIMITS = Limits(bytes=2**24, nodes=2_000_000)


class Kind(Enum):
    """What a node is; the value is what a message calls it."""

    NOTHING = "nothing"
    BOOLEAN = "true or false"
    NUMBER = "a number"
    TEXT = "text"
    LIST = "a list"
    MAPPING = "a mapping"
    ASIDE = "nothing that can be read"
    """Set aside, for its error is known (see `every`)."""


_NO_ENTRIES: Mapping[str, Any] = MappingProxyType({})


class Node(Struct, frozen=True, gc=False):
    """A part of a document."""

    kind: Kind
    line: int = 0
    """0 where there are no lines (a request)."""
    text: str = ""
    """Of a scalar, as written."""
    items: tuple[Node, ...] = ()
    entries: Mapping[str, Node] = _NO_ENTRIES
    key_lines: Mapping[str, int] = _NO_ENTRIES
    nodes: int = 1
    """The number of nodes in this part, itself included."""
    chars: int = 0
    height: int = 1


def below(field: str, key: str | int) -> str:
    """The name of a part of the list or mapping that is named ``field``."""
    if isinstance(key, int):
        return f"{field}[{key}]"
    shown = key if key.isprintable() and len(key) <= LONGEST_KEY else show(key)
    return f"{field}.{shown}" if field else shown


# ------------------------------------------------------------------------------------- from a file


def read_file(path: Path, limits: Limits) -> Node:
    """The document in the file at ``path``."""
    where = str(path) if str(path).isprintable() else show(str(path))
    return parse_text(read_bytes(path, where, limits), where, limits)


def is_binary(data: bytes) -> bool:
    """Whether the beginning of a file is no text of any encoding that is read here."""
    return b"\0" in data[:_LOOKED_AT_BYTES]


def kind_of_file(mode: int) -> str:
    """What stands at a path, from its mode, for people."""
    for has, kind in (
        (stat.S_ISDIR, "a folder"), (stat.S_ISREG, "a file"), (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
    ):  # fmt: skip
        if has(mode):
            return kind
    return "a device"


def read_bytes(path: Path, where: str, limits: Limits, what: str = "a YAML file") -> bytes:
    """The content of the regular file at ``path``; other kinds of file may block: an error.

    ``what`` such a file is, for people.
    """
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            remedy = f"give the path of {what}"
            raise InvalidInput(f"is {kind_of_file(mode)}", where=where, remedy=remedy)
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise InvalidInput("is not a regular file", where=where)
            data = file.read(limits.bytes + 1)
    except FileNotFoundError:
        raise InvalidInput("no such file", where=where, remedy="check the path") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the path is not valid"
        raise InvalidInput(f"cannot be read: {reason}", where=where) from None
    return data


def documents_in(data: bytes) -> list[bytes]:
    """The documents of a text, between lines of three dashes; at least one.

    Each begins with empty lines, so that errors name the lines of the whole text.
    """
    begins = [0, *(found.start() for found in _BETWEEN.finditer(data))]
    found = []
    for begin, end in itertools.pairwise([*begins, len(data)]):
        if _CONTENT.search(data, begin, end):
            found.append(b"\n" * data.count(b"\n", 0, begin) + data[begin:end])
    return found if len(found) > 1 else [data]


def parse_text(data: bytes, where: str, limits: Limits) -> Node:
    """The document in ``data``, UTF-8 encoded YAML; ``where`` names it in messages."""
    if len(data) > limits.bytes:
        message = f"the document is larger than {limits.bytes // 2**20} MiB"
        raise InvalidInput(_BINARY if is_binary(data) else message, where=where)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = "this is not UTF-8 text"
        raise InvalidInput(
            message, where=f"{where}:{line}", remedy="save the file as UTF-8"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InvalidInput(_BINARY, where=f"{where}:{line}")
    _refuse_directives(text, where)
    if text.lstrip(" \t\r\n")[:1] == "{" and ("\\ud" in text or "\\uD" in text):
        text = _SURROGATES.sub(_joined, text)
    return _Composer(text, where, limits).document()


def _refuse_directives(text: str, where: str) -> None:
    """The parsers need quadratic time for many %TAG lines, and no tag is accepted anyway."""
    begins = [text.find(f"{line_break}%") for line_break in "\n\r\x85\u2028\u2029"]
    if text.lstrip("\ufeff")[:1] == "%":
        begins.append(0)
    first = min((begin for begin in begins if begin >= 0), default=None)
    if first is not None:
        line = text.count("\n", 0, first + 1) + 1
        message = "directives (lines that begin with %) are not supported"
        raise InvalidInput(message, where=f"{where}:{line}", remedy="remove the line")


# JSON escapes a character beyond the basic plane as a pair of surrogates, which YAML does not read.
_SURROGATES = re.compile(
    r"(?<!\\)((?:\\\\)*+)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"
)


def _joined(found: re.Match[str]) -> str:
    high, low = int(found[2], 16), int(found[3], 16)
    return f"{found[1]}\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08X}"


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_REMEDIES = {
    "mapping values are not allowed": "quote a value that contains ': ', or put it in a block: |",
    "cannot start any token": "indent with spaces, not tabs, and quote a value that starts so",
    "did not find expected key": "check the indentation and the quotes",
    "could not find expected ':'": "write 'name: value', and quote what contains ':'",
    "characters are not allowed": "remove them, or write them as escapes in double quotes",
}


class _Open(Struct):
    """A list or mapping that is being read."""

    kind: Kind
    line: int
    anchor: str | None
    items: list[Node]
    entries: dict[str, Node]
    key_lines: dict[str, int]
    key: str | None = None
    nodes: int = 1
    chars: int = 0
    height: int = 1


def _is_nothing(event: yaml.Event) -> bool:
    """Whether it stands for a document without anything in it."""
    return isinstance(event, yaml.ScalarEvent) and not event.value and not event.style


class _Composer:
    """Makes a tree of the events of a YAML parser, on an explicit stack."""

    def __init__(self, text: str, where: str, limits: Limits) -> None:
        self._text = text
        self._where = where
        self._limits = limits
        self._stack: list[_Open] = []
        self._anchors: dict[str, Node] = {}
        self._root: Node | None = None
        self._nodes = 0
        self._chars = 0

    def document(self) -> Node:
        """The only document of the text; lines of --- after it may have nothing behind them."""
        begin: yaml.Event | None = None
        try:
            for event in yaml.parse(self._text, Loader=_LOADER):
                if isinstance(event, yaml.DocumentStartEvent):
                    begin = event
                elif self._root is not None and not self._stack and _is_nothing(event):
                    continue
                elif isinstance(event, yaml.NodeEvent):
                    if self._root is not None and not self._stack:
                        remedy = "put each document in a file of its own"
                        raise self._refusal(begin or event, "a second document", remedy)
                    self._take(event)
                elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
                    self._close()
        except yaml.YAMLError as error:
            raise self._syntax_error(error) from None
        if self._root is None:
            remedy = "fill it, or name another file"
            raise InvalidInput("the document is empty", where=self._where, remedy=remedy)
        return self._root

    def _take(self, event: yaml.NodeEvent) -> None:
        if getattr(event, "tag", None) not in (None, "!"):
            tag = show(str(getattr(event, "tag", "")))
            raise self._refusal(event, f"the tag {tag} is not supported", "leave it out")
        line = _line(event)
        if isinstance(event, yaml.ScalarEvent):
            kind = Kind.TEXT if event.style or event.tag else kind_of_plain(event.value)
            if "\0" in event.value:
                at, remedy = f"{self._where}:{line}", "remove the \\0"
                raise InvalidInput(NO_NUL, field=self._field(), where=at, remedy=remedy)
            node = Node(kind, line, event.value, chars=len(event.value))
        elif isinstance(event, yaml.AliasEvent):
            node = self._aliased(event)
        else:
            kind = Kind.LIST if isinstance(event, yaml.SequenceStartEvent) else Kind.MAPPING
            self._count(event, 1, 0, 1)
            if self._wants_key():
                raise self._refusal(event, f"{kind.value} cannot be the name of a field")
            self._stack.append(_Open(kind, line, event.anchor, [], {}, {}))
            return
        self._count(event, node.nodes, node.chars, node.height)
        if event.anchor and not isinstance(event, yaml.AliasEvent):
            self._anchors[event.anchor] = node
        self._add(node, event)

    def _field(self) -> str:
        """The name of the part that is being read."""
        field = ""
        for part in self._stack:
            key = len(part.items) if part.kind is Kind.LIST else part.key
            field = field if key is None else below(field, key)
        return field

    def _aliased(self, event: yaml.AliasEvent) -> Node:
        name = event.anchor or ""
        if any(part.anchor == name for part in self._stack):
            raise self._refusal(event, f"the alias {show('*' + name)} contains itself")
        if name not in self._anchors:
            message = f"the alias {show('*' + name)} has no anchor {show('&' + name)} above it"
            raise self._refusal(event, message)
        return self._anchors[name]

    def _count(self, event: yaml.NodeEvent, nodes: int, chars: int, height: int) -> None:
        """Account for a node before it becomes part of the tree."""
        self._nodes += nodes
        self._chars += chars
        if len(self._stack) + height > self._limits.depth:
            raise self._refusal(event, f"nested deeper than {self._limits.depth} levels")
        if self._nodes > self._limits.nodes or self._chars > self._limits.bytes:
            message = f"the document has more than {self._limits.nodes:,} values"
            if self._nodes <= self._limits.nodes:
                message = f"the document has more than {self._limits.bytes:,} characters"
            raise self._refusal(event, f"{message}, aliases expanded")

    def _wants_key(self) -> bool:
        return (
            bool(self._stack) and self._stack[-1].kind is Kind.MAPPING and not self._stack[-1].key
        )

    def _add(self, node: Node, event: yaml.NodeEvent | None = None) -> None:
        """Put a complete node where it belongs: the root, a list, a key or its value."""
        if not self._stack:
            self._root = node
            return
        top = self._stack[-1]
        top.nodes += node.nodes
        top.chars += node.chars
        top.height = max(top.height, node.height + 1)
        if top.kind is Kind.LIST:
            top.items.append(node)
        elif top.key is not None:
            top.entries[top.key] = node
            top.key = None
        else:
            assert event is not None, "a closed list or mapping was never begun as a key"
            self._add_key(top, node, event)

    def _add_key(self, top: _Open, node: Node, event: yaml.NodeEvent) -> None:
        line = _line(event)
        if node.kind in (Kind.LIST, Kind.MAPPING) or not node.text:
            what = node.kind.value if node.text or node.items or node.entries else "nothing"
            raise self._refusal(event, f"{what} cannot be the name of a field")
        if node.text == "<<" and not getattr(event, "style", None):
            raise self._refusal(event, "merge keys (<<) are not supported", "write the fields out")
        if node.text in top.entries:
            first = top.key_lines[node.text]
            message = f"{show(node.text)} is given twice, first in line {first}"
            raise self._refusal(event, message, "keep one of the two")
        top.key = node.text
        top.key_lines[node.text] = line

    def _close(self) -> None:
        part = self._stack.pop()
        node = Node(
            part.kind, part.line, "", tuple(part.items), part.entries, part.key_lines,
            part.nodes, part.chars, part.height,
        )  # fmt: skip
        if part.anchor:
            self._anchors[part.anchor] = node
        self._add(node)

    def _refusal(self, event: yaml.Event, message: str, remedy: str = "") -> InvalidInput:
        where = f"{self._where}:{_line(event)}"
        return InvalidInput(message, where=where, remedy=remedy)

    def _syntax_error(self, error: yaml.YAMLError) -> InvalidInput:
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        position = getattr(error, "position", None)  # in bytes, or in characters if not compiled
        line = mark.line + 1 if mark is not None else None
        if line is None and isinstance(position, int):
            line = self._text.encode().count(b"\n", 0, position) + 1
        remedy = next((advice for part, advice in _REMEDIES.items() if part in str(problem)), "")
        where = f"{self._where}:{line}" if line else self._where
        clean = " ".join(str(problem).split())
        return InvalidInput(f"this is not valid YAML: {clean}", where=where, remedy=remedy)


def _line(event: yaml.Event) -> int:
    mark = event.start_mark
    return mark.line + 1 if mark is not None else 0


_NUMBER = re.compile(
    r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
    r"|[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)


def kind_of_plain(text: str) -> Kind:
    """What an unquoted scalar is, by YAML's core schema."""
    if text in ("", "~", "null", "Null", "NULL"):
        return Kind.NOTHING
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return Kind.BOOLEAN
    return Kind.NUMBER if _NUMBER.fullmatch(text) else Kind.TEXT


# ---------------------------------------------------------------------------------- plain values


def plain_of(node: Node) -> Any:
    """A part of a document as plain values. Numbers of any length stay what they are."""
    if node.kind is Kind.MAPPING:
        return {key: plain_of(part) for key, part in node.entries.items()}
    if node.kind is Kind.LIST:
        return [plain_of(part) for part in node.items]
    if node.kind is Kind.NUMBER:
        return _plain_number(node.text)
    return {Kind.BOOLEAN: node.text.lower() == "true", Kind.NOTHING: None}.get(node.kind, node.text)


def _plain_number(text: str) -> int | float | str:
    if re.fullmatch(r"[-+]?[0-9]{1,40}", text):
        return int(text)
    try:
        return float(text) if math.isfinite(float(text)) else text
    except ValueError:
        return text
