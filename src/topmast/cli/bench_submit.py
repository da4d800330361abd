"""`bench submit`: how fast jobs are accepted."""

from __future__ import annotations

from typing import Annotated

import typer

from topmast.cli import values
from topmast.cli.command import FOLDER, Session, command
from topmast.cli.documents import say_document
from topmast.cli.rootoptions import BenchOptions


def add(bench: typer.Typer) -> None:
    """Add the command."""

    @command(
        bench, "submit", asks=FOLDER,
        example="topmast bench submit --jobs 10000\n"
        "topmast bench submit --store postgresql:///empty",
    )  # fmt: skip
    def submit(
        session: Session,
        jobs: Annotated[int | None, typer.Option(min=1, help="How many jobs.")] = None,
        clients: Annotated[int | None, typer.Option(min=1, help="How many at once.")] = None,
        duration: Annotated[
            str | None, typer.Option(metavar="TIME", help="How long, for example 30s.")
        ] = None,
        seed: Annotated[int, typer.Option(help="The seed of all random numbers.")] = 0,
        store: Annotated[
            str | None,
            typer.Option(metavar="URL", help="An empty database in PostgreSQL for the journal."),
        ] = None,
    ) -> None:
        """Measure how fast jobs are accepted."""
        options = BenchOptions(
            jobs=jobs, clients=clients, duration_s=values.duration_s(duration, "--duration"),
            seed=seed, state=session.state, store=store, json=session.json,
        )  # fmt: skip
        document = session.root.bench("submit", options)
        session.show(document, lambda: say_document(document))
