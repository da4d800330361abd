"""The commands put together, and how they end: an exit code, and one line for an error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from topmast import __version__
from topmast.cli import (
    accounts,
    allocate,
    calibrate,
    completion,
    composed,
    datasets,
    discover,
    down,
    execs,
    explain,
    fleet,
    fleet_file,
    importing,
    jobs,
    launch,
    login,
    notify,
    plan,
    policies,
    reproduce,
    simulate,
    traces,
    usage,
    verbs,
)
from topmast.cli.command import JsonOption, ServerOption, StateOption, finish, keep_only, list_only
from topmast.cli.extras import extra_of
from topmast.cli.groups import Group, said_of
from topmast.cli.output import note, say, say_block
from topmast.cli.root import Root

FAILED, MISUSE, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141
PROGRAM = "topmast"


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    """A closed output, as of ``head``, is no error to report."""
    try:
        yield
    except BrokenPipeError:
        raise typer.Exit(BROKEN_PIPE) from None


class Commands(Group):
    """The top of the command line: a reader may leave before its end."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read the arguments, which may print the help."""
        with _reader_may_leave():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _reader_may_leave():
            return super().invoke(ctx)


def build(root: Root, arguments: Sequence[str] = ()) -> typer.Typer:
    """The command line, with what only the composition root can do taken from ``root``.

    Where ``arguments`` name a command, it is the only one; where they ask for help or the version,
    commands are listed and no more.
    """
    app = typer.Typer(
        name=PROGRAM,
        cls=Commands,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="\b\nStart here:\n  $ topmast demo\n  $ topmast up\n  $ topmast launch job.yaml",
    )
    app.callback(invoke_without_command=True)(_top)
    launch.add(app)
    jobs.add(app)
    verbs.add(app)
    execs.add(app)
    importing.add(app)
    explain.add(app)
    launch.add_watching(app)
    fleet.add(app)
    discover.add(fleet_file.add(app))
    datasets.add(app)
    usage.add(app)
    notify.add(app)
    login.add(app)
    accounts.add(app, root)
    composed.add(app, root)
    down.add(app)
    plan.add(app)
    simulate.add(app)
    calibrate.add(app)
    reproduce.add(app)
    policies.add(app)
    allocate.add(app)
    traces.add(app)
    completion.add(app)
    if arguments and set(arguments) <= {"-h", "--help", "--version"}:
        list_only(app)
    else:
        keep_only(app, _named(arguments))
        finish(app)
    return app


def _named(arguments: Sequence[str]) -> str:
    """The command that arguments name; nothing where that is not plain."""
    words = iter(arguments)
    for word in words:
        if word in ("--server", "--state"):
            next(words, None)
        elif word != "--json" and not word.startswith(("--server=", "--state=")):
            return word
    return ""


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
    elif context.invoked_subcommand is None:
        say_block(context.get_help())


def main(root: Root, arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return its exit code: whatever happens, there is no traceback."""
    _open_missing_streams()
    for stream in (sys.stdout, sys.stderr):
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    code = 0
    try:
        code = _run(root, arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        code = BROKEN_PIPE
    except OSError as error:
        code = code or _failed(error)
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


def _run(root: Root, arguments: Sequence[str] | None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = build(root, given)(given, prog_name=PROGRAM, standalone_mode=False)
    except typer.TyperException as error:
        if _debugging():
            raise
        note(f"{PROGRAM}: {said_of(error)}{_hint(error)}")
        return error.exit_code
    except typer.Abort:
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:
        return _failed(error)
    return code if isinstance(code, int) else 0


def _failed(error: Exception) -> int:
    """Report an error that a command ended with."""
    from topmast.model.errors import InvalidInput, TopmastError

    if _debugging():
        raise error
    if isinstance(error, TopmastError):
        for one in (error, *getattr(error, "more", ())):
            note(f"{PROGRAM}: {one}")
        return MISUSE if isinstance(error, InvalidInput) else FAILED
    if isinstance(error, OSError):
        note(f"{PROGRAM}: {error}")
        return FAILED
    if isinstance(error, ModuleNotFoundError) and (extra := extra_of(error.name or "")):
        note(f"{PROGRAM}: this needs {error.name}: pip install 'topmast[{extra}]'")
        return FAILED
    kind = type(error).__name__
    note(f"{PROGRAM}: internal error: {kind}: {error} (TOPMAST_DEBUG=1 shows where)")
    return FAILED


def _hint(error: typer.TyperException) -> str:
    """Where to read how the command is called."""
    context = getattr(error, "ctx", None)
    return f" (see: {context.command_path} --help)" if context is not None else ""


def _debugging() -> bool:
    return os.environ.get("TOPMAST_DEBUG", "") not in ("", "0")
