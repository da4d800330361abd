"""`reserve`: hosts that are kept free from a time on, until another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from topmast.cli.actoptions import ActOptions, PeriodOptions
from topmast.cli.command import Session, command, group
from topmast.cli.completion import complete_clusters, complete_hosts, complete_regions
from topmast.cli.groups import refuse_together
from topmast.cli.hosttable import listed
from topmast.cli.output import Column, note, say, say_table
from topmast.cli.text import minutes, number

if TYPE_CHECKING:
    from topmast.model.act_views import ReservationView

WHAT_MOST = 16
"""Of the names of hosts so many characters are shown; ``--json`` has all."""
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
TenantOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Jobs of this tenant start there all the same; repeatable."),
]


def add(app: typer.Typer) -> None:
    """Add the group of commands."""
    made = group(
        app, "reserve", alone=list_all,
        example="topmast reserve\ntopmast reserve add --cluster east-1 --from 2h --for 4h",
    )  # fmt: skip
    command(
        made, "add", example="topmast reserve add --cluster east-1 --from 2h --for 4h "
        "--reason 'new switches'\ntopmast reserve add east-1-0 --until 8h --tenant vision",
    )(reserve)  # fmt: skip
    command(made, "end", example="topmast reserve end w1")(end)


def list_all(session: Session) -> None:
    """All reservations."""
    with session.client() as client:
        found = client.reservations()
    session.show({"reservations": found}, lambda: _say(found))


def reserve(
    session: Session,
    hosts: HostsArgument = None,
    selector: SelectorOption = None,
    cluster: ClusterOption = None,
    region: RegionOption = None,
    period: PeriodOptions = PeriodOptions(),
    tenant: TenantOption = None,
    options: ActOptions = ActOptions(),
) -> None:
    """Reserve hosts: a job that would not end before does not start there.

    What counts is what is left of the job's time limit, or else how long it is expected to run.
    Meanwhile nothing starts there, but jobs of --tenant. What runs goes on; to move it, drain.
    """
    faults = list[typer.TyperException]()
    ways = {"HOST": hosts or None, "--selector": selector, "--cluster": cluster, "--region": region}
    named = [way for way, value in ways.items() if value is not None]
    if len(named) != 1:
        message = "name hosts, or give one of --selector, --cluster, --region"
        if named:
            message = f"{listed(named)} each say which hosts: give only one of them"
        faults.append(typer.BadParameter(message))
    if period.fault:
        faults.append(typer.BadParameter(period.fault))
    refuse_together(faults)
    from_s, until_s = period.bounds_s()
    with session.client() as client:
        found = client.reserve(
            hosts or (), selector=selector or "", cluster=cluster or "", region=region or "",
            from_s=from_s, until_s=until_s, tenants=tenant or (), **options.given,
        )  # fmt: skip
    session.show(found, lambda: _say_one(found, dry_run=options.dry_run))


def end(
    session: Session,
    name: Annotated[
        str, typer.Argument(metavar="RESERVATION", help="Its name, as `topmast reserve` lists it.")
    ],
    options: ActOptions = ActOptions(),
) -> None:
    """End a reservation before its time."""
    with session.client() as client:
        found = client.end_reservation(name, **options.given)
    session.show(found, lambda: _say_ended(found, dry_run=options.dry_run))


def _say_ended(found: ReservationView, *, dry_run: bool) -> None:
    if dry_run:
        note("nothing was done")
        _say([found])
        return
    what = found.cluster or found.region or listed(found.hosts)
    free = f"{what} is free for all jobs again"
    if found.state == "planned":
        free = f"it had not begun, and {what} stays free for all jobs"
    say(f"reservation {found.name} has ended: {free}")


def _say_one(found: ReservationView, *, dry_run: bool) -> None:
    if dry_run:
        note("nothing was done")
    _say([found])
    if found.jobs:
        goes = "job may" if len(found.jobs) == 1 else "jobs may"
        say(f"{len(found.jobs)} {goes} still run there when it begins: {listed(found.jobs)}")


def _say(found: list[ReservationView]) -> None:
    columns = [
        Column("NAME", whole=True), Column("STATE"), Column("FROM"), Column("UNTIL"),
        Column("WHAT", most=WHAT_MOST), Column("GPUS", right=True),
        Column("JOBS", right=True),
    ]  # fmt: skip
    rows = [
        [
            one.name, one.state, *minutes(one.from_s, one.until_s),
            one.cluster or one.region or listed(one.hosts), number(one.gpus), str(len(one.jobs)),
        ]
        for one in found
    ]  # fmt: skip
    say_table(columns, rows)
    for one in found:
        tenants = f" for {', '.join(one.tenants)}" if one.tenants else ""
        by = f" by {one.by}" if one.by else ""
        why = f": {one.reason}" if one.reason else ""
        if tenants or by or why:
            is_reserved = f"{one.name} is reserved" if one.name else "this would be reserved"
            say(f"{is_reserved}{tenants}{by}{why}")
