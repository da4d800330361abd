"""`calibrate`: the times of the simulated world, fitted to jobs that really ran."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from topmast.cli.command import NOTHING, Session, command
from topmast.cli.completion import complete_profiles
from topmast.cli.output import Column, note, say, say_fields, say_table
from topmast.cli.simulate import TraceOptions

if TYPE_CHECKING:
    from topmast.experiments.calibrate import Calibration, Error


def add(app: typer.Typer) -> None:
    """Add the command."""
    command(
        app, "calibrate", asks=NOTHING,
        example="topmast calibrate --trace jobs.csv --fleet fleet.yaml --measured run/jobs.csv "
        "--profile fifo --write cluster.set\n"
        "topmast simulate --trace more.csv --fleet fleet.yaml --set @cluster.set",
    )(calibrate)  # fmt: skip


def calibrate(
    session: Session,
    options: TraceOptions,
    measured: Annotated[
        Path,
        typer.Option(metavar="JOBS.csv", help="When those jobs really began and ended."),
    ],
    profile: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The policies they ran with.", autocompletion=complete_profiles
        ),
    ] = "mast",
    fit: Annotated[
        str | None,
        typer.Option(
            metavar="KEY,KEY,...",
            help="What is fitted; by default starts, restores and checkpoints, and the speeds of "
            "GPU models that JOBS.csv names.",
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the settings there, for --set @FILE."),
    ] = None,
) -> None:
    """Fit the times of starts and checkpoints, and speeds, to jobs that really ran.

    Half of the jobs are held out of the search, and tell how good it is. With --out the calibrated
    run is written like one of simulate.
    """
    from topmast.experiments.calibrate import calibrate as run

    names = None
    if fit is not None:
        names = tuple(name.strip() for name in fit.split(",") if name.strip())
    found = run(options.of(profile), measured, write, names, _tell)
    session.show(found, lambda: _say(found))


def _tell(runs: int, loss: float) -> None:
    if runs % 10 == 0:
        note(f"{runs} simulations; the search's jobs are {loss:.1%} off")


def _say(found: Calibration) -> None:
    say_fields((name, f"{value:g}") for name, value in found.settings.items())
    say()
    titles = ("", "MEAN", "P50", "P99", "MAKESPAN", "BY JOB", "CORRELATION")
    rows = [
        _row("all jobs, before", found.before),
        _row("all jobs, after", found.after),
        _row("held out, before", found.held_out_before),
        _row("held out, after", found.held_out_after),
    ]
    say_table([Column(title, right=bool(title)) for title in titles], rows)
    if found.unseen:
        say(f"these jobs do not show {', '.join(found.unseen)}, which stay as they were")
    left = f"; {found.unmatched} are in one table only" if found.unmatched else ""
    say(f"{found.jobs} jobs{left}; {found.runs} simulations")


def _row(title: str, error: Error) -> list[str]:
    share = [error.mean, error.p50, error.p99, error.makespan]
    correlation = "-" if error.correlation is None else f"{error.correlation:.3f}"
    return [title, *(f"{x:+.1%}" for x in share), f"{error.by_job:.1%}", correlation]
