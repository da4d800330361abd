"""The first line of a script: a shell with its options, or the program of another language."""

from __future__ import annotations

import re
import shlex

from topmast.importers.notes import Notes
from topmast.model.errors import InvalidInput

_SHELLS = ("sh", "bash", "dash", "ksh", "zsh")
_PROGRAM = re.compile(r"/[\w./+-]+")
_SET = re.compile(r"-[abefhkmnptuvxBCEHPT]*(?:o [a-z]+)?")
"""Options of a shell that its command `set` takes too."""


def body_of(lines: list[str]) -> list[str]:
    """What is run: without the first line, and without the options of Slurm.

    These end with the first command, as for sbatch: a line like them behind it, perhaps in a text
    of several lines, is the script's own.
    """
    code = next((n for n, line in enumerate(lines) if line.strip() and line[0] != "#"), len(lines))
    head = [line for line in lines[:code] if not line.startswith(("#SBATCH", "#!"))]
    return [*head, *lines[code:]]


def as_the_first_line_says(lines: list[str], where: str, notes: Notes) -> tuple[str, list[str]]:
    """A command that sets the shell's options, and the program of another language.

    Raises InvalidInput for a line by which Linux would run nothing. As there, all that follows the
    program is one argument.
    """
    if not lines or not lines[0].startswith("#!"):
        return "", []
    program, _, argument = lines[0][2:].strip().partition(" ")
    argument = argument.strip()
    if not _PROGRAM.fullmatch(program):
        raise InvalidInput(
            f"its first line names no program: {lines[0][2:].strip()[:100] or 'it is empty'}",
            where=f"{where}:1", remedy="write #! and the path of one: #!/bin/bash",
        )  # fmt: skip
    name = program.rpartition("/")[2]
    if name == "env":
        name = argument.removeprefix("-S ").split(" ")[0]
        options = argument.removeprefix("-S ").partition(" ")[2].strip()
    else:
        options = argument
    if name not in _SHELLS:
        given = shlex.split(argument) if argument.startswith("-S ") else [argument]
        return "", [program, *(given if argument else [])]
    if not options:
        return "", []
    if _SET.fullmatch(options):
        return f"set {options}\n", []
    notes.add(
        1, "#!", f"the shell's options {options} are left out",
        "a task's shell is no login shell: in setup, source what the script needs",
    )  # fmt: skip
    return "", []


def handed_to(program: list[str], body: list[str]) -> str:
    """A script in another language, for its program to read; no file stays behind."""
    end = "END_OF_SCRIPT"
    while end in body:
        end += "_"
    return "\n".join((f"exec {shlex.join(program)} /dev/fd/3 3<<'{end}'", *body, end))
