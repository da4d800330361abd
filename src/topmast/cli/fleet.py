"""What there is and what is free: regions, hosts, GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from topmast.cli import values
from topmast.cli.command import Session, command
from topmast.cli.completion import complete_hosts
from topmast.cli.hosttable import say_hosts
from topmast.cli.hostverbs import HostSelector
from topmast.cli.jobs import say_history
from topmast.cli.output import Column, say, say_table
from topmast.cli.text import number

if TYPE_CHECKING:
    pass

RegionOption = Annotated[
    str | None, typer.Option("--region", metavar="NAME", help="Only those of one region.")
]


def add(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "regions", example="topmast regions")(regions)
    command(
        app, "hosts",
        example="topmast hosts --cluster east-1\ntopmast hosts -l gpu=H100,state=cordoned\n"
        "topmast hosts --history east-1-0",
    )(hosts)  # fmt: skip
    command(app, "gpus", example="topmast gpus --json")(gpus)


def regions(session: Session) -> None:
    """GPUs, jobs, data, and demand over supply, by region."""
    from topmast.model.units import format_bytes

    with session.client() as client:
        found = client.regions()
    columns = [
        Column("REGION", whole=True), Column("CLUSTERS", right=True), Column("HOSTS", right=True),
        Column("GPUS", right=True), Column("FREE", right=True),
        Column("UNAVAILABLE", right=True, spare=4),
        Column("RUNNING", right=True), Column("DEMAND/SUPPLY", right=True, spare=3),
        Column("DATASETS", right=True, spare=2), Column("STORED", right=True, spare=1),
    ]  # fmt: skip
    rows = [
        [
            row.name, str(row.clusters), str(row.hosts), number(row.gpus), number(row.free_gpus),
            number(row.unavailable_gpus), str(row.running_jobs), f"{row.demand_supply:.2f}",
            str(row.datasets),
            format_bytes(row.stored_bytes)
            + (f" of {format_bytes(row.storage_bytes)}" if row.storage_bytes is not None else ""),
        ]
        for row in found
    ]  # fmt: skip
    session.show({"regions": found}, lambda: say_table(columns, rows))


def hosts(
    session: Session,
    region: RegionOption = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only those of one cluster.")
    ] = None,
    history: Annotated[
        str | None,
        typer.Option(
            metavar="HOST",
            autocompletion=complete_hosts,
            help="One host and its history: cordons, drains, losses.",
        ),
    ] = None,
    selector: HostSelector = None,
) -> None:
    """State, place, GPUs and jobs, by host."""
    if history is not None:
        _host_story(session, history)
        return
    with session.client() as client:
        rows = client.hosts()
    values.known(region, (row.region for row in rows), "region")
    values.known(cluster, (row.cluster for row in rows), "cluster")
    rows = values.selected("host", selector, rows)
    found = [row for row in rows if region in (None, row.region) and cluster in (None, row.cluster)]
    session.show({"hosts": found}, lambda: say_hosts(found))


def _host_story(session: Session, host: str) -> None:
    with session.client() as client:
        story = client.host_story(host)

    def tell() -> None:
        say_hosts([story.host])
        say()
        if story.history:
            say_history(story.history)
        else:
            say(
                "nothing has happened to it"
                if story.known
                else "its history is not known here: its region runs in another process"
            )

    session.show(story, tell)


def gpus(session: Session, region: RegionOption = None) -> None:
    """GPUs free, held and unavailable, by model and cluster."""
    with session.client() as client:
        everywhere = client.gpus()
        if region not in (None, *(row.region for row in everywhere)):
            values.known(region, (row.name for row in client.regions()), "region")
    found = [row for row in everywhere if region in (None, row.region)]
    columns = [
        Column("GPU", whole=True), Column("REGION"), Column("CLUSTER"), Column("TOTAL", right=True),
        Column("FREE", right=True), Column("HELD", right=True), Column("UNAVAILABLE", right=True),
    ]  # fmt: skip
    rows = [
        [
            row.gpu_model, row.region, row.cluster,
            number(row.total), number(row.free), number(row.held), number(row.unavailable),
        ]
        for row in found
    ]  # fmt: skip
    session.show({"gpus": found}, lambda: say_table(columns, rows))
