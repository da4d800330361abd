"""`reproduce`: published experiments, run anew on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from topmast.cli.command import NOTHING, Session, command
from topmast.cli.completion import complete_experiments
from topmast.cli.output import Column, note, say, say_table, warn
from topmast.experiments.names import experiment_names

EXPERIMENTS = ", ".join(experiment_names())


def add(app: typer.Typer) -> None:
    """Add the command."""
    command(
        app, "reproduce", asks=NOTHING,
        example="topmast reproduce mast-balance\n"
        "topmast reproduce mast-balance mast-federated --scale full --seeds 5 --out results/",
    )(reproduce)  # fmt: skip


def reproduce(
    session: Session,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help=f"Experiments: {EXPERIMENTS}.",
            autocompletion=complete_experiments,
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write tables, plots and a page.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", metavar="N", help="Run with the seeds 1 to N.")
    ] = None,
    scale: Annotated[
        str, typer.Option("--scale", metavar="small|full", help="How much to run.")
    ] = "small",
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            min=1,
            metavar="N",
            help="The number of runs at a time; one per core by default.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            envvar="TOPMAST_DATA",
            show_envvar=False,
            help="Published traces, else $TOPMAST_DATA; without them, generated ones.",
        ),
    ] = None,
) -> None:
    """Run published experiments and compare."""
    from topmast.experiments.reproduce import ReproduceOptions
    from topmast.experiments.reproduce import reproduce as run

    if data is not None and not data.is_dir():
        raise typer.BadParameter(f"{data} is not a folder", param_hint="'--data'")
    options = ReproduceOptions(scale=scale, seeds=seeds, out=out, workers=workers, data=data)
    document = run(names, options, note)
    for warning in document["warnings"]:
        warn(warning)
    session.show(document, lambda: say_experiments(document))


def say_experiments(document: Mapping[str, Any]) -> None:
    """For each experiment: published and ours, then the figures of every contender."""
    from topmast.experiments.page import made_by, size_of

    for name, found in document["experiments"].items():
        seeds = ", ".join(str(seed) for seed in found["seeds"])
        say(f"{name}: {size_of(found)}, seeds {seeds}, {made_by(found)}")
        say()
        _say_checks(found["checks"])
        _say_figures(found["means"])


def _say_checks(checks: list[Mapping[str, Any]]) -> None:
    if not checks:
        return
    from topmast.experiments.checks import figure
    from topmast.experiments.page import VERDICTS, not_compared

    titles = ("CASE", "FIGURE", "PUBLISHED", "PUBLIC CODE", "WANTED", "OURS", "")
    rows = [
        [c["case"], c["figure"], c["published"], figure(c["public"]), c["wanted"],
         figure(c["ours"], c["at_least"], c["at_most"]), VERDICTS[c["reached"]]]
        for c in checks
    ]  # fmt: skip
    say_table([Column(title) for title in titles], rows)
    for line in not_compared(checks):
        say(line)
    say()


def _say_figures(means: list[Mapping[str, Any]]) -> None:
    from topmast.experiments.checks import figure

    rows = []
    for m in means:
        for name, value in m["figures"].items():
            half = value["ci95"]
            spread = "" if half is None else f"± {figure(half)}"
            rows.append([m["label"], name, figure(value["mean"]), spread])
    columns = [Column("CASE"), Column("FIGURE"), Column("MEAN", right=True), Column("95%")]
    say_table(columns, rows)
    say()
