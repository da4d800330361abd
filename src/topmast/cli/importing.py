"""`topmast import`: job files of the files of other schedulers."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from topmast.cli.command import NOTHING, Session, command, group
from topmast.cli.documents import as_yaml
from topmast.cli.jobsource import STDIN
from topmast.cli.output import note, say_block
from topmast.importers import IMPORTERS, Importer

StrictOption = Annotated[
    bool, typer.Option("--strict", help="Fail if anything is lost, or means something else here.")
]


def add(app: typer.Typer) -> None:
    """Add a command for each kind of file."""
    made = group(
        app, "import",
        example="topmast import sbatch train.sbatch > job.yaml\n"
        "topmast import skypilot task.yaml | topmast launch -",
    )  # fmt: skip
    for name, importer in IMPORTERS.items():
        _add(made, name, importer)


def _add(app: typer.Typer, name: str, importer: Importer) -> None:
    def convert(
        session: Session,
        file: Annotated[Path, typer.Argument(metavar="FILE", help="The file; - reads stdin.")],
        strict: StrictOption = False,
    ) -> int:
        return _import(session, importer, file, strict)

    convert.__doc__ = f"""Make a job file of {importer.what}.

    What is lost, or means something else here, is said on stderr with its line and what to do.
    """
    example = f"topmast import {name} {importer.example} > job.yaml"
    command(app, name, asks=NOTHING, example=example)(convert)


def _import(session: Session, importer: Importer, file: Path, strict: bool) -> int:
    from topmast.model.files.jobfile import parse_job
    from topmast.model.files.source import JOB_LIMITS, read_bytes
    from topmast.model.units import show

    where = str(file) if str(file).isprintable() else show(str(file))
    if str(file) == STDIN:
        where, data = "standard input", sys.stdin.buffer.read(JOB_LIMITS.bytes + 1)
    else:
        data = read_bytes(file, where, JOB_LIMITS, importer.what)
    found = importer.read(data, where)
    for one in found.notes:
        note(one.of(where))
    jobs, before = (found.job, *found.more), Counter[str]()
    for job in jobs:
        parse_job(job, where=f"the job file of {where}", before=before)
        before[job.get("name", "")] += 1
    session.show(found, lambda: say_block("\n---\n".join(map(as_yaml, jobs))))
    return int(strict and bool(found.notes))
