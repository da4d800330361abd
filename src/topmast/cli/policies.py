"""`policies`: every policy and every profile, with its source and its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from topmast.cli.command import RESEARCH, Session, command
from topmast.cli.output import Column, say, say_table


def add(app: typer.Typer) -> None:
    """Add the command."""
    command(
        app, "policies", panel=RESEARCH,
        example="topmast policies\ntopmast policies --json",
    )(policies)  # fmt: skip


def policies(session: Session) -> None:
    """List all policies and profiles.

    A profile names one policy for each hook, and sets options; `--set OPTION=VALUE` lays others over it.
    """
    from topmast.service.policies import listing

    document = listing()
    session.show(document, lambda: _say(document))


def _say(document: Mapping[str, Any]) -> None:
    titles = [
        Column("HOOK", whole=True),
        Column("POLICY", whole=True),
        Column("SOURCE"),
        Column("OPTIONS"),
    ]
    rows = [
        [p["hook"], p["name"], p["source"], _options(p["options"])] for p in document["policies"]
    ]
    say_table(titles, rows)
    say()
    titles = [
        Column("PROFILE", whole=True),
        Column("ORDER", whole=True),
        Column("WHAT IT DOES"),
        Column("OPTIONS"),
    ]
    rows = [
        [p["name"], p["policies"]["order"], p["what"], _options(p["options"])]
        for p in document["profiles"]
    ]
    say_table(titles, rows)


def _options(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_value(value)}" for name, value in options.items())


def _value(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)
