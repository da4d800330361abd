"""`reserve`: hosts that are kept free from a time on, until another."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from topmast.cli import values
from topmast.cli.command import (
    FLEET,
    JsonOption,
    ServerOption,
    Session,
    StateOption,
    command,
    epilog,
    session_of,
)
from topmast.cli.completion import complete_clusters, complete_hosts, complete_regions
from topmast.cli.groups import Group
from topmast.cli.hosttable import listed
from topmast.cli.output import Column, note, say, say_table
from topmast.cli.text import moment, number

if TYPE_CHECKING:
    from topmast.model.act_views import ReservationView

HostsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="HOST", help="Names of hosts.", autocompletion=complete_hosts),
]
SelectorOption = Annotated[
    str | None,
    typer.Option(
        "--selector", "-l", metavar="KEY=VALUE,...",
        help="The hosts that there are now by KEY=VALUE,... as for `topmast cordon`.",
    ),
]  # fmt: skip
ClusterOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="A whole cluster.", autocompletion=complete_clusters),
]
RegionOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="A whole region.", autocompletion=complete_regions),
]
FromOption = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="When it begins: a time, or 4h from now."),
]
UntilOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="When it ends by itself, likewise.")
]
ForOption = Annotated[
    str | None,
    typer.Option("--for", metavar="DURATION", help="How long it lasts, in place of --until."),
]
TenantOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Jobs of this tenant start there all the same; repeatable."),
]
ReasonOption = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Why; it is shown, and the audit log keeps it.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Only show which hosts and jobs that concerns.")
]


def add(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(cls=Group, rich_markup_mode=None)
    group.callback(invoke_without_command=True)(_alone)
    command(
        group, "add", example="topmast reserve add --cluster east-1 --from 2h --for 4h "
        "--reason 'new switches'\ntopmast reserve add east-1-0 --until 8h --tenant vision",
    )(reserve)  # fmt: skip
    command(group, "end", example="topmast reserve end w1")(end)
    app.add_typer(
        group, name="reserve", rich_help_panel=FLEET,
        help="Reserve hosts for a while: a job that would not end before does not start there.",
        epilog=epilog("topmast reserve\ntopmast reserve add --cluster east-1 --from 2h --for 4h"),
    )  # fmt: skip


def _alone(
    context: typer.Context,
    json: JsonOption = False,
    server: ServerOption = None,
    state: StateOption = None,
) -> None:
    if context.invoked_subcommand is None:
        session = session_of(context)
        with session.client() as client:
            found = client.reservations()
        session.show({"reservations": found}, lambda: _say(found))


def reserve(
    session: Session,
    hosts: HostsArgument = None,
    selector: SelectorOption = None,
    cluster: ClusterOption = None,
    region: RegionOption = None,
    from_: FromOption = None,
    until: UntilOption = None,
    for_: ForOption = None,
    tenant: TenantOption = None,
    reason: ReasonOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Reserve hosts: a job that would not end before does not start there.

    What counts is what is left of the job's time limit, or else how long it is expected to run.
    Meanwhile nothing starts there, but jobs of --tenant. What runs goes on; to move it, drain.
    """
    named = [bool(hosts), selector is not None, cluster is not None, region is not None]
    if sum(named) != 1:
        raise typer.BadParameter("name hosts, or give one of --selector, --cluster, --region")
    if (until is None) == (for_ is None):
        raise typer.BadParameter("say when it ends: with --until, or with --for")
    from_s = values.coming_s(from_, "--from")
    from_s = time.time() if from_s is None else from_s
    until_s = values.coming_s(until, "--until")
    lasts_s = values.duration_s(for_, "--for")
    until_s = from_s + (lasts_s or 0.0) if until_s is None else until_s
    with session.client() as client:
        found = client.reserve(
            hosts or (), selector=selector or "", cluster=cluster or "", region=region or "",
            from_s=from_s, until_s=until_s, tenants=tenant or (), reason=reason or "",
            dry_run=dry_run,
        )  # fmt: skip
    session.show(found, lambda: _say_one(found, dry_run=dry_run))


def end(
    session: Session,
    name: Annotated[
        str, typer.Argument(metavar="RESERVATION", help="Its name, as `topmast reserve` lists it.")
    ],
    reason: ReasonOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """End a reservation before its time."""
    with session.client() as client:
        found = client.end_reservation(name, reason=reason or "", dry_run=dry_run)
    session.show(found, lambda: _say_one(found, dry_run=dry_run))


def _say_one(found: ReservationView, *, dry_run: bool) -> None:
    if dry_run:
        note("nothing was done")
    _say([found])
    if found.jobs:
        goes = "job may" if len(found.jobs) == 1 else "jobs may"
        say(f"{len(found.jobs)} {goes} still run there when it begins: {listed(found.jobs)}")


def _say(found: list[ReservationView]) -> None:
    columns = [
        Column("RESERVATION", whole=True), Column("STATE"), Column("FROM"), Column("UNTIL"),
        Column("WHAT"), Column("HOSTS", right=True), Column("GPUS", right=True),
        Column("FOR", spare=2), Column("JOBS", right=True), Column("BY", spare=1),
        Column("REASON"),
    ]  # fmt: skip
    rows = [
        [
            one.name, one.state, moment(one.from_s), moment(one.until_s),
            one.cluster or one.region or listed(one.hosts), str(len(one.hosts)),
            number(one.gpus), ",".join(one.tenants), str(len(one.jobs)), one.by, one.reason,
        ]
        for one in found
    ]  # fmt: skip
    say_table(columns, rows)
