"""`bench policies` and `bench predict`: how fast shares are solved, and durations predicted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from topmast.cli.command import FOLDER, Session, command
from topmast.cli.documents import say_document
from topmast.cli.rootoptions import BenchOptions


def add(app: typer.Typer) -> None:
    """Add the commands to those of `bench`."""

    @command(
        app, "policies", asks=FOLDER,
        example="topmast bench policies --json\n"
        "topmast bench policies --jobs 2048 --throughputs simulation_throughputs.json",
    )  # fmt: skip
    def policies(
        session: Session,
        jobs: Annotated[
            int | None, typer.Option(min=1, help="Only problems with this number of jobs.")
        ] = None,
        throughputs: Annotated[
            Path | None,
            typer.Option(metavar="FILE", help="Draw jobs from Gavel's table of throughputs too."),
        ] = None,
        peer: Annotated[
            bool, typer.Option(help="Solve the same with cvxpy, where that is installed.")
        ] = True,
        seed: Annotated[int, typer.Option(min=0, help="The seed of all random numbers.")] = 0,
    ) -> None:
        """Measure how fast policies that share time are solved."""
        options = BenchOptions(
            jobs=jobs, seed=seed, json=session.json, throughputs=throughputs, peer=peer
        )
        document = session.root.bench("policies", options)
        session.show(document, lambda: say_document(document))

    @command(app, "predict", asks=FOLDER, example="topmast bench predict --jobs 60000 --json")
    def predict(
        session: Session,
        jobs: Annotated[int, typer.Option(min=200, help="Jobs of the past.")] = 60_000,
        seed: Annotated[int, typer.Option(min=0, help="The seed of all random numbers.")] = 0,
    ) -> None:
        """Measure how fast durations are learned and predicted."""
        document = session.root.bench(
            "predict", BenchOptions(jobs=jobs, seed=seed, json=session.json)
        )
        session.show(document, lambda: say_document(document))
