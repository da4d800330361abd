"""The files of a case: a published trace where it is there, else what the generator makes in its
stead.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from topmast.experiments.config import Case, Experiment, Files, Scale
from topmast.model.files.fleetfile import parse_fleet
from topmast.model.fleet import Fleet
from topmast.traces.generate import generate
from topmast.traces.reading import read
from topmast.traces.trace import DEFAULT_TENANT, Trace, same_text


def is_published(experiment: Experiment, case: Case, data: Path | None) -> bool:
    """Whether a case runs on a published trace."""
    files = files_of(experiment, case)
    return files is not None and is_there(files, data)


def is_there(files: Files, data: Path | None) -> bool:
    """Whether the published trace can be read."""
    return files.trace is not None and data is not None and (data / files.trace).is_file()


def files_of(experiment: Experiment, case: Case) -> Files | None:
    """On what a case runs; None: on the experiment's workload."""
    return experiment.files[case.files] if case.files else None


def is_whole(files: Files, scale: Scale, data: Path | None) -> bool:
    """Whether the scale leaves all jobs of a trace. O(jobs)."""
    if scale.limit is None:
        return True
    return is_there(files, data) and len(open_files(files, scale, 1, data)[0]) <= scale.limit


def open_files(files: Files, scale: Scale, seed: int, data: Path | None) -> tuple[Trace, Fleet]:
    """The trace and the fleet of a run; a published trace is the same for every seed. O(jobs)."""
    fleet = parse_fleet(msgspec.to_builtins(files.fleet))
    if is_there(files, data):
        assert data is not None
        assert files.trace is not None
        widest = max(h.gpus for r in fleet.regions for c in r.clusters for h in c.hosts)
        host_gpus = files.host_gpus or widest
        return read(data / files.trace, files.format, host_gpus=host_gpus), fleet
    made = files.stand_in
    trace, _ = generate(made.kind, scale.jobs * made.times, seed)
    trace = _fitting(trace, sum(fleet.gpus().values()))
    if made.gpus is not None:
        trace = trace.take(np.flatnonzero(trace.total_gpus() == made.gpus))
    trace = trace if scale.limit is None else trace.head(scale.limit)
    if made.load is not None:
        trace = trace.with_load(made.load / offered_load(trace, fleet))
    return trace, fleet


def _fitting(trace: Trace, gpus: int) -> Trace:
    """The jobs that the fleet could hold, of any GPU model and tenant, as the other formats have
    them.
    """
    rows = np.flatnonzero(trace.total_gpus() <= gpus)
    kept = trace.take(rows)
    return msgspec.structs.replace(kept, tenant=same_text(DEFAULT_TENANT, len(rows)))


def offered_load(trace: Trace, fleet: Fleet) -> float:
    """The GPU-seconds of all jobs over those of the fleet while they are submitted."""
    work = float((trace.gpus * trace.tasks * trace.duration_s).sum())
    span_s = float(trace.submit_s.max() - trace.submit_s.min())
    return work / (span_s * sum(fleet.gpus().values()))


def sources_of(experiment: Experiment, data: Path | None) -> dict[str, str]:
    """By name of files, what the cases ran on, in words."""
    return {name: _source(files, data) for name, files in experiment.files.items()}


def _source(files: Files, data: Path | None) -> str:
    stand_in = files.stand_in
    load = "" if stand_in.load is None else f", load {stand_in.load:g}"
    alone = "" if stand_in.gpus is None else f", only jobs with {stand_in.gpus} GPU each"
    more = "" if stand_in.times == 1 else f", out of {stand_in.times} times as many"
    generated = f"generated: {stand_in.kind}{load}{alone}{more}"
    if files.trace is None:
        return generated
    return files.trace if is_there(files, data) else f"{generated} ({files.trace} is not there)"
