"""Text for terminals: nothing that came from a user can move a cursor, and numbers read well."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime

# C0 and C1 controls, line and paragraph separators, and what turns the direction of writing.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]+")
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_UNSAFE_IN_A_BLOCK = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]+"
)
_SEQUENCE = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]"  # CSI: colours, movements
    "|\x1b[]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\\\)?"  # OSC and other strings: titles, links
    "|\x1b[ -/]*[0-~]"  # the short ones
)
_BEGUN = re.compile("(?:\r|\x1b(?:\\[[0-?]*[ -/]*|[]PX^_][^\x07\x1b\n]*\x1b?|[ -/]*))\\Z")
_LONGEST_SEQUENCE = 4096


def clean(text: str) -> str:
    """``text`` on one line, with everything that acts on a terminal spelled out."""
    return _UNSAFE.sub(_spelled, " ".join(text.splitlines()) if "\n" in text else text)


def clean_text(text: str) -> str:
    """The lines of ``text`` and their tabs, with everything that acts on a terminal spelled out."""
    return _UNSAFE_IN_A_BLOCK.sub(_spelled, text)


def clean_block(text: str) -> str:
    """Lines of output without their colours and movements; other controls are spelled out."""
    return clean_text(_SEQUENCE.sub("", text).replace("\r\n", "\n").replace("\r", "\n"))


class BlockCleaner:
    """`clean_block` for output in pieces, which may break in the middle of a sequence."""

    def __init__(self) -> None:
        self._rest = ""

    def feed(self, text: str) -> str:
        """What can be shown after one more piece."""
        text = self._rest + text
        begun = _BEGUN.search(text, max(0, len(text) - _LONGEST_SEQUENCE))
        end = begun.start() if begun else len(text)
        self._rest = text[end:]
        return clean_block(text[:end])

    def finish(self) -> str:
        """What is left at the end."""
        rest, self._rest = self._rest, ""
        return clean_block(rest)


class RankedLines:
    """The output of many tasks in whole lines, each with the rank of its task before it."""

    def __init__(self, raw: bool) -> None:
        self._raw = raw
        self._open: dict[int, str] = {}
        """The line of each task that is not complete."""
        self.attempt = 0
        """The attempt that is being read; 0: none yet."""

    def feed(self, task: int, text: str) -> str:
        """The lines that are complete after one more piece."""
        *lines, rest = (self._open.pop(task, "") + text).split("\n")
        if rest:
            self._open[task] = rest
        return "".join(self._line(task, line) for line in lines)

    def finish(self) -> str:
        """What is left at the end."""
        left = "".join(self._line(task, self._open[task]) for task in sorted(self._open))
        self._open.clear()
        return left

    def _line(self, task: int, line: str) -> str:
        return f"{task}: {line if self._raw else clean_block(line)}\n"


def clean_json(text: str) -> str:
    """The same JSON without strings that act on a terminal."""
    return _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class _Spelling(dict[str, str]):
    """How a character is spelled out, kept since its first time: output may be full of one."""

    def __missing__(self, letter: str) -> str:
        code = ord(letter)
        self[letter] = f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
        return self[letter]


_SPELLING = _Spelling({"\t": " "})


def _spelled(found: re.Match[str]) -> str:
    return "".join(map(_SPELLING.__getitem__, found[0]))


def width(text: str) -> int:
    """How many columns of a terminal ``text`` takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF")
        for letter in text
    )


def number(value: float | None) -> str:
    """A count or an amount: whole if it is whole, to three decimals if not; ``-`` for None."""
    if value is None:
        return "-"
    return f"{round(value, 3) + 0.0:.3f}".rstrip("0").rstrip(".")  # + 0.0: never "-0"


def moment(at_s: float | None) -> str:
    """A time since the epoch, in the reader's time zone."""
    if at_s is None:
        return "-"
    try:
        return datetime.fromtimestamp(at_s, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{at_s:g}"


def minute(at_s: float | None) -> str:
    """The same without seconds, for tables."""
    return moment(at_s)[: len("2030-01-31 12:00")]


def minutes(from_s: float | None, until_s: float | None) -> tuple[str, str]:
    """When something begins and ends, with seconds where both fall in one minute."""
    found = (minute(from_s), minute(until_s))
    return found if found[0] != found[1] else (moment(from_s), moment(until_s))


def plural(count: int, one: str, many: str = "") -> str:
    """``1 job``, ``2 jobs``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
