"""Gavel's traces, and Shockwave's: tab-separated, without a header, in training steps.

A throughput table turns steps into seconds, and says how fast each GPU model is; Shockwave's
files also state a duration, and how the batch size of a job adapts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from topmast.model.errors import InvalidInput
from topmast.model.job import Band
from topmast.model.units import show
from topmast.traces.formats.adaptive import MODES, Run, run_of
from topmast.traces.formats.base import Format, Options, jobs, table_of
from topmast.traces.source import place
from topmast.traces.table import Layout, Table
from topmast.traces.throughputs import Throughputs, Work, read_throughputs
from topmast.traces.trace import Floats, Texts, Trace, texts_of
from topmast.traces.values import LONGEST_S, Choice, Kind, Number, Text

TABLE = "simulation_throughputs.json"
"""The table that is looked for beside the trace."""

_COMMON: dict[str, Kind] = {
    "job_type": Text(blank=None),
    "total_steps": Number(high=1e15),
    "scale_factor": Number(low=1, high=1e5, whole=True),
    "priority_weight": Number(high=1e6),
    "SLO": Number(low=-1, high=1e9),
    "arrival_time": Number(),
}
_BEGIN = (
    "job_type", "command", "working_directory", "num_steps_arg", "needs_data_dir", "total_steps",
    "scale_factor",
)  # fmt: skip
GAVEL = Layout(_COMMON, columns=(*_BEGIN, "priority_weight", "SLO", "arrival_time"), delimiter="\t")
SHOCKWAVE = Layout(
    _COMMON
    | {
        "mode": Choice({mode: float(number) for number, mode in enumerate(MODES)}, blank=0.0),
        "duration": Number(high=LONGEST_S),
    },
    columns=(*_BEGIN, "mode", "priority_weight", "SLO", "duration", "arrival_time"),
    delimiter="\t",
)


class _Speeds(NamedTuple):
    """Of one job type on so many GPUs."""

    steps_per_s: float
    """On the first model."""
    models: str
    ratios: str


def read_gavel(path: Path, options: Options) -> Trace:
    """Durations are those on the first GPU model of the table (V100)."""
    table = table_of(path, GAVEL, options)
    beside = options.throughputs or path.parent / TABLE
    if not beside.exists():
        raise InvalidInput(
            "counts steps, and there is no table of throughputs", where=place(path),
            remedy=f"give --throughputs FILE, or put {TABLE} beside it",
        )  # fmt: skip
    speeds = _speeds(table, read_throughputs(beside), options)
    table, found = speeds
    steps_per_s = np.array([speed.steps_per_s for speed in found])
    return _trace(path, table, options, table.columns["total_steps"] / steps_per_s, found)


def read_shockwave(path: Path, options: Options) -> Trace:
    """With a table of throughputs jobs run for their steps, and their batch sizes adapt; without
    one, for the durations that the file states, which know nothing of that.
    """
    table = table_of(path, SHOCKWAVE, options)
    if options.throughputs is None:
        return _trace(path, table, options, table.columns["duration"], None)
    throughputs = read_throughputs(options.throughputs)
    table, found = _speeds(table, throughputs, options)
    columns = ("mode", "scale_factor", "total_steps")
    rows = zip(
        table.columns["job_type"].values(), *(table.columns[c] for c in columns), strict=True
    )
    runs = [
        run_of(name, MODES[int(mode)], int(gpus), float(steps), _rate(throughputs, int(gpus)))
        for name, mode, gpus, steps in rows
    ]
    durations_s = np.array([run.duration_s for run in runs])
    return _trace(path, table, options, durations_s, found, [_told(run) for run in runs])


def _rate(throughputs: Throughputs, gpus: int) -> Callable[[str], float | None]:
    """Steps a second of a job type on so many GPUs of the first model."""

    def rate(job_type: str) -> float | None:
        return next(iter(throughputs.speeds(Work(job_type, gpus)).values()), None)

    return rate


def _told(run: Run) -> str:
    """The cell ``expected_s`` of a run; empty if it was known from the start."""
    if not run.later:
        return ""
    later = [f"{at_s / run.duration_s:.9g}:{length_s:.9g}" for at_s, length_s in run.later]
    return "|".join([f"{run.told_s:.9g}", *later])


def _speeds(
    table: Table, throughputs: Throughputs, options: Options
) -> tuple[Table, list[_Speeds]]:
    """How fast each row's work is; a row that the table does not know is bad. O(n)."""
    types: Texts = table.columns["job_type"]
    works = list(zip(types.codes.tolist(), table.columns["scale_factor"].tolist(), strict=True))
    known = {
        work: _speed(throughputs.speeds(Work(types.names[work[0]], int(work[1]))))
        for work in dict.fromkeys(works)
    }
    unknown = [row for row, work in enumerate(works) if known[work] is None]
    if unknown and not options.skip_bad_rows:
        name, gpus = types.names[works[unknown[0]][0]], int(works[unknown[0]][1])
        message = f"{show(name)} on {gpus} GPUs is not in {throughputs.where}"
        raise table.wrong(unknown[0], "job_type", message, "add it to the table")
    if unknown:
        good = np.ones(len(table), dtype=np.bool_)
        good[unknown] = False
        table = table.take(good, len(unknown))
    return table, [speed for work in works if (speed := known[work]) is not None]


def _speed(steps_per_s: dict[str, float]) -> _Speeds | None:
    if not steps_per_s:
        return None
    first = next(iter(steps_per_s.values()))
    ratios = [repr(rate / first) for rate in steps_per_s.values()]
    return _Speeds(first, "|".join(steps_per_s), "|".join(ratios))


def _trace(
    path: Path,
    table: Table,
    options: Options,
    duration_s: Floats,
    speeds: list[_Speeds] | None,
    expected_s: Sequence[str] = (),
) -> Trace:
    """A weight above one is the high band; an SLO is a multiple of the duration."""
    column = table.columns
    if not len(table):
        raise InvalidInput("no row is left: all are bad", where=table.where)
    slo = column["SLO"]
    return jobs(
        path, table, options,
        submit_s=column["arrival_time"],
        duration_s=duration_s,
        expected_s=texts_of(expected_s) if expected_s else "",
        counts=column["scale_factor"],
        band=np.where(column["priority_weight"] > 1, int(Band.HIGH), int(Band.NORMAL)),
        deadline_s=np.where(slo > 0, slo * duration_s, np.nan),
        model=column["job_type"],
        gpu_models=texts_of(s.models for s in speeds) if speeds else "",
        speeds=texts_of(s.ratios for s in speeds) if speeds else "",
    )  # fmt: skip


FORMATS = (
    Format("gavel", "Gavel's traces, with a table of throughputs", (GAVEL,), read_gavel),
    Format("shockwave", "as gavel, with mode and duration", (SHOCKWAVE,), read_shockwave),
)
