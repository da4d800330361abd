"""How a command is declared: what it does is a function, what all have in common is added here."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from topmast.cli.commands import COMMANDS
from topmast.cli.groups import Command, Group, Listing
from topmast.cli.output import note, say_block, say_json
from topmast.cli.written import as_written

if TYPE_CHECKING:
    from topmast.cli.root import Root
    from topmast.client import Client

ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server", metavar="URL",
        help="The server to ask, else that of a given --state, else $TOPMAST_SERVER, else the one "
        "of the usual folder.",
    ),
]  # fmt: skip
StateOption = Annotated[
    Path | None,
    typer.Option(
        "--state", metavar="DIR",
        help="The folder in which the server keeps its state, else ~/.local/state/topmast.",
    ),
]  # fmt: skip
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document; everything else goes to stderr.")
]

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
"""What a URL begins with as a path, in which two slashes are one."""

LONG_PAUSE_S = 1.0
"""A command says when it waits for so long, as a limit of the server asks it to."""
SERVER, FOLDER, NOTHING = "server", "folder", "nothing"
"""What a command needs to know: which server to ask, only a state folder, or neither."""

_COMMON: dict[str, Any] = {"json": JsonOption, "server": ServerOption, "state": StateOption}
_HIDDEN_SERVER = Annotated[str | None, typer.Option("--server", hidden=True)]
_HIDDEN_STATE = Annotated[Path | None, typer.Option("--state", hidden=True)]
_HIDDEN: dict[str, dict[str, Any]] = {
    SERVER: {},
    FOLDER: {"server": _HIDDEN_SERVER},
    NOTHING: {"server": _HIDDEN_SERVER, "state": _HIDDEN_STATE},
}
"""Taken without a word where they mean nothing, as options before the command are."""


@dataclass(frozen=True)
class Session:
    """What one call of a command has to work with."""

    root: Root
    json: bool = False
    server: str | None = None
    state: Path | None = None
    _clients: list[Client] = field(default_factory=list)

    def client(self, timeout_s: float = 30.0) -> Client:
        """A client of the server that the caller means."""
        from topmast.client import Client

        self._clients.append(
            Client(self.server, state=self.state, timeout_s=timeout_s, on_pause=_say_pause)
        )
        return self._clients[-1]

    def state_folder(self) -> Path:
        """The state folder that the caller means, as a full path."""
        from topmast.client.address import default_state

        folder = (self.state or default_state()).expanduser().absolute()
        if folder.exists() and not folder.is_dir():
            from topmast.model.errors import InvalidInput

            remedy = "name a folder; a new one is made"
            raise InvalidInput(f"{folder} is not a folder", field="--state", remedy=remedy)
        return folder

    def show(self, document: object, tell: Callable[[], object]) -> None:
        """The result: ``document`` as JSON if asked for, else what ``tell`` prints."""
        if self._clients and (age_s := self._clients[-1].age_s) is not None:
            note(f"as a standby had it {age_s:.1f} s ago")
        for said in self._clients[-1].asked_again if self._clients else ():
            note(f"asked again, because {said}")
        if self.json:
            say_json(document)
        else:
            tell()


def _say_pause(wait_s: float, why: str) -> None:
    """Say what a command waits for; a moment is no matter."""
    if wait_s >= LONG_PAUSE_S:
        note(f"waits {wait_s:.0f} s: {why}")


def session_of(context: typer.Context) -> Session:
    """The common options, which may stand after the command or before it.

    Refuses URLs where paths are meant, of all options: they would be taken for folders with a colon
    in their name.
    """
    found: dict[str, Any] = {}
    step: Any = context
    while step is not None:
        for parameter in step.command.params:
            value = step.params.get(parameter.name)
            if isinstance(value, Path) and _URL.match(str(value)):
                shown = str(value).replace(":/", "://", 1)
                message = f"'{shown}' is a URL, and must be a path"
                raise typer.BadParameter(message, step, parameter)
        for name in _COMMON:
            found[name] = found.get(name) or step.params.get(name)
        step = step.parent
    root: Root = context.find_root().obj
    return Session(root, json=bool(found["json"]), server=found["server"], state=found["state"])


def group(
    app: typer.Typer,
    name: str,
    *,
    example: str,
    help: str | None = None,
    panel: str | None = None,
    alone: Callable[..., None] | None = None,
) -> typer.Typer:
    """A new group of commands in ``app``; called without one of them it shows its help.

    ``help`` is for a group that `COMMANDS` has not, ``panel`` the title above it in the help of the
    group that has it. With ``alone``, a function as `command` takes, it is called when no command
    of the group is, and has its options.
    """
    run = _show_help if alone is None else with_session(alone)

    def call(context: typer.Context, **given: Any) -> None:
        if context.invoked_subcommand is None:
            run(context, **given)

    call.__signature__ = inspect.signature(run)  # type: ignore[attr-defined]
    call.__doc__ = help = help or COMMANDS[name].said
    kind = Group if alone is None else Listing
    made = typer.Typer(cls=kind, no_args_is_help=False, rich_markup_mode=None)
    made.callback(invoke_without_command=True)(call)
    app.add_typer(made, name=name, help=help, rich_help_panel=panel, epilog=epilog(example))
    return made


def _show_help(context: typer.Context) -> None:
    say_block(context.get_help())


def command(
    app: typer.Typer,
    name: str,
    *,
    example: str,
    asks: str = SERVER,
    kind: type[Command] = Command,
) -> Callable[[Callable[..., int | None]], Callable[..., int | None]]:
    """Add a function of a `Session` and its own options to ``app``; it may return an exit code.

    ``asks`` says which of the common options its help shows; it takes all of them.
    """

    def add(function: Callable[..., int | None]) -> Callable[..., int | None]:
        app.command(name, cls=kind, epilog=epilog(example))(with_session(function, asks))
        return function

    return add


def with_session(
    function: Callable[..., int | None], asks: str = SERVER
) -> Callable[..., int | None]:
    """``function`` as Typer calls it, with the common options in place of its first parameter.

    A parameter that is a dataclass stands for the options that its fields declare: so several
    commands have the same options. Their defaults are those of the parameter, if it has one.
    """
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    sets = {parameter.name: parameter.annotation for parameter in own if _is_set(parameter)}

    def call(context: typer.Context, **given: Any) -> int | None:
        for name in _COMMON:
            given.pop(name)
        for name, kind in sets.items():
            given[name] = kind(**{one.name: given.pop(one.name) for one in fields(kind)})
        with as_written(context):
            return function(session_of(context), **given)

    defaults: dict[str, Any] = {"json": False, "server": None, "state": None}
    kind = inspect.Parameter.KEYWORD_ONLY
    added = [
        inspect.Parameter(name, kind, default=defaults[name], annotation=annotation)
        for name, annotation in (_COMMON | _HIDDEN[asks]).items()
    ]
    first = inspect.Parameter("context", kind, annotation=typer.Context)
    spread = [one.replace(kind=kind) for parameter in own for one in _spread(parameter)]
    parameters = [first, *spread, *added]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__name__, call.__doc__ = function.__name__, function.__doc__
    return call


def _is_set(parameter: inspect.Parameter) -> bool:
    return isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation)


def _spread(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """The parameter itself; of a set of options one for each."""
    if not _is_set(parameter):
        return [parameter]
    given, hints = parameter.default, get_type_hints(parameter.annotation, include_extras=True)
    found = []
    for one in fields(parameter.annotation):
        default = getattr(given, one.name, one.default)
        usual = inspect.Parameter.empty if default is MISSING else default
        found.append(parameter.replace(name=one.name, default=usual, annotation=hints[one.name]))
    return found


EXAMPLE_COLUMNS = 74
"""The longest line of an example: help has four signs before it, and a terminal 80 columns."""


def epilog(example: str) -> str:
    """The examples at the end of a command's help; a long one goes on behind a backslash."""
    lines = "\n".join(f"  $ {_in_lines(line)}" for line in example.splitlines())
    return f"\b\nExample:\n{lines}"


def _in_lines(example: str) -> str:
    """A command in lines that a shell reads as one. An option stays beside its value."""
    first, *rest = re.split(r" (?=-)", example)
    lines = [first]
    for part in rest:
        if len(lines[-1]) + 1 + len(part) > EXAMPLE_COLUMNS - 2:
            lines.append(f"    {part}")
        else:
            lines[-1] += f" {part}"
    return " \\\n    ".join(lines)
