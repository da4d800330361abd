"""`bench plan-capacity` and `bench mover`: what the slow path does beside plans of data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from topmast.cli import values
from topmast.cli.command import FOLDER, Session, command
from topmast.cli.output import Column, say, say_table
from topmast.cli.rootoptions import BenchOptions

Seed = Annotated[int, typer.Option(help="The seed of generated data.")]


def add(app: typer.Typer) -> None:
    """Add the commands to those of `bench`."""

    @command(
        app, "plan-capacity", asks=FOLDER,
        example="topmast bench plan-capacity --json\n"
        "topmast bench plan-capacity --hosts 10000 --clusters 40",
    )  # fmt: skip
    def plan_capacity(
        session: Session,
        hosts: Annotated[int | None, typer.Option(min=1, help="Hosts.")] = None,
        clusters: Annotated[int | None, typer.Option(min=1, help="Clusters.")] = None,
        domains: Annotated[int | None, typer.Option(min=1, help="Fault domains.")] = None,
        duration: Annotated[str | None, typer.Option(metavar="TIME", help="For each plan.")] = None,
        seed: Seed = 0,
        out: Annotated[
            Path | None, typer.Option(metavar="DIR", help="Write the figures there.")
        ] = None,
    ) -> None:
        """Measure the gap of capacity plans, and how long they take."""
        options = BenchOptions(
            hosts=hosts, clusters=clusters, domains=domains, seed=seed, out=out,
            duration_s=values.duration_s(duration, "--duration"),
            state=session.state, json=session.json,
        )  # fmt: skip
        document = session.root.bench("plan-capacity", options)
        session.show(document, lambda: _say_plans(document))

    @command(
        app, "mover", asks=FOLDER,
        example="topmast bench mover --json\ntopmast bench mover --size 4GB --files 100",
    )  # fmt: skip
    def mover(
        session: Session,
        size: Annotated[str | None, typer.Option(metavar="SIZE", help="Bytes in all.")] = None,
        files: Annotated[int | None, typer.Option(min=1, help="The number of files.")] = None,
        seed: Seed = 0,
    ) -> None:
        """Measure how fast data is copied, beside a plain copy that hashes and syncs."""
        options = BenchOptions(
            size_bytes=values.size_bytes(size, "--size"), files=files, seed=seed,
            state=session.state, json=session.json,
        )  # fmt: skip
        document = session.root.bench("mover", options)
        session.show(document, lambda: _say_mover(document))


def _say_plans(document: Any) -> None:
    names = ("ASKED", "OBJECTIVE", "GAP", "SECONDS", "CPU")
    rows = [
        [
            f"{row['asked']:.2f}", f"{row['objective']:,.1f}",
            "-" if row["gap"] is None else f"{row['gap']:.4%}",
            f"{row['wall_s']:.1f}", f"{row['cpu_s']:.1f}",
        ]
        for row in document["rows"]
    ]  # fmt: skip
    say_table([Column(name, right=True) for name in names], rows)


def _say_mover(document: Any) -> None:
    say(
        f"{document['mover_mb_per_s']:.0f} MB/s, "
        f"a plain copy {document['plain_mb_per_s']:.0f} MB/s: "
        f"{document['share']:.0%} of it, with {document['grown_bytes'] / 1e6:.0f} MB of memory"
    )
