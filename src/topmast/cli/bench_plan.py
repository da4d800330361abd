"""`bench plan-data`: how good data plans are, how fast, with HiGHS alone beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from topmast.cli import values
from topmast.cli.command import FOLDER, Session, command
from topmast.cli.output import Column, say_table
from topmast.cli.rootoptions import BenchOptions

NAMES = ("sparse", "dense", "large")


def add(app: typer.Typer) -> None:
    """Add the command to those of `bench`."""

    @command(
        app, "plan-data", asks=FOLDER,
        example="topmast bench plan-data --only sparse --json\n"
        "topmast bench plan-data --out plan-data/",
    )  # fmt: skip
    def plan_data(
        session: Session,
        only: Annotated[
            list[str] | None,
            typer.Option("--only", metavar="NAME", help="sparse, dense or large; may be repeated."),
        ] = None,
        duration: Annotated[
            str | None,
            typer.Option(metavar="TIME", help="For each plan, instead of its own limit."),
        ] = None,
        peer: Annotated[bool, typer.Option(help="Also solve each problem with HiGHS only.")] = True,
        seed: Annotated[int, typer.Option(help="The seed of the problems.")] = 0,
        out: Annotated[
            Path | None, typer.Option(metavar="DIR", help="Write the figures and plots there.")
        ] = None,
    ) -> None:
        """Measure the gap of data plans against time, and how fast a plan is made again."""
        for name in only or ():
            if name not in NAMES:
                raise typer.BadParameter(f"{name!r} is not one of: {', '.join(NAMES)}")
        options = BenchOptions(
            seed=seed, duration_s=values.duration_s(duration, "--duration"), peer=peer, out=out,
            cases=tuple(NAMES.index(name) for name in only) if only else None,
            state=session.state, json=session.json,
        )  # fmt: skip
        document = session.root.bench("plan-data", options)
        session.show(document, lambda: _say(document))


def _say(document: Any) -> None:
    """A row for each problem."""
    titles = (
        "PROBLEM",
        "GAP",
        "CONTROLLABLE",
        "SECONDS",
        "CPU",
        "D/S",
        "HIGHS GAP",
        "AGAIN S",
        "GAP",
    )
    rows = []
    for row in document["rows"]:
        again, peer = row["replan"], row["peer"] or {"gap": None}
        rows.append(
            [
                f"{row['kind']} {row['tables']} x {row['workloads']} x {row['regions']}",
                *(_share(row[name]) for name in ("gap", "controllable_gap")),
                f"{row['wall_s']:.1f}", f"{row['cpu_s']:.1f}", f"{row['max_demand_supply']:.2f}",
                _share(peer["gap"]), f"{again['wall_s']:.2f}", _share(again["gap"]),
            ]
        )  # fmt: skip
    say_table([Column(title, right=title != "PROBLEM") for title in titles], rows)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3%}"
