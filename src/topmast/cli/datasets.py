"""`datasets`: what there is, where it is, and where it should be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from topmast.cli import values
from topmast.cli.actoptions import ActOptions
from topmast.cli.command import Session, command, group
from topmast.cli.completion import complete_datasets, complete_regions
from topmast.cli.output import Column, note, say, say_table
from topmast.cli.text import plural

if TYPE_CHECKING:
    from topmast.model.plan_views import DataPlanView
    from topmast.model.views import CopyView, DatasetView

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATASET", help="The name of a dataset.", autocompletion=complete_datasets
    ),
]
RegionArgument = Annotated[
    str, typer.Argument(metavar="REGION", help="A region.", autocompletion=complete_regions)
]


def add(app: typer.Typer) -> None:
    """Add the group of commands."""
    made = group(
        app, "datasets", alone=list_all,
        example="topmast datasets\ntopmast datasets replicate imagenet west",
    )  # fmt: skip
    command(made, "ls", example="topmast datasets ls --json")(list_all)
    command(
        made, "add", example="topmast datasets add imagenet --region east --source ./imagenet\n"
        "topmast datasets add logs --region eu --allowed eu --allowed eu-2",
    )(add_one)  # fmt: skip
    command(made, "replicate", example="topmast datasets replicate imagenet west")(replicate)
    command(made, "drop", example="topmast datasets drop imagenet west")(drop)
    command(made, "rm", example="topmast datasets rm imagenet")(remove)
    command(made, "plan", example="topmast datasets plan")(plan)
    command(made, "why", example="topmast datasets why imagenet")(why)


def list_all(session: Session) -> None:
    """List datasets, replicas and copies in progress."""
    with session.client() as client:
        found = client.datasets()
    session.show({"datasets": found}, lambda: _say(found))


def add_one(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="DATASET", help="A name for it.")],
    region: Annotated[
        str,
        typer.Option(
            metavar="REGION", help="The region that stores it.", autocompletion=complete_regions
        ),
    ],
    path: Annotated[
        str | None, typer.Option(metavar="PATH", help="Its path in the store of the region.")
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A folder of the server's machine to copy to the region."),
    ] = None,
    allowed: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REGION", help="A region that may hold it; repeat it. Default: those of the "
            "fleet file if it names the dataset, else any region.",
            autocompletion=complete_regions,
        ),
    ] = None,
    min_replicas: Annotated[
        int | None,
        typer.Option(min=1, help="How many regions should hold it at least. Default: 1, or as the "
                     "fleet file says."),
    ] = None,
    options: ActOptions = ActOptions(),
) -> None:  # fmt: skip
    """Add a dataset to the catalogue.

    It comes from a folder, or is in the region's store already.
    """
    with session.client() as client:
        added = client.add_dataset(
            name, region, path=path, source=source, allowed=allowed or None,
            min_replicas=min_replicas, **options.given,
        )  # fmt: skip
    options.tell()
    session.show(added, lambda: _say([added]))


def replicate(
    session: Session,
    name: NameArgument,
    region: RegionArgument,
    options: ActOptions = ActOptions(),
) -> None:
    """Copy a dataset to a region.

    The copy goes on by itself; `topmast datasets` shows how far it is.
    """
    with session.client() as client:
        view = client.replicate(name, region, **options.given)
    options.tell()
    session.show(view, lambda: _say([view]))
    if any(copy.target == region for copy in view.copies):
        note(f"{name} is being copied to {region}")


def drop(
    session: Session,
    name: NameArgument,
    region: RegionArgument,
    options: ActOptions = ActOptions(),
) -> None:
    """Drop the replica of a dataset in a region."""
    with session.client() as client:
        view = client.drop(name, region, **options.given)
    options.tell()
    session.show(view, lambda: _say([view]))


def remove(session: Session, name: NameArgument, options: ActOptions = ActOptions()) -> None:
    """Forget a dataset and delete all its replicas.

    Its name and its path can be used again then.
    """
    with session.client() as client:
        view = client.remove_dataset(name, **options.given)
    options.tell()
    where = f"it {'is' if options.dry_run else 'was'} in {plural(len(view.replicas), 'region')}"
    session.show(view, lambda: note(f"{name} {options.passive('removed')}; {where}"))


def plan(session: Session) -> None:
    """The plan of where data lies: how good it is, how far it is carried out, what went wrong."""
    with session.client() as client:
        view = client.data_plan()
    session.show(view, lambda: _say_plan(view))


def why(session: Session, name: NameArgument) -> None:
    """Why a dataset is where it is, region by region."""
    with session.client() as client:
        rows = {row.name: row for row in client.datasets()}
        view = rows[values.required(name, rows, "dataset")]
        planned = session.json or client.data_plan().number is not None
    session.show(view, lambda: _say_why(view, planned))


def _say_why(view: DatasetView, planned: bool) -> None:
    causes = {copy.target: f"copied for {copy.cause}" for copy in view.copies}
    columns = [Column("REGION", whole=True), Column("STATE"), Column("WHY")]
    unplanned = "not in the plan" if planned else "there is no plan: `topmast datasets plan`"
    rows = [[r.region, r.state, r.why or causes.get(r.region, unplanned)] for r in view.replicas]
    if rows:
        say_table(columns, rows)
    else:
        region = view.allowed[0] if view.allowed else "REGION"
        add = f"`topmast datasets add {view.name} --region {region} --source FOLDER`"
        say(f"No region has its files: {add} brings them into one.")


def _say_plan(view: DataPlanView) -> None:
    if view.fetched or view.fetched_most is not None:
        most = "" if view.fetched_most is None else f", {view.fetched_most} at most"
        say(f"On demand: data was copied for {plural(view.fetched, 'job')} of late{most}")
    if view.every_s is None:
        say("There is no data plan: start the server with `topmast up --plan-data-every 1d`.")
        return
    if view.number is None:
        say("There is no plan yet.")
    else:
        figures = view.figures
        gap = "no bound" if figures["gap"] is None else f"gap {figures['gap']:.2%}"
        worst, more = figures["max_demand_supply"], figures["replication_overhead"]
        say(
            f"Plan {view.number}: {gap}, worst demand/supply {worst:.2f}, "
            f"{more:.0%} bytes beyond the minimum"
        )
        say(
            f"Moves: {view.done} done, {view.copies_in_flight} copies under way, "
            f"{view.copies_left} to come, {view.drops_left} drops to come"
        )
    for text in view.given_up:
        say(f"Given up: {text}")
    if view.trouble is not None:
        say(f"The last plan failed: {view.trouble}")


def _say(found: Sequence[DatasetView]) -> None:
    from topmast.model.units import format_bytes

    columns = [
        Column("DATASET", whole=True), Column("SIZE", right=True), Column("REPLICAS"),
        Column("MIN", right=True), Column("ALLOWED"), Column("COPIES"), Column("PATH", spare=1),
    ]  # fmt: skip
    rows = [
        [
            row.name,
            format_bytes(row.size_bytes),
            ",".join(
                replica.region + ("" if replica.state == "complete" else f" ({replica.state})")
                for replica in row.replicas
            ),
            str(row.min_replicas),
            "any" if row.allowed is None else ",".join(row.allowed),
            ", ".join(_copy(copy) for copy in row.copies),
            row.path,
        ]
        for row in found
    ]
    say_table(columns, rows)


def _copy(copy: CopyView) -> str:
    share = copy.done_bytes / copy.bytes if copy.bytes else 1.0
    return f"{copy.source}->{copy.target} {share:.0%}"
