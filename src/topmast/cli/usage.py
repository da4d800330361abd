"""`usage`: the GPU-hours that were held, by tenant, user, model or label, and those of use."""

from __future__ import annotations

from typing import Annotated

import typer

from topmast.cli import values
from topmast.cli.command import FLEET, Session, command
from topmast.cli.output import Column, say_table
from topmast.cli.text import moment, number

KEYS = ("tenant", "user", "gpu", "label.")


def add(app: typer.Typer) -> None:
    """Add the command."""
    command(
        app, "usage", panel=FLEET, example="topmast usage --by user --since 24h\n"
        "topmast usage --by label.team\n"
        "topmast usage --since 2030-01-01 --until 2030-02-01 --json",
    )(usage)  # fmt: skip


def usage(
    session: Session,
    by: Annotated[
        str,
        typer.Option(
            metavar="[tenant|user|gpu|label.KEY]",
            help="What to group by.",
            autocompletion=lambda: list(KEYS),
        ),
    ] = KEYS[0],
    since: Annotated[
        str | None, typer.Option(metavar="T", help="Start of the period: 24h (ago), 2030-01-31.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="T", help="End of the period. Default: now.")
    ] = None,
) -> None:
    """GPU-hours held, kept and lost over a period.

    Lost hours are work that a preemption or a failure destroyed.
    """
    since_s, until_s = values.moment_s(since, "--since"), values.moment_s(until, "--until")
    with session.client() as client:
        report = client.usage(by, since_s=since_s, until_s=until_s)
    columns = [
        Column(report.by.upper(), whole=True),
        Column("ATTEMPTS", right=True),
        Column("HELD GPU-H", right=True),
        Column("KEPT GPU-H", right=True),
        Column("LOST GPU-H", right=True),
        Column("LOST %", right=True),
    ]
    rows = [
        [
            row.key, str(row.attempts),
            number(row.held_gpu_h), number(row.kept_gpu_h), number(row.lost_gpu_h),
            f"{100 * row.lost_gpu_h / row.held_gpu_h:.1f}" if row.held_gpu_h else "-",
        ]
        for row in report.usage
    ]  # fmt: skip
    title = f"From {moment(report.since_s)} to {moment(report.until_s)}"
    session.show(report, lambda: say_table(columns, rows, title=title))
