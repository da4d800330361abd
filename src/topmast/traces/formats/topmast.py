"""Our own format: CSV with a header, gzipped or not, or Parquet. One row is one job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from topmast.model.job import Band
from topmast.model.units import show
from topmast.traces.cells import (
    MAX_GPUS_PER_TASK,
    MAX_TASKS,
    MOST_CPUS,
    MOST_MEMORY_GB,
    expected_of,
    more_tasks_of,
)
from topmast.traces.formats.base import Format, Options, table_of, trace_name, with_ids
from topmast.traces.table import Check, Layout, Table
from topmast.traces.trace import (
    DEFAULT_CHECKPOINT_INTERVAL_S,
    DEFAULT_TENANT,
    Bools,
    Texts,
    Trace,
    sizes_of,
    trace_of,
)
from topmast.traces.values import LONGEST_S, Choice, Kind, Number, Text

MAX_SKEW = 1e6
BANDS = {band.name.lower(): float(band) for band in Band}
YES_AND_NO = {"1": 1.0, "0": 0.0, "true": 1.0, "false": 0.0}

FIELDS: dict[str, Kind] = {
    "job_id": Text(blank=None, id=True),
    "submit_s": Number(),
    "duration_s": Number(high=LONGEST_S),
    "expected_s": Text(),
    "gpus": Number(high=MAX_GPUS_PER_TASK),
    "tasks": Number(low=1, high=MAX_TASKS, whole=True, blank=1.0),
    "more_tasks": Text(),
    "tenant": Text(blank=DEFAULT_TENANT),
    "user": Text(),
    "group": Text(),
    "band": Choice(BANDS, blank=float(Band.NORMAL)),
    "gpu_models": Text(separated=True),
    "speeds": Text(),
    "cpus": Number(high=MOST_CPUS, blank=0.0),
    "memory_gb": Number(high=MOST_MEMORY_GB, blank=0.0),
    "gpu_memory_gb": Number(high=1e6, blank=0.0),
    "datasets": Text(separated=True),
    "home_region": Text(),
    "preemptible": Choice(YES_AND_NO, blank=1.0),
    "checkpoint_interval_s": Number(high=LONGEST_S, blank=DEFAULT_CHECKPOINT_INTERVAL_S),
    "deadline_s": Number(blank=np.nan),
    "model": Text(),
    "min_tasks": Number(low=1, high=MAX_TASKS, whole=True, blank=np.nan),
    "max_tasks": Number(low=1, high=MAX_TASKS, whole=True, blank=np.nan),
    "skew": Number(high=MAX_SKEW, blank=np.nan),
    "depends_on": Text(separated=True),
}
"""Every column of the format, in the order in which it is written."""


def _fraction_of_more_than_one(row: Mapping[str, Any]) -> Bools:
    return np.asarray((row["gpus"] > 1) & (row["gpus"] != np.floor(row["gpus"])))


def _speeds_do_not_match(row: Mapping[str, Any]) -> Bools:
    """Each different pair is looked at once."""
    if not any(row["speeds"]):
        return np.zeros(len(row["speeds"]), dtype=np.bool_)
    pairs = list(zip(row["gpu_models"], row["speeds"], strict=True))
    bad = {pair: bool(pair[1]) and not _speeds_fit(*pair) for pair in dict.fromkeys(pairs)}
    return np.array([bad[pair] for pair in pairs], dtype=np.bool_)


def _speeds_fit(models: str, speeds: str) -> bool:
    kind = Number(low=1e-6, high=1e6)
    parts = speeds.split("|")
    return bool(models) and len(parts) == len(models.split("|")) and not kind.read("", parts)[1]


def _unread(column: str, read: Callable[[str], object]) -> Callable[[Mapping[str, Any]], Bools]:
    """Rows with a cell of a column that cannot be read; each different text is looked at once."""

    def bad(row: Mapping[str, Any]) -> Bools:
        wrong = {text: bool(text) and _refuses(read, text) for text in dict.fromkeys(row[column])}
        return np.array([wrong[text] for text in row[column]], dtype=np.bool_)

    return bad


def _refuses(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except ValueError:
        return True
    return False


LAYOUT = Layout(
    FIELDS,
    closed=True,
    parquet=True,
    checks=(
        Check(
            "gpus", "is more than one and not whole", _fraction_of_more_than_one,
            "whole GPUs, or a share below 1",
        ),
        Check(
            "speeds", "are not one positive number for each GPU model", _speeds_do_not_match,
            "1|0.6 for H100|A100",
        ),
        Check(
            "expected_s", "is not a time, and times from parts of the work on, that ascend",
            _unread("expected_s", expected_of),
            "9000|0.3:5200 for 9,000 s, and 5,200 s in all when 0.3 of the work is done",
        ),
        Check(
            "more_tasks", "is not a list of tasks", _unread("more_tasks", more_tasks_of),
            "4x0/8/32|1x4 for four tasks of 8 CPUs and 32 GB, and one of 4 GPUs",
        ),
        Check(
            "min_tasks", "is above tasks", lambda row: row["min_tasks"] > row["tasks"],
            "at most tasks",
        ),
        Check(
            "max_tasks", "is below tasks", lambda row: row["max_tasks"] < row["tasks"],
            "at least tasks",
        ),
    ),
)  # fmt: skip


def read(path: Path, options: Options) -> Trace:
    """Read a trace of our own format."""
    table = with_ids(table_of(path, LAYOUT, options), options)
    table = _resolved(table, options)
    columns = dict(table.columns)
    tasks = columns["tasks"]
    for limit in ("min_tasks", "max_tasks"):
        columns[limit] = np.where(np.isnan(columns[limit]), tasks, columns[limit])
    memory, gpu_memory = (sizes_of(columns.pop(x), "GB") for x in ("memory_gb", "gpu_memory_gb"))
    return trace_of(
        trace_name(path), skipped=table.skipped, memory=memory, gpu_memory=gpu_memory, **columns
    )


def _resolved(table: Table, options: Options) -> Table:
    """The table; its dependencies all name jobs and go in no circle. O(n + dependencies)."""
    unresolved = unresolved_rows(table.columns["job_id"], table.columns["depends_on"])
    if not unresolved:
        return table
    if options.skip_bad_rows:
        good = np.ones(len(table), dtype=np.bool_)
        good[unresolved] = False
        return table.take(good, len(unresolved))
    known = dict.fromkeys(table.columns["job_id"])
    for row in unresolved:
        for name in table.columns["depends_on"][row].split("|"):
            if name not in known:
                raise table.wrong(row, "depends_on", f"{show(name)} is no job of this trace")
    raise table.wrong(unresolved[0], "depends_on", "the job waits, in a circle, for itself")


def unresolved_rows(ids: list[str], depends_on: Texts) -> list[int]:
    """Jobs that can never start: they wait for what is not there, or in a circle. O(n + edges).

    Takes away, again and again, what waits for nothing more (Kahn).
    """
    names = [name.split("|") if name else [] for name in depends_on.names]
    if not any(names):
        return []
    waiting = {row: len(names[c]) for row, c in enumerate(depends_on.codes.tolist()) if names[c]}
    followers: dict[str, list[int]] = {}
    for row in waiting:
        for name in names[int(depends_on.codes[row])]:
            followers.setdefault(name, []).append(row)
    free = [row for row in range(len(ids)) if row not in waiting]
    while free:
        for row in followers.pop(ids[free.pop()], ()):
            waiting[row] -= 1
            if not waiting[row]:
                del waiting[row]
                free.append(row)
    return sorted(waiting)


FORMAT = Format("topmast", "our own: CSV with a header, or Parquet", (LAYOUT,), read)
