"""One run of an experiment: its case, its files, and its figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from topmast.adapters.kernels import load_solvers
from topmast.experiments import workloads
from topmast.experiments.ceiling import most_allocated
from topmast.experiments.config import Case, Experiment, Measure, Scale
from topmast.experiments.files import files_of, offered_load, open_files
from topmast.experiments.placement import place
from topmast.experiments.planned import planned
from topmast.experiments.predicting import prediction_figures
from topmast.experiments.watching import Watch
from topmast.experiments.worlds import world_of
from topmast.model.files.fleetfile import parse_fleet
from topmast.model.fleet import Fleet
from topmast.sim.simulation import Simulation
from topmast.slow.data.access_log import Entry
from topmast.traces.generate import generate
from topmast.traces.throughputs import Throughputs, read_throughputs
from topmast.traces.trace import Trace

Figures = dict[str, float | None]
FLEET = ("gpus", "hosts")
"""Of every run, beside the figures of the experiment: how large its fleet is."""


class Point(Struct, frozen=True):
    """One run: of which case, at which load and age of the signal, with which seed."""

    case: Case
    load: float | None
    signal_s: float | None
    seed: int

    @property
    def label(self) -> str:
        """The run without its seed, for people."""
        parts = [self.case.name]
        parts += [] if self.load is None else [f"load {self.load:g}"]
        parts += [] if self.signal_s is None else [f"signal {self.signal_s:g} s"]
        return ", ".join(parts)

    @property
    def name(self) -> str:
        """The run, unlike all others of its experiment."""
        return f"{self.label}, seed {self.seed}"


def run_point(
    experiment: Experiment, scale: Scale, point: Point, data: Path | None = None
) -> Figures:
    """Make the files of a seed, run one contender on them, and return its figures."""
    trace, fleet = _files(experiment, scale, point, data)
    if scale.limit is not None:
        trace = trace.head(scale.limit)
    if point.load is not None:
        trace = trace.with_load(point.load / offered_load(trace, fleet))
    if point.case.measure is Measure.PREDICT:
        predicted = prediction_figures(trace)
        found = {name: predicted.get(name) for name in experiment.figures}
    else:
        found = _simulated(experiment, point, trace, fleet, _speeds(experiment, point, data))
    hosts = sum(len(c.hosts) for r in fleet.regions for c in r.clusters)
    return found | dict(zip(FLEET, (float(sum(fleet.gpus().values())), float(hosts)), strict=True))


def _files(
    experiment: Experiment, scale: Scale, point: Point, data: Path | None
) -> tuple[Trace, Fleet]:
    own = point.case.workload
    if own is not None:
        return workloads.make(own, scale.jobs, point.seed, scale.days, data)
    files = files_of(experiment, point.case)
    if files is not None:
        return open_files(files, scale, point.seed, data)
    trace, document = generate(experiment.workload, scale.jobs, point.seed, scale.days)
    return trace, parse_fleet(document)


def _speeds(experiment: Experiment, point: Point, data: Path | None) -> Throughputs | None:
    files = files_of(experiment, point.case)
    name = None if files is None else files.throughputs
    path = None if name is None or data is None else data / name
    return None if path is None or not path.is_file() else read_throughputs(path)


def _simulated(
    experiment: Experiment, point: Point, trace: Trace, fleet: Fleet, speeds: Throughputs | None
) -> Figures:
    fleet, read, told = _placed(experiment, point, trace, fleet)
    options = dict(point.case.set)
    if point.signal_s is not None:
        options["bind.signal_s"] = repr(point.signal_s)
    if point.case.oracle:
        options["gittins.known_gpu_s"] = repr(_services_gpu_s(trace))
    watch = Watch(trace)
    profile, settings = world_of(point.case.profile, options, overheads=point.case.overheads)
    load_solvers(profile)
    simulation = Simulation(
        trace, fleet, profile, settings, watch.tables(), point.seed, throughputs=speeds
    )
    if simulation.planning is not None:
        simulation.planning.remember(read)
    watch.simulation = simulation
    simulation.run()
    summary = simulation.finish().summary
    summary["gpus_in_use"] = watch.in_use()
    summary["allocation_rate_most"] = most_allocated(trace, fleet)
    summary["allocation_rate_late"] = watch.allocated_late()
    summary["copied_for_rate"] = len(watch.copied_for) / len(trace)
    summary.update(told)
    return {name: figure_of(summary, name) for name in experiment.figures}


def _placed(
    experiment: Experiment, point: Point, trace: Trace, fleet: Fleet
) -> tuple[Fleet, tuple[Entry, ...], dict[str, Any]]:
    """The fleet with its data where the case has it, what was read before, and figures of the
    plan that put it there.
    """
    case = point.case
    if case.plan is not None:
        made = planned(trace, fleet, experiment.workload, case.plan, point.seed)
        return made.fleet, made.read, {"plan": made.answer, "forecast": made.errors.document()}
    placement = case.placement or experiment.placement
    placed = fleet if placement is None else place(trace, fleet, placement, point.seed)
    return placed, (), {}


def _services_gpu_s(trace: Trace) -> list[float]:
    """The total service of every job, which no scheduler knows beforehand."""
    values: list[float] = (trace.total_gpus() * trace.duration_s).tolist()
    return values


def figure_of(summary: Mapping[str, Any], name: str) -> float | None:
    """A figure of a summary by its path (`by.band.high.wait_s.p90`); None where there is none."""
    found: Any = summary
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return None if found is None else float(found)
