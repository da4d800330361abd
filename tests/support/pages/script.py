"""A page as a list of steps: files to write, commands to run, and what they are to print."""

import re
from pathlib import Path
from typing import NamedTuple

REPO = Path(__file__).resolve().parents[3]
PAGES = sorted(
    [REPO / "README.md", REPO / "CONTRIBUTING.md", *(REPO / "docs").rglob("*.md")], key=str
)
MARKS = ("file", "run", "not run", "slow", "figures vary")
PROMPT = "$ "
ELIDED = "..."

_PART = re.compile(
    r"^<!-- (?P<mark>[a-z ]+): ?(?P<words>.*?)\s*-->$|^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Call(NamedTuple):
    """A command at a prompt, and the lines that the page shows below it.

    ``first`` is the number of the first line below it, from 0; -1 of one that the page does not show.
    ``command`` is empty in a block without a prompt: it shows a part of what the command before it printed.
    """

    command: str
    first: int
    shown: tuple[str, ...]

    @property
    def fails(self) -> bool:
        """Whether the page shows an error."""
        return any(line.startswith("topmast: ") for line in self.shown)


class Step(NamedTuple):
    """A file to write (``file``), commands to run unseen, or a console block."""

    line: int
    kind: str
    words: str = ""
    text: str = ""
    calls: tuple[Call, ...] = ()
    varies: bool = False


def steps(page: Path) -> list[Step]:
    """The steps of a page, in their order. A block is ``run``, or what its mark says instead."""
    text = page.read_text("utf-8")
    found: list[Step] = []
    marks: dict[str, str] = {}
    for part in _PART.finditer(text):
        line = text.count("\n", 0, part.start()) + 1
        where = f"{page.relative_to(REPO)}:{line}"
        if part["mark"]:
            assert part["mark"] in MARKS, f"{where}: no such mark: {part['mark']}"
            assert part["words"], f"{where}: {part['mark']} of what, or why?"
            if part["mark"] == "run":
                found.append(Step(line, "hidden", text=part["words"]))
            else:
                marks[part["mark"]] = part["words"]
            continue
        if part["language"] == "console":
            kind = next((mark for mark in ("not run", "slow") if mark in marks), "run")
            calls = _calls(part["text"], line)
            varies = "figures vary" in marks
            found.append(Step(line, kind, marks.get(kind, ""), part["text"], calls, varies))
        elif "file" in marks:
            found.append(Step(line, "file", marks["file"], part["text"]))
        assert part["language"] == "console" or not set(marks) - {"file"}, (
            f"{where}: a mark in vain"
        )
        marks = {}
    assert not marks, f"{page.relative_to(REPO)}: a mark in vain: {', '.join(marks)}"
    return found


def _calls(text: str, fence: int) -> tuple[Call, ...]:
    """The commands of a block whose fence is in line ``fence``, counted from 1."""
    calls: list[Call] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        command = ""
        if lines[at].startswith(PROMPT):
            command = lines[at].removeprefix(PROMPT)
            at += 1
            while command.endswith("\\") and at < len(lines):
                command = f"{command}\n{lines[at]}"
                at += 1
        first = at
        while at < len(lines) and not lines[at].startswith(PROMPT):
            at += 1
        calls.append(Call(command, fence + first, tuple(lines[first:at])))
    return tuple(calls)
