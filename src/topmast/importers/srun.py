"""Scripts without `srun`: here each task runs the script, so what srun starts is run as it is."""

from __future__ import annotations

import re
import shlex

from topmast.importers.notes import Notes

_SRUN = re.compile(
    r"(?P<before>^|[;&|(]\s*|\b(?:exec|time|if|then|else|do|!)\s+)srun(?=\s|$)", re.MULTILINE
)
_DOCUMENT = re.compile(r"(?<![<$(])<<-?[ \t]*[\\'\"]?(?P<end>[A-Za-z_][\w.-]*)")
_WORD = re.compile(r"""\s*((?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+)""", re.DOTALL)
_WITHOUT_VALUE = {
    "--exclusive", "--label", "-l", "--unbuffered", "-u", "--verbose", "-v", "--quiet", "-Q",
    "--overlap", "--exact", "--no-kill", "-k", "--multi-prog", "--pty", "--preserve-env", "-E",
    "--container-mount-home", "--no-container-mount-home", "--container-writable", "-X", "-K",
    "--kill-on-bad-exit", "--disable-status", "-O", "--overcommit", "-s", "--oversubscribe",
    "--wait", "-W0", "-K1", "--container-remap-root",
}  # fmt: skip
"""Options of srun that take no value as the next word."""
_CHANGES_TASKS = {"-n", "--ntasks", "-N", "--nodes", "--ntasks-per-node", "-w", "--nodelist", "-r"}


def without_srun(lines: list[str], skipped: int, notes: Notes) -> tuple[str, bool]:
    """A script without `srun` and its options, and whether there was any."""
    text, found, start = "\n".join(lines), False, 0
    while match := _SRUN.search(text, start):
        line_start = text.rfind("\n", 0, match.start()) + 1
        start = match.end()
        if text[line_start:].lstrip().startswith("#") or _is_a_document(text, line_start):
            continue
        found = True
        number = text.count("\n", 0, match.start()) + 1 + skipped
        end = _end_of_options(text, match.end(), number, notes)
        text = text[: match.start()] + match["before"] + text[end:].lstrip(" \t")
        start = match.start() + len(match["before"])
    return text, found


def _is_a_document(text: str, line_start: int) -> bool:
    """Whether a line is text that the script hands on (``<<EOF``), and no command. O(text)."""
    ends = ""
    for line in text[:line_start].splitlines():
        if ends:
            ends = "" if line.lstrip("\t") == ends else ends
        elif match := _DOCUMENT.search(line):
            ends = match["end"]
    return bool(ends)


def _end_of_options(text: str, start: int, number: int, notes: Notes) -> int:
    """Where the command begins behind the options of `srun`."""
    at = start
    while match := _WORD.match(text.replace("\\\n", "  "), at):
        word = match[1]
        if not word.startswith("-"):
            break
        at = match.end()
        name, equals, value = word.partition("=")
        long = word.startswith("--")
        wants = not equals and word not in _WITHOUT_VALUE and (long or len(word) == 2)
        if wants and (follows := _WORD.match(text.replace("\\\n", "  "), at)):
            value, at = follows[1], follows.end()
        if (name if long else word[:2]) in _CHANGES_TASKS:
            given = shlex.join([word]) if equals or not wants else f"{word} {value}"
            notes.add(
                number, f"srun {given}", "is left out: each task of the job runs the command",
                'for fewer begin it with: [ "$RANK" -lt N ] &&',
            )  # fmt: skip
    return at
