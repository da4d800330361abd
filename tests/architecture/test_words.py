"""Jobs, hosts and processes are "it": pronouns for people are for people alone."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "topmast"
SUFFIXES = {".py", ".yaml"}

BANNED = re.compile(r"\b(?:who|whom|whose|nobody|somebody|whoever|he|she)\b", re.IGNORECASE)

# Sentences about people: the file below the package, and the words that may stay there.
PEOPLE = [
    ("traces/describe.py", "who submits"),
    ("traces/generate/mast.py", "people who choose"),
]


def pronouns(text: str, allowed: list[str]) -> list[tuple[int, str]]:
    """Banned words with their lines, `allowed` phrases left out."""
    for phrase in allowed:
        text = text.replace(phrase, re.sub(r"\S", "-", phrase))
    return [
        (text.count("\n", 0, found.start()) + 1, found.group()) for found in BANNED.finditer(text)
    ]


def test_no_pronoun_for_people_stands_for_a_thing() -> None:
    """The source speaks of jobs, hosts and processes as "it", and names them by their nouns."""
    findings = []
    for file in sorted(PACKAGE.rglob("*")):
        path = file.relative_to(PACKAGE)
        if file.suffix not in SUFFIXES:
            continue
        allowed = [phrase for where, phrase in PEOPLE if where == path.as_posix()]
        findings += [
            f"{path}:{line}: {word!r}: name the thing (for people, add the phrase to PEOPLE)"
            for line, word in pronouns(file.read_text("utf-8"), allowed)
        ]
    assert not findings, "\n" + "\n".join(findings)


@dataclass(frozen=True)
class Case:
    """A text, phrases that are allowed in it, and the words that we want to be found."""

    story: str
    text: str
    allowed: list[str]
    want: list[tuple[int, str]]


CASES = [
    Case("a job is no person", "# the job who waits", [], [(1, "who")]),
    Case("in any case, with its line", "x = 1\n# Nobody waits", [], [(2, "Nobody")]),
    Case("a constant", "NOBODY = 0", [], [(1, "NOBODY")]),
    Case("parts of other words", "# the whole of the sheet", [], []),
    Case("people may stay", "# people who choose", ["people who choose"], []),
    Case("only there", "# people who choose a job who", ["people who choose"], [(1, "who")]),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_the_finder_of_pronouns(case: Case) -> None:
    """The finder knows words from parts of words, and keeps lines."""
    assert pronouns(case.text, case.allowed) == case.want
