"""One run from files to files: a trace, a fleet and a profile in, a summary and tables out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec import Struct

from topmast.adapters.kernels import load_kernels, load_solvers
from topmast.experiments.collector import calm
from topmast.experiments.outputs import SUMMARY, tables_in, write_json
from topmast.experiments.recording import recorded
from topmast.experiments.report import Curves, Overview, quantiles, write_report
from topmast.experiments.worlds import world_of
from topmast.fast.region import count_of
from topmast.model.errors import InvalidInput, refuse_all
from topmast.model.files.fleetfile import read_fleet
from topmast.model.fleet import Fleet
from topmast.policies.options import Profile
from topmast.policies.registry import NO_SHARES
from topmast.policies.shares.registry import policy_named
from topmast.sim.settings import Settings, check_models
from topmast.sim.simulation import Result, Simulation, Waits
from topmast.traces.reading import read
from topmast.traces.source import unreadable
from topmast.traces.throughputs import Throughputs, read_throughputs
from topmast.traces.trace import Trace

Tell = Callable[[int, int, float], None]
"""Shown now and then: jobs that are over, jobs in all, the virtual time."""
TOLD = 1_000
"""So many of the jobs that could not start are listed by name."""


class RunOptions(Struct, frozen=True, kw_only=True):
    """What to run. ``from_s`` and ``to_s`` cut the trace by time of submission."""

    trace: Path
    format: str
    fleet: Path
    profile: str
    settings: Mapping[str, str] = {}
    seed: int = 0
    overheads: bool = True
    throughputs: Path | None = None
    limit: int | None = None
    from_s: float = 0.0
    to_s: float | None = None
    until_s: float | None = None
    """When the run ends, whatever still runs or waits then."""
    load: float = 1.0
    skip_bad_rows: bool = False
    out: Path | None = None
    record: Path | None = None
    """A new folder for what the machines decide, as `topmast replay` reads it."""

    def world(self) -> tuple[Profile, Settings]:
        """The profile and the world. Raises InvalidInput for an option that does not fit."""
        return world_of(self.profile, self.settings, overheads=self.overheads)


class Setup(Struct, frozen=True):
    """What the files say."""

    trace: Trace
    fleet: Fleet
    throughputs: Throughputs | None


def checked(runs: Sequence[RunOptions], *files: Path) -> Fleet:
    """The fleet of runs with one trace and one fleet.

    Raises InvalidInput for it, for options, and for files of the runs or ``files`` that are not
    there: for all of it at once.
    """
    fleets: list[Fleet] = []
    found: dict[str, InvalidInput] = {}

    def read_all() -> None:
        fleets.append(read_fleet(runs[0].fleet))

    for check in (*(run.world for run in runs), read_all):
        try:
            check()
        except InvalidInput as error:
            found |= {str(one): one for one in (error, *error.more)}
    read = (runs[0].trace, runs[0].throughputs, *files)
    refuse_all((*found.values(), *chain.from_iterable(map(unreadable, filter(None, read)))))
    return fleets[0]


def load(options: RunOptions) -> Setup:
    """Read the files of a run. Raises InvalidInput for what does not fit."""
    fleet = checked([options])
    check_models(options.world()[1], fleet.models())
    widest = max(h.gpus for r in fleet.regions for c in r.clusters for h in c.hosts)
    trace = read(
        options.trace,
        options.format,
        host_gpus=max(1, widest),
        skip_bad_rows=options.skip_bad_rows,
        throughputs=options.throughputs,
    )
    to_s = float("inf") if options.to_s is None else options.to_s
    if not options.from_s < to_s:
        raise InvalidInput("ends before it begins", field="--to", remedy="a time after --from")
    trace = trace.between(options.from_s, to_s)
    if options.limit is not None:
        trace = trace.head(options.limit)
    if options.load != 1.0:
        trace = trace.with_load(options.load)
    if options.until_s is not None:
        trace = trace.between(0.0, options.until_s)
    if not len(trace):
        raise InvalidInput("no job is left to run", field="--trace", where=str(options.trace))
    table = None if options.throughputs is None else read_throughputs(options.throughputs)
    return Setup(trace, fleet, table)


class Ran(Struct):
    """A run that is over: the document of ``--json``, and what its plots need."""

    document: dict[str, Any]
    curves: Curves


def simulate(options: RunOptions, tell: Tell | None = None) -> dict[str, Any]:
    """`topmast simulate`: run, write the files of ``options.out``, and return the summary."""
    return run(options, tell).document


def run(options: RunOptions, tell: Tell | None = None) -> Ran:
    """Run, and write the files of ``options.out``. Raises InvalidInput for what does not fit."""
    begun_s = time.perf_counter()
    setup = load(options)
    profile, settings = options.world()
    load_kernels()
    load_solvers(profile)
    jobs, overview = len(setup.trace), Overview()
    with tables_in(options.out, overview.note) as tables:
        simulation = Simulation(
            setup.trace,
            setup.fleet,
            profile,
            settings,
            tables,
            options.seed,
            time.perf_counter,
            setup.throughputs,
        )
        loop_begun_s = time.perf_counter()
        with recorded(options.record, profile, simulation), calm():
            simulation.run(
                None if tell is None else lambda over, now_s: tell(over, jobs, now_s),
                math.inf if options.until_s is None else options.until_s,
            )
        wall_s = time.perf_counter() - loop_begun_s
        result = simulation.finish()
    done = simulation.recorder.finished
    curves = Curves(quantiles(done.jct_s), quantiles(done.wait_s), overview.rows)
    document = _document(options, setup, result, wall_s)
    if options.out is not None:
        title = f"{options.profile} on {setup.trace.name}"
        write_report(
            options.out, "report", title, {options.profile: document}, {options.profile: curves}
        )
    document["total_s"] = time.perf_counter() - begun_s
    if options.out is not None:
        write_json(options.out / SUMMARY, document)
    return Ran(document, curves)


def _document(options: RunOptions, setup: Setup, result: Result, wall_s: float) -> dict[str, Any]:
    return {
        **result.summary,
        "profile": options.profile,
        "trace": setup.trace.name,
        "load": options.load,
        "fleet": options.fleet.name,
        "gpus": sum(setup.fleet.gpus().values()),
        "skipped_rows": setup.trace.skipped,
        "set_aside": _told(result.set_aside),
        "still_waiting": _told(result.waiting),
        "warnings": [*_idle_options(options, setup), *_warnings(setup, result)],
        "events": result.events,
        "wall_s": wall_s,
        "jobs_per_s": len(setup.trace) / wall_s if wall_s > 0 else 0.0,
        "spent_s": result.spent_s,
    }


def _told(jobs: list[Waits]) -> list[dict[str, str]]:
    return [
        {"job_id": job.job_id, "reason": job.reason.value, "detail": job.detail}
        for job in jobs[:TOLD]
    ]


def _idle_options(options: RunOptions, setup: Setup) -> list[str]:
    """What is asked for and cannot count."""
    shares = options.world()[0].shares
    if not shares.raw or setup.throughputs is not None or shares.policy == NO_SHARES:
        return []
    if not policy_named(shares.policy).adds_speeds:
        return []
    what = "shares.raw counts steps a second, and no table has them"
    return [f"{what}: a second of each job counts alike (--throughputs FILE)"]


def _warnings(setup: Setup, result: Result) -> list[str]:
    found = []
    if setup.trace.skipped:
        found.append(f"{setup.trace.skipped} bad rows of the trace were skipped")
    rounds = result.summary.get("rounds")
    if rounds and rounds["failures"]:
        found.append(
            f"the solver failed in {rounds['failures']} of {rounds['solves']} attempts,"
            " and parts of the "
            f"time stayed as they were ({rounds['failure']})"
        )
    if result.summary["running"]:
        found.append(f"{count_of(result.summary['running'], 'job')} still ran when the run ended")
    for jobs, what in (
        (result.set_aside, "can never start, not even on an empty fleet: set aside"),
        (result.waiting, "waited when the run ended"),
    ):
        if jobs:
            counts: dict[str, int] = {}
            for job in jobs:
                counts[job.reason.value] = counts.get(job.reason.value, 0) + 1
            reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(counts.items()))
            found.append(f"{len(jobs)} of {len(setup.trace)} jobs {what} ({reasons})")
    return found
