"""`policies`: every policy and every profile; by which of them a server decides."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from topmast.cli import values
from topmast.cli.actoptions import ActOptions
from topmast.cli.command import Session, command, group
from topmast.cli.completion import complete_profiles, complete_settings
from topmast.cli.output import Column, note, say, say_table

if TYPE_CHECKING:
    from topmast.model.system_views import ProfileAct, ProfileView


def add(app: typer.Typer) -> None:
    """Add the group of commands."""
    made = group(
        app, "policies", alone=policies,
        example="topmast policies\ntopmast policies show",
    )  # fmt: skip
    command(made, "show", example="topmast policies show")(show)
    command(
        made, "set", example="topmast policies set tiresias-las --dry-run\n"
        "topmast policies set fifo-skip --set score.data=2 --reason 'data is near now'",
    )(set_profile)  # fmt: skip


def show(session: Session) -> None:
    """The profile by which the server decides, and that of the next leader."""
    with session.client() as client:
        found = client.profile()
    session.show(found, lambda: _say_act(found))


def set_profile(
    session: Session,
    profile: Annotated[
        str,
        typer.Argument(metavar="PROFILE", help="Its name.", autocompletion=complete_profiles),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a setting; may be repeated.",
            autocompletion=complete_settings,
            callback=values.ASSIGNMENTS,
        ),
    ] = None,
    options: ActOptions = ActOptions(),
) -> None:
    """Set the profile of the next leader: of a standby, or of this server after its next start."""
    over = values.assignments(settings or [], "--set")
    with session.client() as client:
        found = client.set_profile(profile, over, **options.given)
    session.show(found, lambda: _say_act(found))


def _say_act(found: ProfileAct) -> None:
    if found.dry_run:
        note("nothing was done")
    say(f"It decides by:              {_named(found.now)}")
    say(f"The next leader decides by: {_named(found.later)}")
    if found.foreseen:
        told = ", ".join(f"{name}={value}" for name, value in found.foreseen.items())
        say(f"Forecasts are told:         {told}")
    if found.effect == "done" and not found.dry_run:
        note("a server takes a profile up when it begins to lead: start it again")


def _named(profile: ProfileView) -> str:
    return profile.name + (f" ({_options(profile.options)})" if profile.options else "")


def policies(session: Session) -> None:
    """List all policies and profiles.

    A profile names one policy for each hook, and sets options; `--set OPTION=VALUE` lays others
    over it.
    """
    from topmast.service.policies import listing

    document = listing()
    session.show(document, lambda: _say(document))


def _say(document: Mapping[str, Any]) -> None:
    _table(
        "HOOK",
        "POLICY",
        "SOURCE",
        [(p["hook"], p["name"], p["source"], p) for p in document["policies"]],
    )
    say()
    profiles = document["profiles"]
    _table(
        "PROFILE",
        "ORDER",
        "WHAT IT DOES",
        [(p["name"], p["policies"]["order"], p["what"], p) for p in profiles],
    )
    if not sys.stdout.isatty():
        note("without the options, which a terminal shows: they are in --json")


def _table(first: str, second: str, third: str, rows: Sequence[tuple[str, str, str, Any]]) -> None:
    """Three columns, and in a terminal the options of what the row is about."""
    titles = [Column(first, whole=True), Column(second, whole=True)]
    if not sys.stdout.isatty():
        # What reads a pipe wants whole cells; a table has no room for that of all options.
        say_table([*titles, Column(third, whole=True)], [[a, b, c] for a, b, c, _ in rows])
        return
    titles += [Column(third, beneath=True), Column("OPTIONS", beneath=True)]
    say_table(titles, [[a, b, c, _options(entry["options"])] for a, b, c, entry in rows])


def _options(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_value(value)}" for name, value in options.items())


def _value(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)
