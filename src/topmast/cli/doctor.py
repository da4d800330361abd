"""`doctor`: what a server would stumble over. The root looks; this shows what it found."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from topmast.cli.command import FOLDER, Session, command
from topmast.cli.output import Column, say, say_table
from topmast.cli.rootoptions import DoctorOptions
from topmast.cli.text import plural

FAULT = "fault"


def add(app: typer.Typer) -> None:
    """Add the command."""

    @command(
        app, "doctor", asks=FOLDER,
        example="topmast doctor\ntopmast doctor --fleet fleet.yaml\n"
        "topmast doctor --fleet fleet.yaml --store postgresql://db1/topmast --json",
    )  # fmt: skip
    def doctor(
        session: Session,
        fleet: Annotated[
            Path | None, typer.Option(metavar="FILE", help="Ask each of its clusters, too.")
        ] = None,
        store: Annotated[
            str | None, typer.Option(metavar="URL", help="Ask this database, too.")
        ] = None,
    ) -> int:
        """Check a machine, a database and the clusters of a fleet file before a server uses them.

        Nothing is started or changed. With a fault the exit code is 1.
        """
        options = DoctorOptions(state=session.state_folder(), fleet=fleet, store=store)
        document = session.root.doctor(options)
        session.show(document, lambda: _say(document))
        return 1 if document["faults"] else 0


def _say(document: dict[str, Any]) -> None:
    findings = document["findings"]
    columns = [Column("WHERE"), Column("WHAT"), Column("FINDING"), Column("DETAIL")]
    say_table(columns, [(f["where"], f["what"], f["level"], f["detail"]) for f in findings])
    for finding in findings:
        if finding["remedy"]:
            say(f"{finding['where']}, {finding['what']}: {finding['remedy']}")
    faults = document["faults"]
    say(plural(faults, FAULT) if faults else "no faults")
