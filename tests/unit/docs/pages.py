"""The pages as tests read them: fenced blocks, and commands at a prompt."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

REPO = Path(__file__).resolve().parents[3]
PAGES = sorted([REPO / "README.md", *(REPO / "docs").rglob("*.md")])

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PROMPT = re.compile(r"^\$ (.*)$", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block: where it begins, its language, its text."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    """All blocks of some languages, on all pages."""
    found = []
    for page in PAGES:
        text = page.read_text("utf-8")
        name = page.relative_to(REPO).as_posix()
        for match in _FENCE.finditer(text):
            if match[1] in languages:
                line = text.count("\n", 0, match.start()) + 1
                found.append(Block(name, line, match[1], match[2]))
    return found


def commands(program: str) -> list[tuple[str, list[str]]]:
    """Every call of ``program`` at a prompt: where it stands, and its arguments."""
    found = []
    for block in blocks("console"):
        for line in _PROMPT.findall(block.text):
            found += [(str(block), call) for call in _calls(line) if call[0] == program]
    return [(where, call[1:]) for where, call in found]


def _calls(line: str) -> Iterator[list[str]]:
    """The commands of one shell line, also those in ``$(...)`` and behind a pipe."""
    inner = re.findall(r"\$\((.*)\)", line)
    for text in [re.sub(r"\$\(.*\)", "INNER", line), *inner]:
        words = shlex.split(text, comments=True)
        call: list[str] = []
        for word in [*words, "|"]:
            if word in ("|", "&&", ";"):
                if call:
                    yield call
                call = []
            elif word.startswith((">", "2>", "<")):
                continue
            elif "=" in word and not call:
                continue  # a variable before the command
            else:
                call.append(word)
