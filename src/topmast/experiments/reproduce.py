"""`topmast reproduce`: every contender of an experiment on the same files, over seeds, loads and
signals.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from topmast import __version__
from topmast.adapters.kernels import load_kernels
from topmast.experiments import workloads
from topmast.experiments.checks import figure
from topmast.experiments.config import Experiment, Scale, read_experiments
from topmast.experiments.files import is_published, sources_of
from topmast.experiments.kept import Kept
from topmast.experiments.outputs import folder_for, write_json
from topmast.experiments.points import Figures, Point, run_point
from topmast.experiments.revision import revision
from topmast.experiments.sums import add_savings, checks_of, means_of
from topmast.experiments.workers import worker_pool
from topmast.model.errors import InvalidInput

Tell = Callable[[str], None]
"""Hears, when a run is over, which one and what came out."""


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
    setting: dict[str, Any] = {
        "version": __version__, "revision": revision(), "experiment": experiment, "scale": scale,
    }  # fmt: skip
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
        f"{name}: {c['case']} {c['figure']} is {figure(c['ours'], c['at_least'], c['at_most'])}, "
        f"wanted {c['wanted']}"
        for name, document in documents.items()
        for c in document["checks"]
        if c["reached"] is False
    ]
    return missed + [
        f"{name}: left out because published traces are missing (--data): {case}"
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
    """Every run, seed by seed; a case that goes by no signal runs once for all ages of one, one
    on a published trace once for all seeds. Cases with jobs from a published file that is not
    there are left out.
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
    """All runs of one experiment, and what they amount to; runs that are ``kept`` are not
    repeated.
    """
    kept = Kept(None, {}) if kept is None else kept
    scale = scale_of(experiment, options)
    points = points_of(experiment, scale, options.data)
    rows: list[dict[str, Any]] = []
    made_by = revision()  # as runs take hours, files may be others when they are over
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
    means = means_of(experiment, points, rows)
    add_savings(experiment, means, rows)
    ran_cases = dict.fromkeys(point.case.name for point in points)
    return {
        "experiment": experiment.name,
        "version": __version__,
        "revision": made_by,
        "scale": options.scale,
        "jobs": scale.jobs,
        "days": scale.days,
        "seeds": list(range(1, scale.seeds + 1)),
        "runs": rows,
        "means": means,
        "files": sources_of(experiment, options.data),
        "checks": checks_of(experiment, scale, means, options.data),
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
    with worker_pool(workers) as pool:
        runs = [pool.submit(run_point, experiment, scale, point, options.data) for point in points]
        try:
            for run in runs:
                yield run.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
