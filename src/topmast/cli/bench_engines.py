"""`bench engines`: the clusters of a site, beside the tools that it has without Topmast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from topmast.cli.command import FOLDER, Session, command
from topmast.cli.output import Column, say_table
from topmast.cli.rootoptions import BenchOptions


def add(app: typer.Typer) -> None:
    """Add the command to those of `bench`."""

    @command(
        app, "engines", asks=FOLDER,
        example="topmast bench engines --fleet fleet.yaml --json\n"
        "topmast bench engines --fleet fleet.yaml --cluster hpc --gangs 200",
    )  # fmt: skip
    def engines(
        session: Session,
        fleet: Annotated[Path, typer.Option(metavar="FILE", help="The fleet file of the site.")],
        cluster: Annotated[
            list[str] | None,
            typer.Option(metavar="NAME", help="Only this cluster; may be repeated."),
        ] = None,
        starts: Annotated[
            int, typer.Option(min=1, help="Gangs that start one after the other.")
        ] = 10,
        gangs: Annotated[int, typer.Option(min=1, help="Gangs that are ordered at once.")] = 50,
        tasks: Annotated[
            int, typer.Option(min=1, help="Tasks of each gang, each on a host of its own.")
        ] = 2,
        jobs: Annotated[
            int, typer.Option(min=0, help="Jobs that the scheduler has when it is listed.")
        ] = 1_000,
        home: Annotated[
            str,
            typer.Option(metavar="ADDRESS", help="Where the hosts reach this machine."),
        ] = "",
    ) -> None:
        """Measure how fast real clusters start gangs, beside their own tools.

        It runs small gangs without GPUs on the hosts of the fleet file, and leaves nothing behind.
        """
        options = BenchOptions(
            fleet=fleet, names=tuple(cluster or ()), starts=starts, gangs=gangs, tasks=tasks,
            jobs=jobs, home=home, state=session.state, json=session.json,
        )  # fmt: skip
        document = session.root.bench("engines", options)
        session.show(document, lambda: _say(document))


def _say(document: Any) -> None:
    titles = ("CLUSTER", "ENGINE", "P50", "P99", "BARE P50", "BARE P99", "STARTS/S", "BARE/S",
              "LISTING", "BARE LISTING")  # fmt: skip
    columns = [Column(title, right=index > 1) for index, title in enumerate(titles)]
    say_table(columns, [_cells(row) for row in document["rows"]])


def _cells(row: dict[str, Any]) -> list[str]:
    seconds = ("latency_p50_s", "latency_p99_s", "bare_p50_s", "bare_p99_s")
    listings = ("listing_s", "bare_listing_s")
    return [
        row["cluster"], row["engine"], *(f"{row[name]:.2f} s" for name in seconds),
        f"{row['starts_per_s']:.1f}", f"{row['bare_starts_per_s']:.1f}",
        *("-" if row[name] is None else f"{row[name]:.3f} s" for name in listings),
    ]  # fmt: skip
