"""Typed access to the parts of a document, with errors that name the place and the remedy.

A `Value` is a node together with its dotted name (``resources.cpus``). A `Record` is a mapping with
fixed field names. Both raise `InvalidInput` and nothing else.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice, takewhile
from typing import TypeVar

from topmast.model.errors import InvalidInput, NotFound
from topmast.model.files.source import Kind, Node, below, kind_of_plain
from topmast.model.units import show

T = TypeVar("T")

NAME_LIMIT = 128
MODEL_LIMIT = 64
PATH_LIMIT_BYTES = 1024
IMAGE_LIMIT_BYTES = 500

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/|(s3a?|gs|gcs|az|azure|adl|abfss?):", re.IGNORECASE)
_IMAGE = re.compile(r"[A-Za-z0-9/][A-Za-z0-9._/:@#+-]*")
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_LONGEST_NUMBER = 40
_NO_VALUE = (Kind.NOTHING, Kind.ASIDE)
_COMPARED = 2_000
NEAR, SHORT, NEAR_SHORT = 0.72, 4, 0.6
"""How alike two words must be for one to be meant by the other: `east-9` is not `east-1-3`. One
letter is much of a word of at most ``SHORT``: `99d` is `90d`."""
_LOOKALIKES = str.maketrans("oil", "011")


def is_name(text: str) -> bool:
    """Whether it is a name, as `Value.name` takes it."""
    return len(text) <= NAME_LIMIT and _NAME.fullmatch(text) is not None


def is_model(text: str) -> bool:
    """Whether a text may be the name of a GPU model."""
    plain = text == text.strip() and text.isprintable() and ":" not in text
    return plain and 0 < len(text) <= MODEL_LIMIT


def nearest(word: str, known: Collection[str]) -> str:
    """``did you mean 'x'?`` when a known word is near, else the empty text."""
    words = {_folded(name): name for name in known} if len(known) <= _COMPARED else {}
    given = _folded(word[:NAME_LIMIT])
    found = _nearest(given, words, NEAR_SHORT if len(given) <= SHORT else NEAR)
    found = found or _nearest(given, [w for w in words if w.startswith(given)], NEAR_SHORT)
    return f"did you mean {show(words[found])}?" if found else ""


def _nearest(given: str, words: Iterable[str], alike: float) -> str:
    """The most alike, of several the one that begins most alike, then the first; empty: none."""
    matcher, best, found = difflib.SequenceMatcher(b=given), (alike, -1), ""
    for word in words:
        matcher.set_seq1(word)
        if min(matcher.real_quick_ratio(), matcher.quick_ratio()) < best[0]:
            continue
        alike_from = takewhile(lambda two: two[0] == two[1], zip(given, word, strict=False))
        near = (matcher.ratio(), len(list(alike_from)))
        if near > best:
            best, found = near, word
    return found


def _folded(word: str) -> str:
    """A word for comparison: lower case, and one sign for those that look alike, as O and 0."""
    return word.casefold().translate(_LOOKALIKES)


def one_of(word: str, known: Collection[str]) -> str:
    """A remedy for a word that is not known: the nearest, or the first few there are."""
    few = ", ".join(islice(known, 10)) + (", ..." if len(known) > 10 else "")
    return nearest(word, known) or (f"one of: {few}" if known else "")


def no_such(what: str, name: str, known: Collection[str], field: str = "") -> NotFound:
    """The error for a name that nothing has, with the nearest that there is."""
    near = nearest(name, known)
    return NotFound(f"no {what} '{name}'" + (f" ({near})" if near else ""), field=field)


class Value:
    """A part of a document, named by the path of fields that lead to it."""

    __slots__ = ("field", "node", "source")

    def __init__(self, node: Node, field: str, source: str) -> None:
        self.node = node
        self.field = field
        self.source = source

    # --- errors

    def error(self, message: str, remedy: str = "", *, line: int = 0) -> InvalidInput:
        """An error at this place."""
        line = line or self.node.line
        where = f"{self.source}:{line}" if line else self.source
        return InvalidInput(message, field=self.field, where=where, remedy=remedy)

    def unknown(self, what: str, word: str, known: Collection[str], where: str) -> InvalidInput:
        """The error for a name that the part ``where`` of the document would have to define."""
        error = self.error(f"{what} {show(word)}", one_of(word, known))
        error.refers = where
        return error

    def wrong(self, wanted: str, remedy: str = "") -> InvalidInput:
        """The error for a value of the wrong type."""
        return self.error(f"wanted {wanted}, found {self.found()}", remedy)

    def found(self) -> str:
        """What is here, for a message."""
        kind = self.node.kind
        if kind is Kind.TEXT:
            return f"text {show(self.node.text)}"
        if kind is Kind.NUMBER:
            shown = self.node.text[:_LONGEST_NUMBER]
            return f"the number {shown}" + ("…" if shown != self.node.text else "")
        return self.node.text if kind is Kind.BOOLEAN else kind.value

    # --- scalars

    def is_nothing(self) -> bool:
        """Whether no value is given."""
        return self.node.kind is Kind.NOTHING

    def is_boolean(self) -> bool:
        """Whether this is true or false."""
        return self.node.kind is Kind.BOOLEAN

    def is_endless(self) -> bool:
        """Whether this is a number of YAML that is none: ``.inf`` or ``.nan``."""
        return self.node.kind is Kind.NUMBER and self.node.text[-3:].lower() in ("inf", "nan")

    def text(self, *, limit_bytes: int = 4096, empty: bool = False) -> str:
        """Text; a number or a truth value must be quoted to be one."""
        if self.node.kind is not Kind.TEXT:
            scalar = self.node.kind in (Kind.NUMBER, Kind.BOOLEAN)
            raise self.wrong("text", f'quote it: "{self.node.text[:20]}"' if scalar else "")
        self._check_length(limit_bytes)
        if not empty and not self.node.text.strip():
            raise self.error("must not be empty")
        return self.node.text

    def raw(self, *, limit_bytes: int) -> str:
        """Text, or a number just as it is written."""
        if self.node.kind is Kind.BOOLEAN:
            raise self.wrong("text or a number", f'quote it: "{self.node.text}"')
        if self.node.kind not in (Kind.TEXT, Kind.NUMBER):
            raise self.wrong("text or a number")
        if self.is_endless():
            raise self.wrong("text or a finite number", f'quote it: "{self.node.text}"')
        self._check_length(limit_bytes)
        return self.node.text

    def _check_length(self, limit_bytes: int) -> None:
        size_bytes = len(self.node.text)
        if size_bytes <= limit_bytes and not self.node.text.isascii():
            size_bytes = len(self.node.text.encode())
        if size_bytes > limit_bytes:
            raise self.error(f"is longer than {limit_bytes:,} bytes")

    def name(self, *, limit: int = NAME_LIMIT) -> str:
        """A name: letters, digits, ``.``, ``_`` and ``-``, beginning with a letter or digit."""
        if self.node.kind not in (Kind.TEXT, Kind.NUMBER):
            raise self.wrong("a name")
        return self.check_name(self.node.text, limit=limit)

    def check_name(self, text: str, *, limit: int = NAME_LIMIT) -> str:
        """``text``, if it is a name."""
        if len(text) > limit:
            raise self.error(f"the name {show(text)} is longer than {limit} characters")
        if not _NAME.fullmatch(text):
            remedy = "letters, digits, '.', '_' and '-', beginning with a letter or digit"
            raise self.error(f"{show(text)} is not a name", remedy)
        return text

    def check_model(self, text: str) -> str:
        """``text``, if it can be the name of a GPU model."""
        if not is_model(text):
            remedy = f"at most {MODEL_LIMIT} printable characters without ':', such as H100"
            raise self.error(f"{show(text)} is not the name of a GPU model", remedy)
        return text

    def boolean(self) -> bool:
        """True or false, spelled so."""
        if self.node.kind is not Kind.BOOLEAN:
            yes_or_no = {"yes": "true", "on": "true", "no": "false", "off": "false"}
            meant = yes_or_no.get(self.node.text.lower())
            raise self.wrong("true or false", f"write {meant}" if meant else "")
        return self.node.text.lower() == "true"

    def integer(self, *, low: int, high: int) -> int:
        """A whole number in ``low..high``."""
        text = self.node.text
        if self.node.kind is not Kind.NUMBER or not _INTEGER.fullmatch(text):
            raise self.wrong("a whole number")
        if len(text) > _LONGEST_NUMBER:
            raise self.error("the number is too large", f"at most {high:,}")
        value = int(text, 0 if text[:2] in ("0o", "0x") else 10)
        if not low <= value <= high:
            raise self._out_of_range(f"{low:,}", f"{high:,}")
        return value

    def number(self, *, low: float = 0.0, high: float, above: bool = False) -> float:
        """A finite number in ``low..high``; with ``above``, greater than ``low``."""
        if self.node.kind is not Kind.NUMBER:
            raise self.wrong("a number")
        value = self.as_float()
        if not math.isfinite(value) or not low <= value <= high or (above and value == low):
            raise self._out_of_range(f"{'more than ' if above else ''}{low:,g}", f"{high:,g}")
        return value

    def as_float(self) -> float:
        """The number here, perhaps NaN or infinite."""
        text = self.node.text
        if len(text) > _LONGEST_NUMBER:
            raise self.error("the number is too long", "write fewer digits")
        if text[:2] in ("0o", "0x"):
            return float(int(text, 0))
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))

    def _out_of_range(self, low: str, high: str) -> InvalidInput:
        return self.error(f"{self.found()} is out of range", f"from {low} to {high}")

    def choice(self, known: Mapping[str, T], what: str) -> T:
        """One of a few words."""
        if self.node.kind not in (Kind.TEXT, Kind.NUMBER):
            raise self.wrong(what)
        if self.node.text not in known:
            raise self.error(
                f"{show(self.node.text)} is not {what}", one_of(self.node.text, list(known))
            )
        return known[self.node.text]

    def quantity(self, parse: Callable[[str], T], wanted: str) -> T:
        """What ``parse`` makes of text or a number; its errors are put at this place."""
        if self.node.kind not in (Kind.TEXT, Kind.NUMBER):
            raise self.wrong(wanted)
        try:
            return parse(self.node.text)
        except InvalidInput as error:
            raise self.error(error.message, error.remedy) from None

    def no_url(self, text: str, remedy: str = "buckets are not supported here") -> str:
        """``text``, unless it is written as a URL: a bucket must not become a local folder."""
        if _URL.match(text):
            raise self.error(f"{show(text)} is a URL, and must be a path", remedy)
        return text

    def image(self) -> str:
        """The name of a container image, or the path of its file."""
        text = self.text(limit_bytes=IMAGE_LIMIT_BYTES)
        if text.startswith("docker:"):
            raise self.error(f"{show(text)} is not a name of an image", "leave out docker:")
        if not _IMAGE.fullmatch(text):
            remedy = "such as nvcr.io/nvidia/pytorch:24.05-py3"
            raise self.error(f"{show(text)} is not a name of an image", remedy)
        return text

    def absolute_path(self, text: str) -> str:
        """``text``, if it is a path from the root, without empty and ``.`` parts."""
        parts = self.no_url(text).split("/")
        bad = not text.startswith("/") or ".." in parts or not text.isprintable()
        if bad or len(text.encode()) > PATH_LIMIT_BYTES:
            raise self.error(f"{show(text)} is not a usable path", "a path such as /data/east")
        return "/" + "/".join(part for part in parts if part not in ("", "."))

    def relative_path(self) -> str:
        """A path below some folder, never leaving it, without empty and ``.`` parts."""
        text = self.no_url(self.raw(limit_bytes=PATH_LIMIT_BYTES))
        if not text.strip():
            raise self.error("must not be empty")
        parts = text.split("/")
        remedy = "a path below its folder, such as data/images"
        if text[0] in "/~" or ".." in parts:
            raise self.error(f"the path {show(text)} leaves its folder", remedy)
        if not text.isprintable() or any(len(part.encode()) > 255 for part in parts):
            raise self.error(f"{show(text)} is not a usable path", remedy)
        kept = [part for part in parts if part not in ("", ".")]
        if not kept or kept[0].startswith("~"):
            raise self.error(f"{show(text)} names no file or folder", remedy)
        return "/".join(kept)

    # --- lists and mappings

    def items(self, *, limit: int) -> list[Value]:
        """The items of a list."""
        if self.node.kind is not Kind.LIST:
            raise self.wrong("a list", "[a, b] in one line, or a line '- a' for each item")
        if len(self.node.items) > limit:
            raise self.error(f"has {len(self.node.items):,} items", f"at most {limit:,}")
        return [
            Value(item, below(self.field, index), self.source)
            for index, item in enumerate(self.node.items)
            if item.kind is not Kind.ASIDE
        ]

    def entries(self, *, limit: int, wanted: str = "a mapping") -> dict[str, Value]:
        """The entries of a mapping with free keys."""
        if self.node.kind is not Kind.MAPPING:
            raise self.wrong(wanted, "'name: value' lines, or {name: value}")
        if len(self.node.entries) > limit:
            raise self.error(f"has {len(self.node.entries):,} entries", f"at most {limit:,}")
        return {
            key: self.part(key, node)
            for key, node in self.node.entries.items()
            if node.kind is not Kind.ASIDE
        }

    def part(self, key: str, node: Node) -> Value:
        """The value of field ``key``."""
        return Value(node, below(self.field, key), self.source)

    def record(self, known: Sequence[str], refused: Mapping[str, str] | None = None) -> Record:
        """A mapping with the fields ``known``; ``refused`` has words for fields of others."""
        if self.node.kind is not Kind.MAPPING:
            raise self.wrong("a mapping", f"fields: {', '.join(known)}")
        return Record(self, known, refused or {})


class Record:
    """A mapping with fixed field names. A field without a value counts as left out."""

    __slots__ = ("value",)

    def __init__(self, value: Value, known: Sequence[str], refused: Mapping[str, str]) -> None:
        self.value = value
        for key, node in value.node.entries.items():
            if key in known or node.kind is Kind.ASIDE:
                continue
            here = value.part(key, node)
            line = value.node.key_lines.get(key, 0)
            if key in refused:
                raise here.error(refused[key], line=line)
            remedy = nearest(key, known) or f"one of: {', '.join(known)}"
            raise here.error("unknown field", remedy, line=line)

    def get(self, key: str) -> Value | None:
        """The value of an optional field."""
        node = self.value.node.entries.get(key)
        if node is None or node.kind in _NO_VALUE:
            return None
        above = self.value
        # A key that the program itself names needs no care as to how it is shown.
        return Value(node, f"{above.field}.{key}" if above.field else key, above.source)

    def is_aside(self, key: str) -> bool:
        """Whether a field was set aside, for its error is known."""
        node = self.value.node.entries.get(key)
        return node is not None and node.kind is Kind.ASIDE

    def need(self, key: str, example: str = "", instead: Sequence[str] = ()) -> Value:
        """The value of a required field; ``example`` stands in for one that is set aside.

        ``instead``: other fields, of which one that is set aside may have been meant.
        """
        found = self.get(key)
        if found is None:
            missing = self.value.part(key, self.value.node)
            entries = self.value.node.entries
            aside = [
                entries[name].kind is Kind.ASIDE for name in (key, *instead) if name in entries
            ]
            if example and any(aside):
                return self.value.part(key, Node(kind_of_plain(example), text=example))
            remedy = f"for example {key}: {example}" if example else ""
            raise missing.error("missing", remedy)
        return found
