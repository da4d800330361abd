"""What the shell offers for the next word: names that the server knows, if it answers at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from topmast.cli.command import NOBODY, SYSTEM, Session, command, session_of
from topmast.cli.output import say
from topmast.experiments.names import experiment_names

if TYPE_CHECKING:
    from topmast.client import Client

PATIENCE_S = 1.0
_OFFERED = 50


class Shell(StrEnum):
    """Shells that the command line completes for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def add(app: typer.Typer) -> None:
    """Add the command that prints the script for a shell."""
    command(
        app, "completion", panel=SYSTEM, asks=NOBODY,
        example='eval "$(topmast completion bash)"\n'
        "topmast completion fish > ~/.config/fish/completions/topmast.fish",
    )(completion)  # fmt: skip


def completion(
    session: Session, shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.")]
) -> None:
    """Print the script for completion in a shell."""
    from typer._completion_shared import get_completion_script

    names = {"prog_name": "topmast", "complete_var": "_TOPMAST_COMPLETE", "shell": shell.value}
    script = get_completion_script(**names)
    session.show({"shell": shell.value, "script": script}, lambda: say(script))


def complete_jobs(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of jobs, the newest first."""
    return _names(
        context,
        incomplete,
        lambda client: [
            (job.id, f"{job.name} {job.state}") for job in client.job_page(limit=_OFFERED).jobs
        ],
    )


def complete_hosts(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names of hosts."""
    return _names(
        context,
        incomplete,
        lambda client: [(host.name, f"{host.gpu_model} {host.state}") for host in client.hosts()],
    )


def complete_regions(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names of regions."""
    return _names(
        context, incomplete, lambda client: [(region.name, "") for region in client.regions()]
    )


def complete_datasets(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names of datasets."""
    return _names(
        context, incomplete, lambda client: [(dataset.name, "") for dataset in client.datasets()]
    )


def complete_experiments(incomplete: str) -> list[str]:
    """Names of published experiments."""
    return [name for name in experiment_names() if name.startswith(incomplete)]


def complete_profiles(incomplete: str) -> list[str]:
    """Names of profiles."""
    from topmast.policies.registry import profile_names

    return [name for name in profile_names() if name.startswith(incomplete)]


def _names(
    context: typer.Context, incomplete: str, ask: Callable[[Client], Iterable[tuple[str, str]]]
) -> list[tuple[str, str]]:
    """What ``ask`` finds that begins with ``incomplete``; nothing at all if anything is wrong."""
    from topmast.model.errors import TopmastError

    session: Session = session_of(context)
    try:
        with session.client(PATIENCE_S) as client:
            found = list(ask(client))
    except TopmastError:
        return []
    # A shell takes the rest as its own language: only plain names are offered.
    return [
        (name, "".join(letter for letter in text if letter.isalnum() or letter in " ._-"))
        for name, text in found
        if name.startswith(incomplete) and all(c.isalnum() or c in "._-" for c in name)
    ]
