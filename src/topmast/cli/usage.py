"""`usage`: the GPU-hours that were held, by tenant, user, model or label, and those of use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from topmast.cli import values
from topmast.cli.command import Session, command
from topmast.cli.output import Column, note, say_block, say_table
from topmast.cli.text import moment, number

if TYPE_CHECKING:
    from topmast.client.client import UsageReport

KEYS = ("tenant", "user", "gpu", "label.")


def add(app: typer.Typer) -> None:
    """Add the command."""
    command(
        app, "usage", example="topmast usage --by user --since 24h\n"
        "topmast usage --by label.team --csv > october.csv\n"
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
        str | None,
        typer.Option(
            metavar="T", help="Start of the period: 24h (ago), 2030-01-31.", callback=values.MOMENT
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="T", help="End of the period. Default: now.", callback=values.MOMENT),
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated values.")] = False,
) -> None:
    """GPU-hours held, kept, lost and idle over a period.

    Lost hours are work that a preemption or a failure destroyed. Idle hours are those of
    attempts that start or stop. With prices in the fleet file, the
    held hours have a cost.
    """
    if csv and session.json:
        raise typer.BadParameter("--csv and --json: choose one")
    *keys, label = KEYS
    if by not in keys and not by.startswith(label):
        known = ", ".join(f"'{key}'" for key in (*keys, f"{label}KEY"))
        raise typer.BadParameter(f"'{by}' is not one of {known}", param_hint="'--by'")
    since_s, until_s = values.past_s(since, "--since"), values.past_s(until, "--until")
    with session.client() as client:
        report = client.usage(by, since_s=since_s, until_s=until_s)
    if csv:
        _say_csv(report)
        return
    priced = any(row.cost_usd or row.unpriced_gpu_h for row in report.usage)
    columns = [
        Column(report.by.upper(), whole=True),
        Column("ATTEMPTS", right=True),
        Column("HELD GPU-H", right=True),
        Column("KEPT GPU-H", right=True),
        Column("LOST GPU-H", right=True),
        Column("LOST %", right=True),
        Column("IDLE GPU-H", right=True),
        *([Column("USD", right=True)] if priced else []),
    ]
    rows = [
        [
            row.key, str(row.attempts),
            number(row.held_gpu_h), number(row.kept_gpu_h), number(row.lost_gpu_h),
            f"{100 * row.lost_gpu_h / row.held_gpu_h:.1f}" if row.held_gpu_h else "-",
            number(row.idle_gpu_h),
            *([f"{row.cost_usd:.2f}"] if priced else []),
        ]
        for row in report.usage
    ]  # fmt: skip
    title = f"From {moment(report.since_s)} to {moment(report.until_s)}"
    session.show(report, lambda: say_table(columns, rows, title=title))
    unpriced_gpu_h = sum(row.unpriced_gpu_h for row in report.usage)
    if unpriced_gpu_h:
        note(f"{number(unpriced_gpu_h)} GPU-hours have no price in the fleet file")


def _say_csv(report: UsageReport) -> None:
    from topmast.model.usage_csv import usage_csv

    say_block(usage_csv(report.by, report.usage, report.since_s, report.until_s))
