"""`bench submit`: how fast jobs are accepted."""

from __future__ import annotations

from typing import Annotated

import typer

from topmast.cli.command import FOLDER, Session, command
from topmast.cli.documents import say_document
from topmast.cli.loadoptions import LoadOptions


def add(bench: typer.Typer) -> None:
    """Add the command."""

    @command(
        bench, "submit", asks=FOLDER,
        example="topmast bench submit --jobs 10000\n"
        "topmast bench submit --store postgresql:///empty",
    )  # fmt: skip
    def submit(
        session: Session,
        load: LoadOptions = LoadOptions(),
        store: Annotated[
            str | None,
            typer.Option(metavar="URL", help="An empty database in PostgreSQL for the journal."),
        ] = None,
    ) -> None:
        """Measure how fast jobs are accepted."""
        document = session.root.bench("submit", load.bench(session, store=store))
        session.show(document, lambda: say_document(document))
