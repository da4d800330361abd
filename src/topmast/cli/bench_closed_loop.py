"""`bench closed-loop`: real jobs on this machine, each run foretold by the simulator before."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from topmast.cli.command import FOLDER, Session, command
from topmast.cli.completion import complete_profiles
from topmast.cli.output import Column, say, say_fields, say_table
from topmast.cli.rootoptions import BenchOptions


class LoopEngine(StrEnum):
    """Of the clusters."""

    LOCAL = "local"
    SLURM = "slurm"


def add(app: typer.Typer) -> None:
    """Add the command to those of `bench`."""

    @command(
        app, "closed-loop", asks=FOLDER,
        example="topmast bench closed-loop --json\n"
        "topmast bench closed-loop --jobs 50 --profile srtf --out loop/\n"
        "topmast bench closed-loop --engine slurm --json",
    )  # fmt: skip
    def closed_loop(
        session: Session,
        engine: Annotated[
            LoopEngine, typer.Option(help="What starts the jobs; slurm: a cluster made for this.")
        ] = LoopEngine.LOCAL,
        jobs: Annotated[int, typer.Option(min=8, help="Jobs of each run.")] = 200,
        profile: Annotated[
            list[str] | None,
            typer.Option(
                metavar="NAME",
                help="The policies of a run; may be repeated.",
                autocompletion=complete_profiles,
            ),
        ] = None,
        seed: Annotated[int, typer.Option(min=0, help="The seed of all random numbers.")] = 0,
        out: Annotated[
            Path | None, typer.Option(metavar="DIR", help="Write the figures there.")
        ] = None,
    ) -> None:
        """Measure how far simulations are off, against real jobs that sleep.

        The simulator is calibrated on one run of other jobs. Each run takes about two minutes.
        """
        options = BenchOptions(
            engine=engine.value, jobs=jobs, seed=seed, out=out,
            profiles=tuple(profile) if profile else None,
            state=session.state, json=session.json,
        )  # fmt: skip
        document = session.root.bench("closed-loop", options)
        session.show(document, lambda: _say(document))


def _say(document: Any) -> None:
    say_fields((name, f"{value:g}") for name, value in document["settings"].items())
    say()
    titles = ("PROFILE", "", "MEAN", "P50", "P99", "MAKESPAN", "BY JOB", "CORR.")
    rows = [
        _row(name, when, run[when])
        for name, run in document["profiles"].items()
        for when in ("before", "after")
    ]
    say_table([Column(title, right=index > 1) for index, title in enumerate(titles)], rows)
    say()
    met = "all" if document["within_5_pct"] else "not all"
    say(f"{met} within 5% in mean time and makespan")


def _row(name: str, when: str, error: Any) -> list[str]:
    shares = [error[key] for key in ("mean", "p50", "p99", "makespan")]
    correlation = error["correlation"]
    return [
        name, when, *(f"{share:+.1%}" for share in shares), f"{error['by_job']:.1%}",
        "-" if correlation is None else f"{correlation:.3f}",
    ]  # fmt: skip
