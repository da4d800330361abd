"""Groups of commands: help without cuts, and a suggestion for a word that is no command."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

MORE = "more"
"""Where an error has the others that are told with it."""
_LONGEST = 1000
_NEAR = 0.75
"""How alike two words must be to be taken for one with a slip of the finger."""

LAUNCH, QUEUE, STATUS = "topmast launch JOB.yaml", "topmast queue", "topmast status JOB"
_CANCEL = "topmast cancel JOB"
_SHELL = "topmast exec JOB -t -- bash"
_LIKE = "topmast launch --like JOB"
ELSEWHERE = {
    "submit": LAUNCH, "run": LAUNCH, "sbatch": LAUNCH, "srun": LAUNCH, "create": LAUNCH,
    "apply": LAUNCH,
    "rerun": _LIKE, "resubmit": _LIKE, "retry": "topmast requeue JOB",
    "jobs": QUEUE, "job": QUEUE, "ps": QUEUE, "ls": QUEUE, "list": QUEUE, "squeue": QUEUE,
    "top": QUEUE,
    "show": STATUS, "describe": STATUS, "get": STATUS, "info": STATUS, "events": STATUS,
    "history": STATUS,
    "kill": _CANCEL, "scancel": _CANCEL, "delete": _CANCEL, "rm": _CANCEL, "stop": _CANCEL,
    "why": "topmast explain JOB", "tail": "topmast logs JOB", "attach": "topmast logs JOB --follow",
    "nodes": "topmast hosts", "node": "topmast hosts", "sinfo": "topmast clusters",
    "undrain": "topmast uncordon HOST",
    "close": "topmast clusters close CLUSTER", "open": "topmast clusters open CLUSTER",
    "users": "topmast usage --by user",
    "quota": "topmast tenants", "quotas": "topmast tenants", "start": "topmast up",
    "serve": "topmast up",
    "server": "topmast up", "data": "topmast datasets",
    "shutdown": "topmast down",
    "ssh": _SHELL, "shell": _SHELL, "bash": _SHELL, "interactive": _SHELL,
}  # fmt: skip
"""What other tools call it, and how it is done here."""
_INSTEAD, _ONE, _NAME = "; here it is: ", "; for one: ", "[^-].*"
BEHIND = {
    "queue": {"--user": f"{_INSTEAD}--selector user=NAME", _NAME: f"{_ONE}topmast status {{}}"},
    "hosts": {_NAME: f"{_ONE}topmast hosts --selector host={{}}"},
    "clusters": {_NAME: f"{_ONE}topmast clusters --selector cluster={{}}"},
    "audit": {_NAME: f"{_ONE}topmast audit --object {{}}"},
    "regions": {_NAME: f"{_ONE}topmast clusters --region {{}}"},
    "gpus": {_NAME: f"{_ONE}topmast gpus --region {{}}"},
    "tenants": {_NAME: f"{_ONE}topmast queue --tenant {{}}, which has its jobs"},
    "status": {_NAME: f"{_ONE}topmast status {{}}"},
    "explain": {_NAME: f"{_ONE}topmast explain {{}}"},
    "logs": {
        "--tail": f"{_INSTEAD}topmast logs JOB | tail -n LINES", _NAME: f"{_ONE}topmast logs {{}}",
    },
    "quota": {"[^-].*=.*": f"{_INSTEAD}--gpus {{}}"},
    "edit": {"--set": f"{_INSTEAD}an option for each value, such as --priority BAND"},
    "import": {
        "slurm": f"{_INSTEAD}topmast import sbatch FILE",
        "k8s": f"{_INSTEAD}topmast import kubernetes FILE",
    },
}  # fmt: skip
"""By command: a pattern of words that it does not take, and what is said of such a word ({}).

The first pattern that fits counts.
"""
_LISTING = ("list", "ls", "show")


_EXTRA = re.compile(r"Got unexpected extra argument\(s\) \((.*)\)", re.DOTALL)
_WORDS = (
    (re.compile(r"Input should be greater than or equal to (\S+)"), r"must be \1 or more"),
    (re.compile(r"Input should be less than or equal to (\S+)"), r"must be at most \1"),
    (re.compile(r"Input should be a valid integer.*"), "wanted a whole number"),
    (re.compile(r"Input should be a valid number.*"), "wanted a number"),
    (re.compile(r"Value error, "), ""),
    (re.compile(r"^Invalid value: "), ""),
    (re.compile(r"^No such option: (\S+)"), r"no option '\1'"),
)
"""What a library says about a value, and how all other errors say it."""


class Later(typer.BadParameter):
    """A fault that is told here only beside others: alone it is the server's to tell, with more."""

    def __init__(self, message: str, value: object) -> None:
        super().__init__(message)
        self.value = value


def read_simply(parameters: Iterable[Any], faults: list[typer.TyperException]) -> None:
    """Take values as they are where nothing is to be read; what is wrong is added to ``faults``.

    Typer has all of them read by a library that takes longer to import than Typer and the command.
    """
    for parameter in parameters:
        read = partial(_processed, parameter, parameter.process_value)
        parameter.process_value = partial(_noted, parameter, read, faults)


def _noted(
    parameter: Any, read: Callable[..., Any], faults: list[typer.TyperException], ctx: Any,
    value: Any,
) -> Any:  # fmt: skip
    """The value of a parameter; none if it is wrong, which is told together with all others."""
    try:
        return read(ctx, value)
    except typer.TyperException as error:
        if ctx.resilient_parsing:
            raise
        if isinstance(error, typer.BadParameter):
            error.ctx, error.param = error.ctx or ctx, error.param or parameter
        faults.append(error)
        return error.value if isinstance(error, Later) else None


def refuse_together(faults: Sequence[typer.TyperException]) -> None:
    """Raise the first of some errors, with the others in ``more``; nothing if there are none."""
    if faults:
        setattr(faults[0], MORE, tuple(faults[1:]))
        raise faults[0]


def _processed(parameter: Any, read: Callable[..., Any], ctx: Any, value: Any) -> Any:
    """The value of a parameter, read if it is neither none nor what it shall be."""
    wanted = parameter.type_descriptor.annotation
    if not value and parameter.required:
        return read(ctx, value)
    if value is None:
        value = () if parameter.multiple or parameter.nargs == -1 else None
    elif wanted is Path and type(value) is str and _may_be_read(value):
        value = Path(value)
    elif type(value) is not wanted and not (wanted == list[str] and _are_texts(value)):
        return read(ctx, value)
    return parameter.callback(ctx, parameter, value) if parameter.callback else value


def _may_be_read(path: str) -> bool:
    """Whether there is nothing to refuse about a path: it is no error that nothing is there."""
    return os.access(path, os.R_OK) or not os.access(path, os.F_OK)


def _are_texts(values: object) -> bool:
    return isinstance(values, list | tuple) and all(type(value) is str for value in values)


class Command(TyperCommand):
    """A command with arguments in its usage without braces, which would look like a choice."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What stands behind the command in its usage."""
        return [
            piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)
        ]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, and tell all that is wrong with them at once.

        A number is finite: a range of a library lets ``nan`` pass.
        """
        faults: list[typer.TyperException] = []
        found: list[str] = []
        read_simply(self.get_params(ctx), faults)
        try:
            found = super().parse_args(ctx, args)
        except typer.TyperException as error:
            faults.append(error)
        parameters: list[Any] = list(self.params)
        for parameter in parameters:
            given = ctx.params.get(parameter.name)
            if isinstance(given, float) and not math.isfinite(given):
                message = f"{given} is not a finite number"
                faults.append(typer.BadParameter(message, ctx, parameter))
        if not all(isinstance(fault, Later) for fault in faults):
            refuse_together(faults)
        return found


class CommandBehind(Command):
    """A command that takes another behind ``--``, as values of a hidden option ``--behind``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments."""
        if "--" in args:
            at = args.index("--")
            # First: an option that lacks its value before -- must not take a word of it.
            args = [*(f"--behind={word}" for word in args[at + 1 :]), *args[:at]]
        ctx.allow_extra_args = True
        left: list[str] = super().parse_args(ctx, args)
        if left and not ctx.resilient_parsing:
            words = " ".join(left)[:100]
            ctx.fail(f"write the command behind --, as in: topmast {ctx.info_name} JOB -- {words}")
        return left


class Group(TyperGroup):
    """A group with the whole first sentence of each command in its help."""

    lists_alone = False
    """Called without one of its commands it lists what there is, and shows no help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options that stand before the command."""
        faults: list[typer.TyperException] = []
        read_simply(self.get_params(ctx), faults)
        found: list[str] = super().parse_args(ctx, args)
        refuse_together(faults)
        return found

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is named; else an error with the one that is probably meant."""
        word = args[0] if args else ""
        unknown = word and not word.startswith("-") and self.get_command(ctx, word) is None
        if unknown and not ctx.resilient_parsing:
            meant = self._meant(args, ctx.info_name, top=ctx.parent is None)
            ctx.fail(f"no command '{word[:100]}'{meant}")
        return super().resolve_command(ctx, args)

    def _meant(self, args: Sequence[str], own: str, top: bool) -> str:
        word, *rest = args
        if top and word in ELSEWHERE:
            here = ELSEWHERE[word]
            named = rest and not rest[0].startswith("-") and here.count(" ") == 1
            return (named and _behind(here.split()[1], rest[0])) or f"{_INSTEAD}{here}"
        near = get_close_matches(word, list(self.commands), 1, _NEAR)
        if near:
            return f"; did you mean '{near[0]}'?"
        if self.lists_alone and word in _LISTING:
            return f"{_INSTEAD}topmast {own}"
        return "" if top else _behind(own, word)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, section by section, in the order in which they were added."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            found = self.get_command(ctx, name)
            if found is not None and not found.hidden:
                panel = getattr(found, "rich_help_panel", None) or "Commands"
                row = (name, found.get_short_help_str(_LONGEST))
                sections.setdefault(str(panel), []).append(row)
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows, col_max=14)


class Listing(Group):
    """A group that lists what there is when none of its commands is called."""

    lists_alone = True


def _behind(command: str, word: str) -> str:
    """How it is done what a word behind a command means; empty: not known."""
    for pattern, said in BEHIND.get(command, {}).items():
        if re.fullmatch(pattern, word, re.DOTALL):
            return said.format(shlex.quote(word[:100]))
    return ""


def written(parameter: Any) -> str:
    """An option or argument, as people write it."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name)
    return str(next((one for one in parameter.opts if one.startswith("--")), parameter.opts[0]))


def said_of(error: Any) -> str:
    """What is wrong with the arguments, without what a library adds to it."""
    option, offered = getattr(error, "option_name", ""), getattr(error, "possibilities", None)
    if offered is None:
        said = str(error.format_message())
        for pattern, words in _WORDS:
            said = pattern.sub(words, said)
        extra = _EXTRA.match(said)
        if extra is None:
            return said
        command = str(error.ctx.info_name)
        word = next(iter(extra[1].split()), "")
        return f"{command} takes no '{extra[1][:100]}'{_behind(command, word)}"
    near = get_close_matches(option, offered, 1, _NEAR)
    meant = f"; did you mean '{near[0]}'?" if near else ""
    return f"no option '{option[:100]}'{_behind(str(error.ctx.info_name), option) or meant}"
