"""What a column of a trace may hold: each kind reads a list of texts at once, and words what is
wrong.

The whole list is read by one vectorised attempt; only when something in it is bad is it gone
through value by value, to say which and why. O(n) either way.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from topmast.model.units import show

Values = NDArray[Any] | list[str]

LATEST_S = 1e10
"""Three hundred years: room for seconds since 1970."""
LONGEST_S = 1e9
"""Thirty years: no job runs longer."""
LONGEST_TEXT = 4096


class Wrong(Struct, frozen=True):
    """What is wrong with one value."""

    row: int
    column: str
    message: str
    remedy: str = ""


class Kind(Protocol):
    """A kind of values."""

    def read(self, column: str, texts: list[str]) -> tuple[Values, list[Wrong]]:
        """The values of a column, and what is wrong; a wrong value is replaced by anything."""

    def absent(self, rows: int) -> Values | None:
        """The values if the file has no such column; None: it has to have it."""


class Number(Struct, frozen=True):
    """A finite number in [low, high]; ``blank`` is what an empty value means, None: it may not
    be.
    """

    low: float = 0.0
    high: float = LATEST_S
    whole: bool = False
    blank: float | None = None

    def absent(self, rows: int) -> Values | None:
        """All blank."""
        return None if self.blank is None else np.full(rows, self.blank)

    def read(self, column: str, texts: list[str]) -> tuple[Values, list[Wrong]]:
        """Floats, even of whole numbers."""
        empty = None
        if self.blank is not None and "" in texts:
            empty = np.array([not text for text in texts])
            if empty.all():
                return np.full(len(texts), self.blank), []
            texts = [text or "nan" for text in texts]
        try:
            values = np.fromiter(map(float, texts), np.float64, len(texts))
        except (ValueError, OverflowError):
            return self._one_by_one(column, texts, empty)
        fine = (values >= self.low) & (values <= self.high)
        if self.whole:
            fine &= values == np.floor(values)
        if empty is not None:
            values[empty] = self.blank
            fine |= empty
        joined = "".join(texts)
        if not fine.all() or "_" in joined or not joined.isascii():
            return self._one_by_one(column, texts, empty)
        return values + 0.0, []  # no -0.0

    def _one_by_one(
        self, column: str, texts: list[str], empty: NDArray[np.bool_] | None
    ) -> tuple[Values, list[Wrong]]:
        values, wrong = np.zeros(len(texts)), []
        for row, text in enumerate(texts):
            if not text.strip() or (empty is not None and empty[row]):
                if self.blank is not None:
                    values[row] = self.blank
                else:
                    wrong.append(Wrong(row, column, "is missing", self._remedy()))
                continue
            refusal = self._refusal(text)
            if refusal:
                wrong.append(Wrong(row, column, refusal, self._remedy()))
            else:
                values[row] = float(text)
        return values, wrong

    def _refusal(self, text: str) -> str:
        try:
            value = float(text) if text.isascii() and "_" not in text else None
        except ValueError:
            value = None
        if value is None:
            return f"{show(text)} is not a number"
        if not np.isfinite(value):
            return f"{show(text)} is not a finite number"
        if value < 0 <= self.low:
            return f"{show(text)} is negative"
        if value < self.low:
            return f"{show(text)} is too small"
        if value > self.high:
            return f"{show(text)} is too large"
        return f"{show(text)} is not whole" if self.whole and value != int(value) else ""

    def _remedy(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} from {self.low:g} to {self.high:g}"


class Text(Struct, frozen=True):
    """Printable text; ``blank`` is what an empty value means, None: it may not be.

    An id is kept as it is; the others are dictionary-encoded when the table is put together.
    """

    blank: str | None = ""
    id: bool = False
    separated: bool = False
    """Whether ``|`` divides parts, none of which may be empty."""

    def absent(self, rows: int) -> Values | None:
        """All blank."""
        return None if self.blank is None else [self.blank] * rows

    def read(self, column: str, texts: list[str]) -> tuple[Values, list[Wrong]]:
        """The texts, as they are."""
        if self.blank != "" and "" in texts:
            if self.blank is None:
                return self._one_by_one(column, texts)
            texts = [text or self.blank for text in texts]
        if not "".join(texts).isprintable() or max(map(len, texts), default=0) > LONGEST_TEXT:
            return self._one_by_one(column, texts)
        if self.separated and not all(map(_parts_are_named, dict.fromkeys(texts))):
            return self._one_by_one(column, texts)
        return texts, []

    def _one_by_one(self, column: str, texts: list[str]) -> tuple[Values, list[Wrong]]:
        wrong = []
        for row, text in enumerate(texts):
            refusal = self._refusal(text)
            if refusal:
                wrong.append(Wrong(row, column, refusal, "plain text"))
        return texts, wrong

    def _refusal(self, text: str) -> str:
        if not text and self.blank is None:
            return "is missing"
        if len(text) > LONGEST_TEXT:
            return f"{show(text)} is longer than {LONGEST_TEXT:,} characters"
        if not text.isprintable():
            return f"{show(text)} has a control character"
        if self.separated and not _parts_are_named(text):
            return f"{show(text)} has an empty part, or one twice"
        return ""


def _parts_are_named(text: str) -> bool:
    parts = text.split("|")
    return not text or (all(parts) and len(dict.fromkeys(parts)) == len(parts))


class Choice(Struct, frozen=True):
    """One of a few words, each with its number."""

    words: dict[str, float]
    blank: float | None = None

    def absent(self, rows: int) -> Values | None:
        """All blank."""
        return None if self.blank is None else np.full(rows, self.blank)

    def read(self, column: str, texts: list[str]) -> tuple[Values, list[Wrong]]:
        """The numbers of the words; capitals do not matter."""
        known: dict[str, float | None] = {}
        for text in dict.fromkeys(texts):
            known[text] = self.words.get(text.strip().lower(), None if text else self.blank)
        if None not in known.values():
            return np.fromiter(map(known.__getitem__, texts), np.float64, len(texts)), []
        remedy = ", ".join(self.words)
        wrong = [
            Wrong(row, column, f"{show(text)} is not known" if text else "is missing", remedy)
            for row, text in enumerate(texts)
            if known[text] is None
        ]
        return np.array([known[text] or 0.0 for text in texts], dtype=np.float64), wrong


_DATE_AND_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}", re.ASCII)
_SECONDS = Number(low=0.0)


class Moment(Struct, frozen=True):
    """A point in time: ``2017-10-09 07:01:55`` or seconds, in seconds from any fixed beginning.

    ``blank``: may be empty, and is NaN then.
    """

    blank: bool = False

    def absent(self, rows: int) -> Values | None:
        """All unknown."""
        return np.full(rows, np.nan) if self.blank else None

    def read(self, column: str, texts: list[str]) -> tuple[Values, list[Wrong]]:
        """Seconds."""
        if texts and all(map(_DATE_AND_TIME.fullmatch, texts)):
            try:
                return np.array(texts, dtype="datetime64[s]").astype(np.float64), []
            except ValueError:
                pass  # the 31st of February
        values, wrong = np.full(len(texts), np.nan), []
        for row, text in enumerate(texts):
            value = _moment_s(text)
            if value is not None:
                values[row] = value
            elif text or not self.blank:
                message = f"{show(text)} is not a time" if text else "is missing"
                wrong.append(Wrong(row, column, message, "2017-10-09 07:01:55, or seconds"))
        return values, wrong


def _moment_s(text: str) -> float | None:
    if _DATE_AND_TIME.fullmatch(text):
        try:
            return float(np.datetime64(text, "s").astype(np.int64))
        except ValueError:
            return None
    values, wrong = _SECONDS.read("", [text])
    return None if wrong else float(values[0])


class Cleared(Struct, frozen=True):
    """Words that stand for nothing in numbers: ``None``, ``nan``; read as ``of`` reads a blank."""

    of: Number
    words: tuple[str, ...] = ("nan", "NaN", "None", "null", "NULL", "\\N")

    def absent(self, rows: int) -> Values | None:
        """All blank."""
        return self.of.absent(rows)

    def read(self, column: str, texts: list[str]) -> tuple[Values, list[Wrong]]:
        """As ``of`` reads them."""
        if any(word in texts for word in self.words):
            texts = ["" if text in self.words else text for text in texts]
        return self.of.read(column, texts)
