"""The commands put together, and how they end: an exit code, and one line for an error."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from topmast import __version__
from topmast.cli.command import JsonOption, ServerOption, StateOption
from topmast.cli.commands import COMMANDS, SECTIONS
from topmast.cli.groups import MORE, Command, Group, said_of, written
from topmast.cli.output import note, say, say_block
from topmast.cli.text import clean_json

if TYPE_CHECKING:
    from topmast.cli.root import Root
    from topmast.model.views import Problem

FAILED, MISUSE, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141
PROGRAM = "topmast"
_NAMES_IT = re.compile(r"^Invalid value for [^:]*: ")
"""What a library puts before an error; the document has a field for it."""


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    """A closed output, as of ``head``, is no error to report."""
    try:
        yield
    except BrokenPipeError:
        raise typer.Exit(BROKEN_PIPE) from None


class Commands(Group):
    """The top of the command line: it lists commands, and imports the one that is called.

    A reader may leave before the end of what it writes.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {
            name: Command(name, help=listed.said, rich_help_panel=title)
            for title, section in SECTIONS.items()
            for name, listed in section.items()
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is named, with all its options and commands."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed and declared(name), rest

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read the arguments, which may print the help."""
        with _reader_may_leave():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _reader_may_leave():
            return super().invoke(ctx)


def declared(name: str) -> Any:
    """A command of the list as its module declares it."""
    app = typer.Typer(rich_markup_mode=None)
    import_module(f"topmast.cli.{COMMANDS[name].module}").add(app)
    app.registered_commands = [one for one in app.registered_commands if one.name == name]
    app.registered_groups = [one for one in app.registered_groups if one.name == name]
    return typer.main.get_group(app).commands[name]


def _start() -> str:
    """How to begin, at the end of the help: without what a server needs, by one that runs."""
    if all(find_spec(name) for name in ("psutil", "structlog")):
        return "\b\nStart here:\n  $ topmast demo\n  $ topmast up\n  $ topmast launch job.yaml"
    return (
        "\b\nStart here:\n  $ export TOPMAST_SERVER=URL\n  $ topmast login\n"
        "  $ topmast launch job.yaml\n\n\b\nA server or a demo of your own (topmast up, demo):\n"
        "  $ pip install 'topmast[server]'"
    )


def build() -> Any:
    """The command line; called with arguments and a `Root` as ``obj`` it runs."""
    app = typer.Typer(
        name=PROGRAM,
        cls=Commands,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=_start(),
    )
    app.callback(invoke_without_command=True)(_top)
    return typer.main.get_command(app)


def _top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    server: ServerOption = None,
    state: StateOption = None,
    json: JsonOption = False,
) -> None:
    """One global queue for training jobs across regions, clusters and engines."""
    if version:
        say(f"{PROGRAM} {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        say_block(context.get_help())


def main(root: Root, arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return its exit code: whatever happens, there is no traceback."""
    _open_missing_streams()
    # httpx has a command line of its own, which takes as long to import as all the rest of it.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    for stream in (sys.stdout, sys.stderr):
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    given = list(sys.argv[1:] if arguments is None else arguments)
    code = 0
    try:
        code = _run(root, given)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        code = BROKEN_PIPE
    except OSError as error:
        code = code or _failed(error, as_json=_wants_json(given))
    if code:
        _let_go_of_stdout()
    return code


def _open_missing_streams() -> None:
    """Open missing standard streams, or the first opened files would take their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123


def _let_go_of_stdout() -> None:
    """See to it that the interpreter, at its end, does not try again to write what could not be."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _require_line() -> None:
    """Raises UsageError if a shell that asks for completion does not tell what is written."""
    if os.environ.get("_TOPMAST_COMPLETE") != "complete_bash":
        return
    wrong = []
    if "COMP_WORDS" not in os.environ:
        wrong.append("COMP_WORDS is not set; it must be the words of the line")
    place = os.environ.get("COMP_CWORD", "")
    if not (place.isascii() and place.isdigit()):
        wrong.append(f"COMP_CWORD is '{place}'; it must be the number of the word at the cursor")
    if wrong:
        raise typer.BadParameter(f"{'; '.join(wrong)}: use `topmast completion bash`")


def _run(root: Root, given: list[str]) -> int:
    try:
        _require_line()
        code = build()(given, prog_name=PROGRAM, standalone_mode=False, obj=root)
    except typer.TyperException as error:
        if _debugging():
            raise
        return _misused(error, as_json=_wants_json(given))
    except typer.Abort:
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:
        return _failed(error, as_json=_wants_json(given))
    return code if isinstance(code, int) else 0


def _wants_json(given: Sequence[str]) -> bool:
    """Whether ``--json`` is asked for; the words of a command behind ``--`` are another's."""
    own = given[: given.index("--")] if "--" in given else given
    return "--json" in own


def _misused(error: typer.TyperException, *, as_json: bool) -> int:
    """Report arguments that cannot be accepted."""
    every: tuple[typer.TyperException, ...] = (error, *getattr(error, MORE, ()))
    if as_json:
        from topmast.model.problem import made
        from topmast.model.views import Fault

        faults = tuple(
            Fault(_NAMES_IT.sub("", said_of(one)), _option(one), _hint(one).strip(" ()"))
            for one in every
        )
        first = faults[0]
        more = faults if len(faults) > 1 else ()
        problem = made(422, "Invalid input", first.detail, first.field, first.remedy, more)
        _note_error(problem)
    else:
        for one in every:
            note(f"{PROGRAM}: {said_of(one)}{_hint(one)}")
    return error.exit_code


def _failed(error: Exception, *, as_json: bool = False) -> int:
    """Report an error that a command ended with."""
    from topmast.model.errors import InvalidInput, TopmastError

    if _debugging():
        raise error
    if isinstance(error, TopmastError):
        if as_json:
            from topmast.model.problem import problem_of

            _note_error(problem_of(error))
        else:
            for one in (error, *getattr(error, "more", ())):
                note(f"{PROGRAM}: {one}")
        return MISUSE if isinstance(error, InvalidInput) else FAILED
    text, code = _other(error)
    if as_json:
        from topmast.model.problem import made

        invalid = code == MISUSE
        title = "Invalid input" if invalid else "Failed"
        _note_error(made(422 if invalid else 400, title, text))
    else:
        note(f"{PROGRAM}: {text}")
    return code


def _other(error: Exception) -> tuple[str, int]:
    """What to say of an error that is not our own, and the exit code."""
    from topmast.cli.extras import extra_of

    if isinstance(error, OSError):
        return str(error), FAILED
    if isinstance(error, UnicodeEncodeError):
        given = error.object.encode(errors="surrogateescape")
        return f"{str(given)[1:]} is not UTF-8; write it in UTF-8", MISUSE
    if isinstance(error, ModuleNotFoundError) and (extra := extra_of(error.name or "")):
        return f"this needs {error.name}: pip install 'topmast[{extra}]'", FAILED
    kind = type(error).__name__
    return f"internal error: {kind}: {error} (TOPMAST_DEBUG=1 shows where)", FAILED


def _option(error: typer.TyperException) -> str:
    """The option or argument at fault, as people write it; empty if none is."""
    hint = getattr(error, "param_hint", None)
    if isinstance(hint, str):
        return hint.strip("'")
    parameter: Any = getattr(error, "param", None)
    if parameter is None:
        return str(getattr(error, "option_name", "") or "")
    return written(parameter)


def _note_error(problem: Problem) -> None:
    """The error as one line of JSON, in the form of REST: where errors always are."""
    import json

    import msgspec

    text = json.dumps(msgspec.to_builtins({"error": problem}), ensure_ascii=False)
    # A path need not be UTF-8: what of it is not is shown as a question mark.
    sys.stderr.write(clean_json(text.encode(errors="replace").decode()) + "\n")
    sys.stderr.flush()


def _hint(error: typer.TyperException) -> str:
    """Where to read how the command is called."""
    context = getattr(error, "ctx", None)
    return f" (see: {context.command_path} --help)" if context is not None else ""


def _debugging() -> bool:
    return os.environ.get("TOPMAST_DEBUG", "") not in ("", "0")
