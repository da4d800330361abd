"""Which files of a folder are left out of a snapshot: the patterns of ``.topmastignore``.

They are written as in a ``.gitignore``: ``*``, ``?``, ``[a-z]`` within a name, ``**`` across
folders, a trailing ``/`` for folders only, a leading or inner ``/`` to start at the top, ``!`` to
take something back, ``#`` for a comment. What is in a folder that is left out stays out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

ALWAYS = (".git", ".venv", "__pycache__")
"""Names that never belong to a snapshot, whatever the patterns say."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    folders_only: bool
    takes_back: bool


class Ignored:
    """Answers whether a path is left out. The last pattern that matches decides."""

    def __init__(self, lines: Iterable[str] = ()) -> None:
        self._rules = [rule for line in lines if (rule := _rule(line)) is not None]

    def leaves_out(self, path: str, folder: bool) -> bool:
        """Whether ``path``, relative to the top and with ``/`` between its parts, is left out."""
        if path.rpartition("/")[2] in ALWAYS:
            return True
        verdict = False
        for rule in self._rules:
            if (folder or not rule.folders_only) and rule.pattern.fullmatch(path):
                verdict = not rule.takes_back
        return verdict


def _rule(line: str) -> _Rule | None:
    """What one line means; None when it means nothing."""
    text = re.sub(r"(?<!\\)[ \t]+$", "", line.rstrip("\r\n"))
    if not text or text.startswith("#"):
        return None
    takes_back = text.startswith("!")
    text = text[1:] if takes_back else text
    folders_only = text.endswith("/")
    text = text.rstrip("/")
    anchored = "/" in text
    text = text.lstrip("/")
    if not text:
        return None
    expression = _expression(text)
    return _Rule(
        re.compile(expression if anchored else f"(?:.*/)?{expression}", re.DOTALL),
        folders_only,
        takes_back,
    )


def _expression(glob: str) -> str:
    """The regular expression of a pattern in which ``*`` and ``?`` stay within one name."""
    parts: list[str] = []
    place = 0
    while place < len(glob):
        rest = glob[place:]
        if rest.startswith("**/") and (place == 0 or glob[place - 1] == "/"):
            parts.append("(?:.*/)?")
            place += 3
        elif rest == "**" and (place == 0 or glob[place - 1] == "/"):
            parts.append(".+")
            place += 2
        elif rest[0] == "*":
            parts.append("[^/]*")
            place += 1
        elif rest[0] == "?":
            parts.append("[^/]")
            place += 1
        elif rest[0] == "[" and (found := re.match(r"\[[!^]?\]?[^\]/]*\]", rest)):
            parts.append(_characters(found[0]))
            place += len(found[0])
        elif rest[0] == "\\" and len(rest) > 1:
            parts.append(re.escape(rest[1]))
            place += 2
        else:
            parts.append(re.escape(rest[0]))
            place += 1
    return "".join(parts)


def _characters(group: str) -> str:
    """A group of characters as a regular expression; an invalid one is taken literally."""
    inner = group[1:-1]
    negated = inner[0] in "!^" and len(inner) > 1
    inner = (inner[1:] if negated else inner).replace("\\", "\\\\")
    for special in "[]&~|^":
        inner = inner.replace(special, f"\\{special}")
    expression = f"(?!/)[{'^' if negated else ''}{inner}]"
    try:
        re.compile(expression)
    except re.error:
        return re.escape(group)
    return expression
