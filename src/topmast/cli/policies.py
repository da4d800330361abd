"""`policies`: every policy and every profile, with its source and its options."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from topmast.cli.command import NOTHING, Session, command
from topmast.cli.output import Column, note, say, say_table


def add(app: typer.Typer) -> None:
    """Add the command."""
    command(
        app, "policies", asks=NOTHING,
        example="topmast policies\ntopmast policies --json",
    )(policies)  # fmt: skip


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
    titles += [Column(third, most=100), Column("OPTIONS", most=50)]
    say_table(titles, [[a, b, c, _options(entry["options"])] for a, b, c, entry in rows])


def _options(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_value(value)}" for name, value in options.items())


def _value(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)
