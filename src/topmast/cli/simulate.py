"""`simulate` and `compare`: a trace, a fleet and one profile or several under a virtual clock."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from topmast.cli import values
from topmast.cli.command import NOTHING, Session, command
from topmast.cli.completion import complete_profiles, complete_settings
from topmast.cli.output import Column, note, say, say_fields, say_table, warn
from topmast.cli.text import number

if TYPE_CHECKING:
    from topmast.experiments.run import RunOptions

LINE_S = 10.0
"""How often progress is told where there is no terminal to draw on."""
DRAW_S = 0.2
RATE_S = 30.0
FORMAT_HELP = "The trace's format: topmast, pai, pai-tasks, openb, philly, helios, gavel, ..."


@dataclass(frozen=True)
class TraceOptions:
    """What is run: the options of both commands."""

    trace: Annotated[Path, typer.Option("--trace", metavar="FILE", help="The jobs to run.")]
    fleet: Annotated[
        Path, typer.Option("--fleet", metavar="FILE", help="The fleet to run them on.")
    ]
    format: Annotated[str, typer.Option("--format", metavar="NAME", help=FORMAT_HELP)] = "topmast"
    seed: Annotated[int, typer.Option("--seed", help="The seed of all random numbers.")] = 0
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change an option; may be repeated.",
            autocompletion=complete_settings,
            callback=values.ASSIGNMENTS,
        ),
    ] = None
    overheads: Annotated[
        str,
        typer.Option(
            "--overheads",
            metavar="default|none",
            help="none: starts, checkpoints and restores take no time.",
        ),
    ] = "default"
    throughputs: Annotated[
        Path | None, typer.Option("--throughputs", metavar="FILE", help="A table of throughputs.")
    ] = None
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, metavar="N", help="Only the first N jobs.")
    ] = None
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="T",
            help="Only jobs submitted at this time or later.",
            callback=values.DURATION,
        ),
    ] = None
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="T",
            help="Only jobs submitted before this time.",
            callback=values.DURATION,
        ),
    ] = None
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="T",
            help="End the run at this simulated time.",
            callback=values.DURATION,
        ),
    ] = None
    load: Annotated[
        float, typer.Option("--load", metavar="X", help="Let jobs arrive X times as fast.")
    ] = 1.0
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Leave out rows that cannot be read.")
    ] = False
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Write tables and the summary there."),
    ] = None

    def of(self, profile: str, record: Path | None = None) -> RunOptions:
        """The run with a profile."""
        from topmast.experiments.run import RunOptions

        return RunOptions(
            trace=self.trace,
            format=self.format,
            fleet=self.fleet,
            profile=profile,
            seed=self.seed,
            settings=values.assignments(self.settings or [], "--set"),
            overheads=with_overheads(self.overheads),
            throughputs=self.throughputs,
            limit=self.limit,
            from_s=values.duration_s(self.from_, "--from") or 0.0,
            to_s=values.duration_s(self.to, "--to"),
            until_s=values.duration_s(self.until, "--until"),
            load=self.load,
            skip_bad_rows=self.skip_bad_rows,
            out=self.out,
            record=record,
        )


def add(app: typer.Typer) -> None:
    """Add the commands."""
    command(
        app, "simulate", asks=NOTHING,
        example="topmast simulate --trace jobs.csv --fleet fleet.yaml --profile mast\n"
        "topmast simulate --trace philly.csv.gz --format philly --fleet fleet.yaml "
        "--profile easy --out run/",
    )(simulate)  # fmt: skip
    command(
        app, "compare", asks=NOTHING,
        example="topmast compare --trace jobs.csv --fleet fleet.yaml "
        "--profile fifo --profile sjf --out runs/",
    )(compare)  # fmt: skip


def simulate(
    session: Session,
    options: TraceOptions,
    profile: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The policies to run with.", autocompletion=complete_profiles
        ),
    ] = "mast",
    record: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write a state folder for `topmast replay --serve`."),
    ] = None,
) -> None:
    """Run a trace through the scheduler on a virtual fleet."""
    from topmast.experiments.run import simulate as run

    progress = Progress()
    document = run(options.of(profile, record), progress)
    progress.clear()
    _warn(document)
    session.show(document, lambda: say_summary(document))


def compare(
    session: Session,
    options: TraceOptions,
    profiles: Annotated[
        list[str],
        typer.Option(
            "--profile",
            metavar="NAME",
            help="The policies of a run; give several.",
            autocompletion=complete_profiles,
        ),
    ],
) -> None:
    """Run a trace under several profiles, side by side."""
    from topmast.experiments.compare import compare as run

    document = run(
        options.of(""), profiles, lambda over, runs: note(f"{over} of {runs} runs have ended")
    )
    _warn(document)
    session.show(document, lambda: say_comparison(document))


def _warn(document: Mapping[str, Any]) -> None:
    for warning in document["warnings"]:
        warn(warning)


def with_overheads(text: str) -> bool:
    """What ``--overheads`` says."""
    if text not in ("default", "none"):
        raise typer.BadParameter(f"{text!r} is neither 'default' nor 'none'")
    return text == "default"


class Progress:
    """A line on stderr: how many jobs are over, the simulated day, and how long it still takes."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        line_s: float = LINE_S,
        write: Callable[[int, int, str], None] | None = None,
    ) -> None:
        """``line_s``: how often a line is written where none can be drawn.

        ``write``: takes the figures and the words instead.
        """
        self._clock = clock
        self._line_s = line_s
        self._write = write
        self._draws = write is None and sys.stderr.isatty()
        self._told_s = clock()
        self._seen = deque([(self._told_s, 0)])
        """When how many jobs were over, of the last `RATE_S`; the first is older."""
        self._drawn = False

    def __call__(self, over: int, jobs: int, now_s: float) -> None:
        now = self._clock()
        if now - self._told_s < (DRAW_S if self._draws else self._line_s):
            return
        self._told_s = now
        text = f"{over} of {jobs} jobs over, day {now_s / 86_400:.1f}{self._left(now, over, jobs)}"
        if self._write is not None:
            self._write(over, jobs, text)
            return
        if not self._draws:
            note(text)
            return
        full = 30 * over // max(jobs, 1)
        sys.stderr.write(f"\r[{'#' * full}{'.' * (30 - full)}] {text}\x1b[K")
        sys.stderr.flush()
        self._drawn = True

    def _left(self, now: float, over: int, jobs: int) -> str:
        """The rest, at the rate of the last half minute."""
        from topmast.model.units import format_duration

        self._seen.append((now, over))
        while len(self._seen) > 2 and self._seen[1][0] <= now - RATE_S:
            self._seen.popleft()
        since, before = self._seen[0]
        if over == before:
            return ""
        return f", about {format_duration((jobs - over) * (now - since) / (over - before))} left"

    def clear(self) -> None:
        """Leave the line as if nothing had been there."""
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


_FIGURES = (
    "jobs", "finished", "failed", "never_startable", "waiting", "running", "makespan_s",
    "allocation_rate", "allocation_rate_waiting", "goodput_rate", "preemptions", "migrations",
    "restarts", "lost_gpu_s", "events", "wall_s", "jobs_per_s",
)  # fmt: skip


def say_summary(document: Mapping[str, Any]) -> None:
    """The summary for people: the figures, then the distributions."""
    say_fields((name, _figure(document[name], name)) for name in _FIGURES)
    say()
    names = ("jct_s", "wait_s", "first_wait_s", "ftf_rho")
    columns = [Column(""), *(Column(x, right=True) for x in ("MEAN", "P50", "P90", "P99"))]
    rows = [
        [name, *(_spread(document[name][x], name) for x in ("mean", "p50", "p90", "p99"))]
        for name in names
    ]
    say_table(columns, rows)


def _figure(value: float | None, name: str) -> str:
    """A number; a time of a minute and more as people say it, too."""
    plain, spoken = number(value), _spread(value, name)
    return plain if value is None or value < 60 or plain == spoken else f"{plain} ({spoken})"


def _spread(value: float | None, name: str) -> str:
    """A time as people say it; any other figure as a number."""
    from topmast.model.units import format_duration

    is_time = name.endswith("_s") and not name.endswith(("gpu_s", "per_s"))
    return format_duration(value) if is_time and value is not None else number(value)


def say_comparison(document: Mapping[str, Any]) -> None:
    """A row for every profile."""
    titles = (
        "PROFILE",
        "FINISHED",
        "JCT",
        "P90",
        "WAIT",
        "P90",
        "ALLOCATED",
        "GOODPUT",
        "PREEMPTED",
    )
    rows = [
        [
            name, number(d["finished"]),
            *(_spread(d[x][part], x) for x in ("jct_s", "wait_s") for part in ("mean", "p90")),
            number(d["allocation_rate"]), number(d["goodput_rate"]), number(d["preemptions"]),
        ]
        for name, d in document["profiles"].items()
    ]  # fmt: skip
    say_table([Column(title, right=title != "PROFILE") for title in titles], rows)
