"""Clusters: what they have, the plan of their hosts, and clusters that are closed to new work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from topmast.cli import values
from topmast.cli.actoptions import ActOptions
from topmast.cli.command import Session, command, group
from topmast.cli.completion import complete_clusters
from topmast.cli.each import named_or_selected, require_each
from topmast.cli.output import Cell, Column, Row, say, say_table
from topmast.cli.text import moment, number, plural

if TYPE_CHECKING:
    from topmast.client import Client
    from topmast.model.act_views import ClusterActed
    from topmast.model.plan_views import CapacityPlanView
    from topmast.model.views import ClusterView

_STYLES = {"open": "green", "partly": "yellow", "closed": "red", "down": "red"}

RegionOption = Annotated[
    str | None, typer.Option("--region", metavar="NAME", help="Only those of one region.")
]
ClustersArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="CLUSTER", help="Names of clusters.", autocompletion=complete_clusters),
]


ClusterSelector = Annotated[
    str | None, values.selector_option("Clusters", "cluster, region, engine, state")
]


@dataclass(frozen=True)
class ClusterOptions(ActOptions):
    """What both acts on clusters have in common."""

    selector: ClusterSelector = None


def add(app: typer.Typer) -> None:
    """Add the group of commands."""
    made = group(
        app, "clusters", alone=list_all,
        example="topmast clusters --region east\ntopmast clusters close east-1 --dry-run",
    )  # fmt: skip
    command(
        made, "close", example="topmast clusters close east-1 --reason 'new switches'\n"
        "topmast clusters close -l region=east --until 4h --dry-run",
    )(close)  # fmt: skip
    command(
        made, "open", example="topmast clusters open east-1\ntopmast clusters open -l region=east"
    )(open_again)


def list_all(
    session: Session,
    region: RegionOption = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="The plan of which hosts belong to which clusters.")
    ] = False,
    selector: ClusterSelector = None,
) -> None:
    """Engine, hosts, GPUs and jobs, by cluster; whether it takes new work, and why not."""
    if plan:
        _capacity_plan(session, region)
        return
    with session.client() as client:
        everywhere = client.clusters()
    values.known(region, (row.region for row in everywhere), "region")
    chosen = values.selected("cluster", selector, everywhere)
    found = [row for row in chosen if region in (None, row.region)]
    session.show({"clusters": found}, lambda: _say_clusters(found))


def _say_clusters(found: list[ClusterView]) -> None:
    columns = [
        Column("CLUSTER", whole=True), Column("REGION", folds=True), Column("ENGINE", spare=2),
        Column("HOSTS", right=True), Column("HEALTHY", right=True), Column("GPUS", right=True),
        Column("FREE", right=True), Column("RUNNING", right=True), Column("STATE"),
        Column("CAN", spare=1),
    ]  # fmt: skip
    rows: list[Row] = [
        [
            row.name, row.region, row.engine, str(row.hosts), str(row.healthy_hosts),
            number(row.gpus), number(row.free_gpus), str(row.running_jobs),
            Cell(row.state, _STYLES.get(row.state, "")), ",".join(row.capabilities),
        ]
        for row in found
    ]  # fmt: skip
    say_table(columns, rows)
    for row in found:
        if row.closed:
            until = "" if row.until_s is None else f", until {moment(row.until_s)}"
            say(f"{row.name} is {row.state}: {row.closed}{until}")
        elif row.closed_hosts:
            hosts = f"{plural(len(row.closed_hosts), 'host')} of {row.name}"
            takes = "takes" if len(row.closed_hosts) == 1 else "take"
            say(f"{hosts} {takes} no new work: `topmast hosts --cluster {row.name}`")


def close(
    session: Session,
    clusters: ClustersArgument = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="When they open by themselves: a time, or 4h from now.",
            callback=values.COMING,
        ),
    ] = None,
    options: ClusterOptions = ClusterOptions(),
) -> None:
    """Give clusters no new work; what runs there goes on.

    Hosts that come to a closed cluster later get no new work either.
    """
    until_s = values.coming_s(until, "--until")
    _act(
        session, clusters, options,
        lambda client, names: client.close_clusters(
            names, selector=options.selector or "", until_s=until_s, **options.given
        ),
    )  # fmt: skip


def open_again(
    session: Session,
    clusters: ClustersArgument = None,
    options: ClusterOptions = ClusterOptions(),
) -> None:
    """Give clusters work again that an operator closed."""
    _act(
        session, clusters, options,
        lambda client, names: client.open_clusters(
            names, selector=options.selector or "", **options.given
        ),
    )  # fmt: skip


def _act(
    session: Session,
    clusters: list[str] | None,
    options: ClusterOptions,
    act: Callable[[Client, list[str]], list[ClusterActed]],
) -> None:
    """One request for all clusters."""
    named = named_or_selected(clusters, options.selector, "cluster", "cluster=*")
    with session.client() as client:
        if named:
            require_each(named, (row.name for row in client.clusters()), "cluster")
        found = act(client, named)
    options.tell()
    session.show({"clusters": found}, lambda: _say_acts(found))


_BECOMES = {"close": "closed", "open": "open"}


def _say_acts(found: list[ClusterActed]) -> None:
    _say_clusters([acted.cluster for acted in found])
    for acted in found:
        texts = []
        if acted.effect == "unchanged":
            texts.append(f"it is {acted.cluster.state} already")
        elif acted.dry_run:
            texts.append(f"it would be {_BECOMES[acted.verb]}")
        if acted.jobs:
            goes = "goes" if len(acted.jobs) == 1 else "go"
            goes = "would go" if acted.dry_run else goes
            texts.append(f"{plural(len(acted.jobs), 'job')} there {goes} on")
        if texts:
            say(f"{acted.cluster.name}: {'; '.join(texts)}")


def _capacity_plan(session: Session, region: str | None) -> None:
    with session.client() as client:
        view = client.capacity_plan()
        if region is not None:
            values.known(region, (row.name for row in client.regions()), "region")
    session.show(view, lambda: _say_plan(view, region))


def _say_plan(view: CapacityPlanView, region: str | None) -> None:
    if view.every_s is None:
        say(
            "There is no capacity plan: "
            "start the server with `topmast up --plan-capacity-every 30m`."
        )
        return
    if view.number is None:
        say("There is no plan yet.")
    else:
        columns = [
            Column("CLUSTER", whole=True), Column("REGION"), Column("GPU"),
            Column("CONFIGURED", right=True), Column("UNMET", right=True),
            Column("IDLE", right=True),
            Column("REQUESTED", right=True), Column("LACKING", right=True),
            Column("GPUS", right=True),
            Column("LENT", right=True),
        ]  # fmt: skip
        rows = [
            [
                row.cluster, row.region, row.gpu_model,
                *(number(round(x, 1)) for x in (row.configured, row.unmet, row.idle, row.requested,
                                                row.lacking, row.gpus, row.lent)),
            ]
            for row in view.clusters
            if region in (None, row.region)
        ]  # fmt: skip
        say_table(columns, rows, title=f"Plan {view.number}")
    for move in view.leaving:
        say(f"{move.host} leaves {move.cluster} for {move.leaves_for} when it is empty")
    for name in view.out_of_reach:
        say(f"Region {name} is out of reach: it is not planned for now")
    if view.trouble is not None:
        say(f"The last plan failed: {view.trouble}")
