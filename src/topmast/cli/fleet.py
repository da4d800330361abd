"""What there is and what is free: regions, clusters, hosts, GPUs; and hosts put aside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from topmast.cli import tenants, values
from topmast.cli.command import FLEET, Session, command
from topmast.cli.completion import complete_hosts
from topmast.cli.each import for_each
from topmast.cli.jobs import say_history
from topmast.cli.output import Cell, Column, Row, say, say_table
from topmast.cli.text import number, plural

if TYPE_CHECKING:
    from topmast.client import Client
    from topmast.model.plan_views import CapacityPlanView
    from topmast.model.views import DrainView, HostView

HostsArgument = Annotated[
    list[str],
    typer.Argument(metavar="HOST", help="Names of hosts.", autocompletion=complete_hosts),
]
RegionOption = Annotated[
    str | None, typer.Option("--region", metavar="NAME", help="Only those of one region.")
]

_HOST_STYLES = {
    "healthy": "green",
    "suspect": "yellow",
    "draining": "yellow",
    "closed": "yellow",
    "down": "red",
    "stopped": "red",
}
_CLUSTER_STYLES = {"open": "green", "partly": "yellow", "closed": "red", "down": "red"}
_HOST_COLUMNS = [
    Column("HOST", whole=True), Column("REGION"), Column("CLUSTER"), Column("STATE"),
    Column("GPU"), Column("FREE", right=True), Column("GPUS", right=True),
    Column("DATACENTER", spare=1), Column("POD", spare=2), Column("RACK", spare=3), Column("JOBS"),
]  # fmt: skip


ReasonOption = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Why; the history of the hosts keeps it.")
]


UntilOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="When they take work again by themselves: a time, or 4h from now."
    ),
]


def add(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "regions", panel=FLEET, example="topmast regions")(regions)
    command(app, "clusters", panel=FLEET, example="topmast clusters --region east")(clusters)
    command(
        app, "hosts", panel=FLEET,
        example="topmast hosts --cluster east-1\ntopmast hosts --history east-1-0",
    )(hosts)  # fmt: skip
    command(app, "gpus", panel=FLEET, example="topmast gpus --json")(gpus)
    tenants.add(app)
    command(app, "cordon", panel=FLEET, example="topmast cordon east-1-0")(cordon)
    command(app, "uncordon", panel=FLEET, example="topmast uncordon east-1-0")(uncordon)
    command(app, "drain", panel=FLEET, example="topmast drain east-1-0 east-1-1 --dry-run")(drain)


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


def clusters(
    session: Session,
    region: RegionOption = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="The plan of which hosts belong to which clusters.")
    ] = False,
) -> None:
    """Engine, hosts, GPUs and jobs, by cluster; whether it takes new work, and why not."""
    if plan:
        _capacity_plan(session, region)
        return
    with session.client() as client:
        everywhere = client.clusters()
    values.known(region, (row.region for row in everywhere), "region")
    found = [row for row in everywhere if region in (None, row.region)]
    columns = [
        Column("CLUSTER", whole=True), Column("REGION"), Column("ENGINE"),
        Column("HOSTS", right=True), Column("HEALTHY", right=True), Column("GPUS", right=True),
        Column("FREE", right=True), Column("RUNNING", right=True), Column("STATE"),
        Column("CAN", spare=1),
    ]  # fmt: skip
    rows: list[Row] = [
        [
            row.name, row.region, row.engine, str(row.hosts), str(row.healthy_hosts),
            number(row.gpus), number(row.free_gpus), str(row.running_jobs),
            Cell(row.state, _CLUSTER_STYLES.get(row.state, "")), ",".join(row.capabilities),
        ]
        for row in found
    ]  # fmt: skip

    def tell() -> None:
        say_table(columns, rows)
        for row in found:
            if row.closed:
                say(f"{row.name} is {row.state}: {row.closed}")
            elif row.closed_hosts:
                hosts = f"{plural(len(row.closed_hosts), 'host')} of {row.name}"
                takes = "takes" if len(row.closed_hosts) == 1 else "take"
                say(f"{hosts} {takes} no new work: `topmast hosts --cluster {row.name}`")

    session.show({"clusters": found}, tell)


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
) -> None:
    """State, place, GPUs and jobs, by host."""
    if history is not None:
        _host_story(session, history)
        return
    with session.client() as client:
        rows = client.hosts()
    values.known(region, (row.region for row in rows), "region")
    values.known(cluster, (row.cluster for row in rows), "cluster")
    found = [row for row in rows if region in (None, row.region) and cluster in (None, row.cluster)]
    session.show({"hosts": found}, lambda: _say_hosts(found))


def _host_story(session: Session, host: str) -> None:
    with session.client() as client:
        story = client.host_story(host)

    def tell() -> None:
        _say_hosts([story.host])
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


def cordon(
    session: Session,
    hosts: HostsArgument,
    reason: ReasonOption = None,
    until: UntilOption = None,
) -> None:
    """Place no more jobs on hosts; running jobs continue."""
    until_s, why = values.coming_s(until, "--until"), reason or ""
    _put_aside(
        session, hosts, lambda client, host: client.cordon(host, reason=why, until_s=until_s)
    )


def uncordon(session: Session, hosts: HostsArgument, reason: ReasonOption = None) -> None:
    """Let hosts take work again."""
    _put_aside(session, hosts, lambda client, host: client.uncordon(host, reason=reason or ""))


def drain(
    session: Session,
    hosts: HostsArgument,
    now: Annotated[
        bool, typer.Option("--now", help="Also stop jobs that have nowhere else to run yet.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show which jobs would move, and where.")
    ] = False,
    reason: ReasonOption = None,
    until: UntilOption = None,
) -> None:
    """Cordon hosts, and move their jobs to other hosts.

    A job moves as soon as it has another place in the region, and goes on there from its
    checkpoint. One that may not be preempted runs to its end. What stays, and why, is shown here
    and by `topmast hosts`.
    """
    until_s, why = values.coming_s(until, "--until"), reason or ""
    with session.client() as client:
        regions = _regions_of(client, hosts)
        beside = {
            name: [other for other in regions if other != name and regions[other] == regions[name]]
            for name in regions
        }
        if dry_run:
            plans = [client.drain_plan(name, also=beside[name]) for name in regions]
            session.show({"drains": plans}, lambda: _say_drains(plans, at_once=now))
            return
        # One order for all hosts of a region: none of them is a place for what leaves another.
        for region in dict.fromkeys(regions.values()):
            first = next(name for name in regions if regions[name] == region)
            client.drain(first, now=now, also=beside[first], reason=why, until_s=until_s)
        found = [row for row in client.hosts() if row.name in regions]
        session.show({"hosts": found}, lambda: _say_hosts(found))


def _put_aside(
    session: Session, names: Sequence[str], act: Callable[[Client, str], HostView]
) -> None:
    with session.client() as client:
        known = _regions_of(client, names)
        with for_each(list(known)) as attempt:
            found = attempt(lambda name: act(client, name))
            if found:
                session.show({"hosts": found}, lambda: _say_hosts(found))


def _regions_of(client: Client, names: Sequence[str]) -> dict[str, str]:
    """The region of each of these hosts.

    Raises an error that names all that do not exist: a misspelt name is found before any host is
    changed.
    """
    regions = {row.name: row.region for row in client.hosts()}
    with for_each(names) as attempt:
        known = attempt(lambda name: values.required(name, regions, "host"))
    return {name: regions[name] for name in known}


def _say_hosts(found: Sequence[HostView]) -> None:
    rows: list[Row] = [
        [
            row.name, row.region, row.cluster,
            Cell(row.state, _HOST_STYLES.get(row.state, ""))
            if row.reachable
            else Cell(f"{row.state}, unreachable", "red"),
            row.gpu_model, number(row.free_gpus), str(row.gpus),
            row.datacenter, row.pod, row.rack, _listed(row.jobs),
        ]
        for row in found
    ]  # fmt: skip
    say_table(_HOST_COLUMNS, rows)
    for row in found:
        for job, why in row.stays.items():
            say(f"{job} is still on {row.name}: {why}")
        if row.closed:
            say(f"{row.name} is closed by its cluster: {row.closed}")
        for job in row.kept_for:
            say(f"GPUs of {row.name} are kept for {job}, which is being moved there")


def _say_drains(plans: Sequence[DrainView], at_once: bool) -> None:
    columns = [
        Column("JOB", whole=True), Column("FROM"), Column("TO"), Column("COSTS GPU-S", right=True),
        Column("WHY NOT"),
    ]  # fmt: skip
    rows: list[Row] = [
        [
            move.job, _listed(move.hosts),
            f"{move.to_cluster}: {_listed(move.to_hosts)}" if move.moves else "",
            f"{move.cost_gpu_s:.0f}",
            move.why
            + (": is stopped, and waits" if at_once and move.may_stop and move.why else ""),
        ]
        for move in {move.job: move for plan in plans for move in plan.moves}.values()
    ]  # fmt: skip
    if rows:
        say_table(columns, rows)
    for plan in plans:
        if not plan.moves:
            say(f"nothing runs on {plan.host}")


def _listed(jobs: Sequence[str]) -> str:
    if len(jobs) > 8:
        return f"{','.join(jobs[:6])} and {plural(len(jobs) - 6, 'more', 'more')}"
    return ",".join(jobs)
