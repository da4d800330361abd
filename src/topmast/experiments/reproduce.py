"""`topmast reproduce`: every contender of an experiment on the same files, over seeds, loads and signals."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct, structs

from topmast import __version__
from topmast.adapters.kernels import load_kernels, load_solvers
from topmast.experiments import workloads
from topmast.experiments.checks import checked
from topmast.experiments.config import (
    Case,
    Check,
    Experiment,
    Measure,
    Scale,
    read_experiments,
)
from topmast.experiments.files import (
    files_of,
    is_published,
    is_there,
    offered_load,
    open_files,
    sources_of,
)
from topmast.experiments.kept import Kept
from topmast.experiments.outputs import folder_for, write_json
from topmast.experiments.placement import place
from topmast.experiments.planned import planned
from topmast.experiments.predicting import prediction_figures
from topmast.model.errors import InvalidInput
from topmast.model.files.fleetfile import parse_fleet
from topmast.model.fleet import Fleet
from topmast.model.job import MILLI
from topmast.policies.registry import load_profile
from topmast.sim.books import Tables
from topmast.sim.settings import PREFIX, read_settings
from topmast.sim.simulation import Simulation
from topmast.traces.generate import generate
from topmast.traces.throughputs import Throughputs, read_throughputs
from topmast.traces.trace import Trace

Figures = dict[str, float | None]
Tell = Callable[[str], None]
"""Hears, when a run is over, which one and what came out."""
T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
    2.131, 2.120, 2.110, 2.101, 2.093,
)  # fmt: skip
"""Student's t at 97.5% for 1, 2, ... degrees of freedom; beyond them, 1.96."""


class Point(Struct, frozen=True):
    """One run: whose it is, at which load and age of the signal, with which seed."""

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


class ReproduceOptions(Struct, frozen=True, kw_only=True):
    """What to run. ``seeds`` None: as many as the scale says; they are numbered from 1.

    ``workers``: runs at a time; None, one for each core. ``data``: the folder of published traces.
    """

    scale: str = "small"
    seeds: int | None = None
    out: Path | None = None
    workers: int | None = None
    data: Path | None = None


def reproduce(
    names: Sequence[str], options: ReproduceOptions, tell: Tell | None = None
) -> dict[str, Any]:
    """Run experiments, write the files of ``options.out``, and return one document for each."""
    if not names:
        raise InvalidInput("names no experiment", field="NAME", remedy="for example mast-balance")
    experiments = read_experiments(names)
    for experiment in experiments:
        scale_of(experiment, options)
    if options.out is not None:
        folder_for(options.out)
    load_kernels()
    documents = {}
    for experiment in experiments:
        kept = _kept(experiment, options)
        document = run_experiment(experiment, options, tell, kept)
        documents[experiment.name] = document
        if options.out is not None:
            _write(options.out / experiment.name, experiment, document)
        kept.close()
    return {"experiments": documents, "warnings": _warnings(documents)}


def _kept(experiment: Experiment, options: ReproduceOptions) -> Kept:
    """What an earlier process found with the same setting."""
    scale = structs.replace(scale_of(experiment, options), seeds=0)  # more seeds keep what there is
    setting = {"version": __version__, "experiment": experiment, "scale": scale}
    if experiment.files:
        setting["files"] = sources_of(experiment, options.data)
    folder = None if options.out is None else options.out / experiment.name
    return Kept(folder, msgspec.to_builtins(setting))


def _write(folder: Path, experiment: Experiment, document: dict[str, Any]) -> None:
    from topmast.experiments.page import write_page

    folder_for(folder)
    write_json(folder / "results.json", document)
    write_page(folder, experiment, document)


def _warnings(documents: Mapping[str, dict[str, Any]]) -> list[str]:
    missed = [
        f"{name}: {c['case']} {c['figure']} is {c['ours']:.4g}, wanted {c['wanted']}"
        for name, document in documents.items()
        for c in document["checks"]
        if c["reached"] is False
    ]
    return missed + [
        f"{name}: left out for want of published traces (--data): {case}"
        for name, document in documents.items()
        for case in document["left_out"]
    ]


def scale_of(experiment: Experiment, options: ReproduceOptions) -> Scale:
    """The scale with the seeds asked for."""
    if options.scale not in experiment.scales:
        known = ", ".join(experiment.scales)
        raise InvalidInput(f"unknown scale '{options.scale}'", field="--scale", remedy=known)
    scale = experiment.scales[options.scale]
    if options.seeds is None:
        return scale
    if options.seeds < 1:
        raise InvalidInput("is below 1", field="--seeds", remedy="3 give an interval")
    return structs.replace(scale, seeds=options.seeds)


def points_of(experiment: Experiment, scale: Scale, data: Path | None = None) -> list[Point]:
    """Every run, seed by seed; a case that goes by no signal runs once for all ages of one, one on a published trace
    once for all seeds. Cases whose jobs are in a published file that is not there are left out.
    """
    loads = experiment.loads if scale.loads is None else scale.loads
    signals = experiment.signals_s if scale.signals_s is None else scale.signals_s
    return [
        Point(case, load, signal_s, seed)
        for seed in range(1, scale.seeds + 1)
        for load in loads
        for case in experiment.cases
        if case.workload is None or workloads.is_there(case.workload, data)
        for signal_s in (signals if case.signals else (None,))
        if seed == 1 or not is_published(experiment, case, data)
    ]


def run_experiment(
    experiment: Experiment,
    options: ReproduceOptions,
    tell: Tell | None = None,
    kept: Kept | None = None,
) -> dict[str, Any]:
    """All runs of one experiment, and what they amount to; runs that are ``kept`` are not repeated."""
    kept = Kept(None, {}) if kept is None else kept
    scale = scale_of(experiment, options)
    points = points_of(experiment, scale, options.data)
    rows: list[dict[str, Any]] = []
    ran = _ran(experiment, scale, [p for p in points if p.name not in kept], options)
    for number, point in enumerate(points, start=1):
        figures = kept[point.name] if point.name in kept else next(ran)
        kept.keep(point.name, figures)
        row = {
            "case": point.case.name, "load": point.load, "signal_s": point.signal_s,
            "seed": point.seed, **figures,
        }  # fmt: skip
        rows.append(row)
        if tell is not None:
            tell(f"{experiment.name} {number}/{len(points)}: {point.name}")
    means = _means(experiment, points, rows)
    _add_savings(experiment, means)
    ran_cases = dict.fromkeys(point.case.name for point in points)
    return {
        "experiment": experiment.name,
        "version": __version__,
        "scale": options.scale,
        "jobs": scale.jobs,
        "days": scale.days,
        "seeds": list(range(1, scale.seeds + 1)),
        "runs": rows,
        "means": means,
        "files": sources_of(experiment, options.data),
        "checks": _checks(experiment, scale, means, options.data),
        "left_out": [c.name for c in experiment.cases if c.name not in ran_cases],
    }


def _ran(
    experiment: Experiment, scale: Scale, points: Sequence[Point], options: ReproduceOptions
) -> Iterator[Figures]:
    """The figures of every run, in order, as soon as it is over; ``options.workers`` at a time."""
    workers = min(len(points), options.workers or os.cpu_count() or 1)
    if workers <= 1:
        for point in points:
            yield run_point(experiment, scale, point, options.data)
        return
    # Spawned, not forked: a fork would copy threads' locks in whatever state they are.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        runs = [pool.submit(run_point, experiment, scale, point, options.data) for point in points]
        try:
            for run in runs:
                yield run.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


# ---------------------------------------------------------------------------------------------- one run


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
        found = prediction_figures(trace)
        return {name: found.get(name) for name in experiment.figures}
    return _simulated(experiment, point, trace, fleet, _speeds(experiment, point, data))


def _speeds(experiment: Experiment, point: Point, data: Path | None) -> Throughputs | None:
    files = files_of(experiment, point.case)
    name = None if files is None else files.throughputs
    path = None if name is None or data is None else data / name
    return None if path is None or not path.is_file() else read_throughputs(path)


def _simulated(
    experiment: Experiment, point: Point, trace: Trace, fleet: Fleet, speeds: Throughputs | None
) -> Figures:
    fleet, told = _placed(experiment, point, trace, fleet)
    options = dict(point.case.set)
    if point.signal_s is not None:
        options["bind.signal_s"] = repr(point.signal_s)
    world = {k: v for k, v in options.items() if k.startswith(PREFIX)}
    own = {k: v for k, v in options.items() if not k.startswith(PREFIX)}
    settings = read_settings(world)
    if not point.case.overheads:
        settings = settings.without_overheads()
        own = {"min_runtime_s": "0", **own}
    if point.case.oracle:
        own["gittins.known_gpu_s"] = repr(_services_gpu_s(trace))
    watch = _Watch(trace)
    profile = load_profile(point.case.profile, own)
    load_solvers(profile)
    simulation = Simulation(
        trace, fleet, profile, settings, watch.tables(), point.seed, None, speeds
    )
    watch.simulation = simulation
    simulation.run()
    summary = simulation.finish().summary
    summary["gpus_in_use"] = watch.in_use()
    summary["allocation_rate_late"] = watch.allocated_late()
    summary["copied_for_rate"] = len(watch.copied_for) / len(trace)
    summary.update(told)
    return {name: figure_of(summary, name) for name in experiment.figures}


def _placed(
    experiment: Experiment, point: Point, trace: Trace, fleet: Fleet
) -> tuple[Fleet, dict[str, Any]]:
    """The fleet with its data where the case has it, and figures of the plan that put it there."""
    case = point.case
    if case.plan is not None:
        made = planned(trace, fleet, experiment.workload, case.plan, point.seed)
        return made.fleet, {"plan": made.answer, "forecast": made.errors.document()}
    placement = case.placement or experiment.placement
    return fleet if placement is None else place(trace, fleet, placement, point.seed), {}


def _services_gpu_s(trace: Trace) -> list[float]:
    """The total service of every job, as nobody knows it beforehand."""
    values: list[float] = (trace.total_gpus() * trace.duration_s).tolist()
    return values


class _Watch:
    """Hears the rows of a run and keeps what the summary does not have."""

    def __init__(self, trace: Trace) -> None:
        first_s, last_s = float(trace.submit_s.min()), float(trace.submit_s.max())
        self._late_s = (first_s + last_s) / 2, last_s
        self._held = self._present = 0.0
        self._seen: set[tuple[float, str]] = set()
        self.copied_for: dict[str, None] = {}
        self.simulation: Simulation | None = None
        self._window_s = first_s, last_s
        self._used = self._looked_s = 0.0

    def tables(self) -> Tables:
        """Where a run writes."""
        return Tables(self._nothing, self._nothing, self._interval, self._copy)

    def allocated_late(self) -> float:
        """GPU-seconds held over those present in the second half of the window, when the fleet is full."""
        return self._held / self._present if self._present else 0.0

    def in_use(self) -> float:
        """GPUs of which at least a share is held, in the mean over the time of submissions."""
        return self._used / self._looked_s if self._looked_s else 0.0

    def _look(self, length_s: float) -> None:
        """Count the GPUs that are held now, in whole or in part, for an interval that ends here."""
        assert self.simulation is not None
        placers = self.simulation.machines.placers.values()
        free = [placer.columns.free_milli for placer in placers]
        self._used += length_s * sum(int(np.count_nonzero(f < MILLI)) for f in free)
        self._looked_s += length_s

    def _nothing(self, row: Sequence[object]) -> None:
        pass

    def _interval(self, row: Sequence[Any]) -> None:
        start_s, end_s, region, _, present, _, allocated, _ = row
        if end_s <= self._window_s[1] and (end_s, "") not in self._seen:
            self._seen.add((end_s, ""))
            self._look(end_s - start_s)
        length_s = min(end_s, self._late_s[1]) - max(start_s, self._late_s[0])
        if length_s <= 0:
            return
        self._held += allocated * length_s
        if (end_s, region) not in self._seen:
            self._seen.add((end_s, region))
            self._present += present * length_s

    def _copy(self, row: Sequence[Any]) -> None:
        if row[6] not in ("initial", "dropped"):
            self.copied_for[str(row[6])] = None


def figure_of(summary: Mapping[str, Any], name: str) -> float | None:
    """A figure of a summary by its path (`by.band.high.wait_s.p90`); None where there is none."""
    found: Any = summary
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return None if found is None else float(found)


# ------------------------------------------------------------------------------------------------- sums


def interval(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean, and half the width of its 95% confidence interval (Student's t); None of one value."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, None
    t = T95[len(values) - 2] if len(values) - 2 < len(T95) else 1.96
    return mean, float(t * np.std(values, ddof=1) / math.sqrt(len(values)))


def _add_savings(experiment: Experiment, means: Sequence[dict[str, Any]]) -> None:
    """By which part a mean is below that of the case it is against: of sums, so that runs without waits count too."""
    against = {case.name: case.against for case in experiment.cases}
    found = {(m["case"], m["load"], m["signal_s"]): m["figures"] for m in means}
    for m in means:
        base = found.get((against[m["case"]], m["load"], m["signal_s"]), {})
        for name in experiment.savings:
            own, there = m["figures"].get(name), base.get(name)
            if own is not None and there is not None and there["mean"]:
                saved = 1.0 - own["mean"] / there["mean"]
                m["figures"][f"saving.{name}"] = {"mean": saved, "ci95": None}


def _means(
    experiment: Experiment, points: Sequence[Point], rows: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    together: dict[str, list[int]] = {}
    for number, point in enumerate(points):
        together.setdefault(point.label, []).append(number)
    means = []
    for numbers in together.values():
        point = points[numbers[0]]
        entry: dict[str, Any] = {
            "case": point.case.name, "label": point.label, "load": point.load,
            "signal_s": point.signal_s, "seeds": len(numbers), "figures": {},
        }  # fmt: skip
        for name in experiment.figures:
            values = [rows[i][name] for i in numbers if rows[i][name] is not None]
            if values:
                mean, half = interval(values)
                entry["figures"][name] = {"mean": mean, "ci95": half}
        means.append(entry)
    return means


def _checks(
    experiment: Experiment, scale: Scale, means: Sequence[dict[str, Any]], data: Path | None
) -> list[dict[str, Any]]:
    """Every published figure; those of published traces count only for all of their jobs."""
    cases = {case.name: case for case in experiment.cases}

    def comparable(check: Check) -> bool:
        files = files_of(experiment, cases[check.case])
        whole = scale.limit is None and (
            files is None or files.trace is None or is_there(files, data)
        )
        return whole or files is None

    return [checked(check, means, comparable(check)) for check in experiment.checks]
