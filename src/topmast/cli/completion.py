"""What the shell offers for the next word: names that the server knows, if it answers at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from topmast.cli.command import NOTHING, Session, command, session_of
from topmast.cli.output import say_block

if TYPE_CHECKING:
    from topmast.client import Client
    from topmast.model.views import JobView

PATIENCE_S = 1.0
_OFFERED = 50
_MOST = 1000


class Shell(StrEnum):
    """Shells that the command line completes for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def add(app: typer.Typer) -> None:
    """Add the command that prints the script for a shell."""
    command(
        app, "completion", asks=NOTHING,
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
    session.show({"shell": shell.value, "script": script}, lambda: say_block(script))


def complete_jobs(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of jobs: those that have not ended, by rank, and the newest that have."""
    return _names(
        context, incomplete, lambda client: _shown(_going(client) | _newest(client)).items()
    )


def complete_active_jobs(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of jobs that have not ended, by rank."""
    return _names(context, incomplete, lambda client: _shown(_going(client)).items())


def _going(client: Client) -> dict[str, JobView]:
    page = client.job_page(states="active", order="queue", limit=_MOST)
    return {job.id: job for job in page.jobs}


def _newest(client: Client) -> dict[str, JobView]:
    return {job.id: job for job in client.job_page(limit=_OFFERED).jobs}


def _shown(jobs: dict[str, JobView]) -> dict[str, str]:
    return {job.id: f"{job.name} {job.state}" for job in jobs.values()}


def complete_tenants(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names of tenants."""
    return _names(
        context,
        incomplete,
        lambda client: [(name, "") for name in dict.fromkeys(t.name for t in client.tenants())],
    )


def complete_states(incomplete: str) -> list[str]:
    """States of jobs, each behind the commas that are there already."""
    from topmast.model.states import JobState

    before, comma, last = incomplete.rpartition(",")
    names = [state.lower() if last.islower() else state.value for state in JobState]
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]


def complete_bands(incomplete: str) -> list[str]:
    """Priorities."""
    from topmast.model.job import Band

    names = [band.name.lower() for band in Band]
    return [name for name in names if name.startswith(incomplete)]


def complete_roles(incomplete: str) -> list[str]:
    """Roles."""
    from topmast.model.roles import Role

    return [role.value for role in Role if role.startswith(incomplete)]


def complete_settings(incomplete: str) -> list[str]:
    """Options of a profile, up to their values."""
    from topmast.policies.registry import option_names

    return [f"{name}=" for name in option_names() if name.startswith(incomplete)]


def complete_hosts(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names of hosts."""
    return _names(
        context,
        incomplete,
        lambda client: [(host.name, f"{host.gpu_model} {host.state}") for host in client.hosts()],
    )


def complete_clusters(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names of clusters."""
    return _names(
        context, incomplete, lambda client: [(one.name, one.state) for one in client.clusters()]
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
    from topmast.experiments.names import experiment_names

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
