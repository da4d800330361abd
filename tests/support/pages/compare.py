"""Whether a command printed what a page shows, and what the page would have to show."""

import difflib
import re
from collections.abc import Sequence

from tests.support.pages.script import ELIDED

_MASKS = (
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?(\.\d+)?Z?", "TIME"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"\b(?!0m?s\b)\d[\d.]*(?:us|ms|[smhd])(?:\d+[smh])*\b", "DURATION"),
    (r"\b(pid|record|seq) \d+", r"\1 NUMBER"),
    (r"\bstep +\d+", "step NUMBER"),
    (r"\s+", " "),
)
_FIGURE = re.compile(r"(?<![\w-])-?\d[\d,.]*")


def masked(line: str, varies: bool = False) -> str:
    """A line without what differs from run to run; with ``varies``, without any figure."""
    for pattern, instead in _MASKS:
        line = re.sub(pattern, instead, line)
    return (_FIGURE.sub("FIGURE", line) if varies else line).rstrip()


def agrees(shown: Sequence[str], printed: Sequence[str], varies: bool = False) -> bool:
    """Whether what is shown is what was printed, but for what is masked or elided."""
    lines = [masked(line, varies) for line in printed]
    parts = _parts(shown)
    if len(parts) == 1:
        return [masked(line, varies) for line in shown] == lines
    at = 0
    for number, part in enumerate(parts):
        wanted = [masked(line, varies) for line in part]
        last = len(lines) - len(wanted)
        places = range(at, last + 1)
        if number == 0:
            places = range(min(1, last + 1))
        elif number == len(parts) - 1 and part:
            places = range(max(at, last), last + 1)
        found = next((i for i in places if lines[i : i + len(wanted)] == wanted), None)
        if found is None:
            return False
        at = found + len(wanted)
    return True


def _parts(shown: Sequence[str]) -> list[list[str]]:
    """What stands between lines that are elided."""
    parts: list[list[str]] = [[]]
    for line in shown:
        if line.strip() == ELIDED:
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def likeness(shown: Sequence[str], printed: Sequence[str]) -> float:
    """How near two texts are, from 0 to 1."""
    one, two = ("\n".join(masked(line) for line in lines) for lines in (shown, printed))
    return difflib.SequenceMatcher(None, one, two, autojunk=False).ratio()


def updated(shown: Sequence[str], printed: Sequence[str]) -> list[str]:
    """What to show instead: all that was printed, less about as much as was elided before."""
    parts = _parts(shown)
    if len(parts) == 1:
        return list(printed)
    new: list[str] = []
    at = 0
    for number, part in enumerate(parts):
        new += [ELIDED] if number else []
        if not part:
            continue
        if number:
            at += _nearest(part[0], printed[at:])
        end = len(printed) if number == len(parts) - 1 else at + len(part)
        new += printed[at:end]
        at = end
    return new


def _nearest(line: str, lines: Sequence[str]) -> int:
    """The first of the lines that are most like one."""
    if not lines:
        return 0
    wanted = masked(line)
    ratios = [difflib.SequenceMatcher(None, wanted, masked(one)).ratio() for one in lines]
    return ratios.index(max(ratios))
