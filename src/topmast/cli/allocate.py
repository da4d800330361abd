"""`allocate`: one solve of a policy that shares time, on its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from topmast.cli.command import NOTHING, Session, command
from topmast.cli.output import Column, say, say_fields, say_table
from topmast.cli.text import number

FAILED = 1
NAMES = (
    "max-min-fairness, finish-time-fairness, makespan, max-throughput, min-cost, min-cost-slo, "
    "fifo, sjf, hierarchical or allox"
)


def add(app: typer.Typer) -> None:
    """Add the command."""
    command(
        app, "allocate", asks=NOTHING,
        example="topmast allocate --policy max-min-fairness problem.json\n"
        "topmast allocate --policy makespan --agnostic problem.json --json",
    )(allocate)  # fmt: skip


def allocate(
    session: Session,
    problem: Annotated[
        Path, typer.Argument(metavar="PROBLEM.json", help="Workers, jobs, pairs, costs, entities.")
    ],
    policy: Annotated[str, typer.Option("--policy", metavar="NAME", help=f"One of {NAMES}.")],
    agnostic: Annotated[
        bool, typer.Option("--agnostic", help="Ignore types: treat every type as the fastest.")
    ] = False,
) -> int:
    """Share the time of workers among jobs.

    Solves one problem under one policy, and prints which job runs for which fraction of the time on
    which type of worker.
    """
    from topmast.service.allocation import allocate_file

    document = allocate_file(problem, policy, agnostic=agnostic)
    session.show(document, lambda: _say(document))
    return 0 if document["status"] == "optimal" else FAILED


def _say(document: Mapping[str, Any]) -> None:
    objective = document["objective"]
    shown = "-" if objective is None else number(objective)
    say_fields(
        [("policy", document["policy"]), ("status", document["status"]), ("objective", shown),
         ("took", f"{number(document['wall_s'])} s"),
         ("violated", ", ".join(document.get("violated", [])))]
    )  # fmt: skip
    allocation = document["allocation"]
    if not allocation:
        return
    say()
    kinds = list(dict.fromkeys(kind for row in allocation.values() for kind in row))
    levels = document.get("levels")
    titles = [Column("JOBS", whole=True), *(Column(kind, right=True) for kind in kinds)]
    rows = []
    for name, row in allocation.items():
        cells = [f"{row[kind]:.4f}" if kind in row else "" for kind in kinds]
        rows.append([name, *cells])
    say_table(titles, rows)
    if levels:
        say()
        columns = [Column("JOB", whole=True), Column("LEVEL", right=True)]
        say_table(columns, [[name, number(level)] for name, level in levels.items()])
