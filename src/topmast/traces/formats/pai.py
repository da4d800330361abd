"""Alibaba's PAI cluster of 2020: its official tables, and the 100K job files of its simulator.

Official tables have no header. A *task* (a role of a job: worker, ps) becomes a job here: its
instances are a gang, and the table says what each takes. What stands beside the task table is
joined: the job table (submission, user), the group tags (recurrence), the instance table (when
instances really ran).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from topmast.model.errors import InvalidInput
from topmast.traces.formats.base import Format, Options, jobs, table_of, with_ids
from topmast.traces.source import chunks, place
from topmast.traces.table import Check, Layout, Table
from topmast.traces.trace import Bools, Floats, Texts, Trace, sizes_of, texts_of
from topmast.traces.values import LONGEST_S, Cleared, Moment, Number, Text

UNFINISHED = ("running", "waiting")
ANY_GPU = ("", "CPU", "None", "nan")
_END_BEFORE_START = Check(
    "end_time", "is before start_time", lambda row: row["end_time"] < row["start_time"]
)

TASKS = Layout(
    {
        "job_name": Text(blank=None, id=True),
        "task_name": Text(),
        "inst_num": Cleared(Number(high=1e6, whole=True, blank=1.0)),
        "status": Text(),
        "start_time": Cleared(Number(blank=np.nan)),
        "end_time": Cleared(Number(blank=np.nan)),
        "plan_cpu": Cleared(Number(high=1e9, blank=0.0)),
        "plan_mem": Cleared(Number(high=1e9, blank=0.0)),
        "plan_gpu": Cleared(Number(high=1e7, blank=0.0)),
        "gpu_type": Text(),
    },
    columns=(
        "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu",
        "plan_mem", "plan_gpu", "gpu_type",
    ),
    checks=(
        _END_BEFORE_START,
        Check(
            "start_time",
            "is missing from a task that ended",
            lambda row: _lost(row, "start_time"),
        ),
        Check("end_time", "is missing from a task that ended", lambda row: _lost(row, "end_time")),
    ),
)  # fmt: skip
SUBMISSIONS = Layout(
    {
        "job_name": Text(blank=None, id=True),
        "inst_id": Text(id=True),
        "user": Text(),
        "start_time": Cleared(Number(blank=np.nan)),
    },
    columns=("job_name", "inst_id", "user", "status", "start_time", "end_time"),
)
INSTANCES = Layout(
    {
        "job_name": Text(blank=None, id=True),
        "task_name": Text(),
        "start_time": Cleared(Number(blank=np.nan)),
        "end_time": Cleared(Number(blank=np.nan)),
    },
    columns=(
        "job_name", "task_name", "inst_name", "worker_name", "inst_id", "status", "start_time",
        "end_time", "machine",
    ),
    checks=(_END_BEFORE_START,),
)  # fmt: skip
GROUPS = Layout(
    {"inst_id": Text(blank=None, id=True), "group": Text()},
    columns=("inst_id", "user", "gpu_type_spec", "group", "workload"),
)
JOBS = Layout(
    {
        "job_id": Text(id=True),
        "num_inst": Cleared(Number(high=1e6, whole=True, blank=1.0)),
        "submit_time": Moment(),
        "num_cpu": Cleared(Number(high=1e6, blank=0.0)),
        "num_gpu": Cleared(Number(high=1e5, blank=0.0)),
        "gpu_type": Text(),
        "duration": Number(high=LONGEST_S),
        "user": Text(),
        "group": Text(),
        "wait_time": Cleared(Number(blank=np.nan)),
    }
)


def _lost(row: Any, column: str) -> Bools:
    """Rows that say they ended, and not when."""
    ended = np.array([status.lower() == "terminated" for status in row["status"]], dtype=np.bool_)
    return np.asarray(ended & np.isnan(row[column]))


def read(path: Path, options: Options) -> Trace:
    """A task table, an instance table with its task table beside it, a folder, or a 100K job
    file.
    """
    if path.is_dir():
        return _read_tasks(_beside(path, "task", path), options)
    first = next(chunks(path, rows=1), None)
    row = first.rows[0] if first else []
    if "job_id" in row or "num_inst" in row:
        return _read_jobs(path, options)
    if len(row) == len(INSTANCES.columns):
        return _read_tasks(_beside(path.parent, "task", path), options, instances=path)
    return _read_tasks(path, options)


def _beside(folder: Path, table: str, asked: Path) -> Path:
    found = _table_in(folder, table)
    if found is None:
        message = f"there is no pai_{table}_table.csv, which says what tasks ask for"
        raise InvalidInput(message, where=place(asked), remedy="put it into the same folder")
    return found


def _table_in(folder: Path, table: str) -> Path | None:
    for name in (f"pai_{table}_table.csv", f"pai_{table}_table.csv.gz"):
        if (folder / name).is_file():
            return folder / name
    return None


def _read_jobs(path: Path, options: Options) -> Trace:
    """A 100K job file: GPUs and CPUs are per instance."""
    table = with_ids(table_of(path, JOBS, options), options)
    column = table.columns
    return jobs(
        path, table, options,
        job_id=column["job_id"],
        submit_s=column["submit_time"],
        duration_s=column["duration"],
        gpus=_whole_or_share(column["num_gpu"]),
        tasks=np.maximum(column["num_inst"], 1),
        cpus=column["num_cpu"],
        gpu_models=_models(column["gpu_type"], column["num_gpu"]),
        user=column["user"],
        group=column["group"],
        waited_s=column["wait_time"],
    )  # fmt: skip


def _read_tasks(path: Path, options: Options, instances: Path | None = None) -> Trace:
    """The task table and what is beside it. Tasks that were not over, or were never begun, are no
    jobs.
    """
    table = table_of(path, TASKS, options)
    roles = table.columns["task_name"].values()
    names = [f"{j}/{t}" for j, t in zip(table.columns["job_name"], roles, strict=True)]
    table = Table(table.where, table.columns | {"id": names}, table.lines, table.skipped)
    begun = ~(np.isnan(table.columns["start_time"]) | np.isnan(table.columns["end_time"]))
    status: Texts = table.columns["status"]
    unfinished = np.array([name.lower() in UNFINISHED for name in status.names])[status.codes]
    over = begun & ~unfinished
    table = with_ids(table.take(over), options, "id")
    if not len(table):
        raise InvalidInput("no task has begun and ended", where=table.where)
    column = table.columns
    start_s, end_s, skipped = column["start_time"], column["end_time"], 0
    instances = instances or _table_in(path.parent, "instance")
    if instances is not None:
        ran = table_of(instances, INSTANCES, options)
        start_s, end_s = _really_ran(column["id"], start_s, end_s, ran)
        skipped += ran.skipped
    joined = _joined(column["job_name"], start_s, path.parent, options)
    return jobs(
        path, table, options,
        job_id=column["id"],
        submit_s=joined.submit_s,
        duration_s=end_s - start_s,
        gpus=_whole_or_share(column["plan_gpu"] / 100),
        tasks=np.maximum(column["inst_num"], 1),
        cpus=column["plan_cpu"] / 100,
        memory=sizes_of(column["plan_mem"], "GB"),
        gpu_models=_models(column["gpu_type"], column["plan_gpu"]),
        user=joined.user,
        group=joined.group,
        waited_s=start_s - joined.submit_s if joined.known else np.nan,
        unfinished=int((~over).sum()),
        skipped_elsewhere=skipped + joined.skipped,
    )  # fmt: skip


def _whole_or_share(gpus: Floats) -> Floats:
    """What is asked for above one GPU is rounded up to whole ones."""
    return np.where(gpus > 1, np.ceil(gpus), gpus)


def _models(types: Texts, gpus: Floats) -> Texts:
    """The GPU type where there is one and a GPU is asked for."""
    named = texts_of("" if name in ANY_GPU else name for name in types.names)
    none = texts_of(["", *named.names])
    codes = np.where(gpus > 0, none.codes[1:][named.codes][types.codes], 0)
    return Texts(codes.astype(np.int32), none.names)


def _really_ran(
    ids: list[str], start_s: Floats, end_s: Floats, table: Table
) -> tuple[Floats, Floats]:
    """From the first instance's start to the last one's end, where the instance table has them."""
    rows = {name: row for row, name in enumerate(ids)}
    roles = table.columns["task_name"].values()
    at = np.array(
        [rows.get(f"{j}/{t}", -1) for j, t in zip(table.columns["job_name"], roles, strict=True)]
    )
    began, ended = table.columns["start_time"], table.columns["end_time"]
    known = (at >= 0) & ~np.isnan(began) & ~np.isnan(ended)
    first, last = np.full(len(ids), np.inf), np.full(len(ids), -np.inf)
    np.minimum.at(first, at[known], began[known])
    np.maximum.at(last, at[known], ended[known])
    found = np.isfinite(first)
    return np.where(found, first, start_s), np.where(found, last, end_s)


class _Joined(NamedTuple):
    """What other tables say about tasks. Not ``known``: there is no job table."""

    submit_s: Floats
    user: Texts | str = ""
    group: Texts | str = ""
    skipped: int = 0
    known: bool = False


def _joined(names: list[str], start_s: Floats, folder: Path, options: Options) -> _Joined:
    """Submission, user and recurrence tag of each task's job, as far as the tables are there."""
    path = _table_in(folder, "job")
    if path is None:
        return _Joined(start_s)
    table = table_of(path, SUBMISSIONS, options)
    rows = {name: row for row, name in enumerate(table.columns["job_name"])}
    at = np.array([rows.get(name, -1) for name in names])
    submitted = np.where(at >= 0, table.columns["start_time"][at], np.nan)
    # A task may not begin before its job was submitted; a few rows say so, and are set right.
    submit_s = np.where(np.isnan(submitted), start_s, np.minimum(submitted, start_s))
    users: Texts = table.columns["user"]
    user = texts_of(users[row] if row >= 0 else "" for row in at.tolist())
    tags = _table_in(folder, "group_tag")
    if tags is None:
        return _Joined(submit_s, user, "", table.skipped, True)
    tagged = table_of(tags, GROUPS, options)
    groups = dict(zip(tagged.columns["inst_id"], tagged.columns["group"].values(), strict=True))
    ids = table.columns["inst_id"]
    group = texts_of(groups.get(ids[r], "") if r >= 0 else "" for r in at.tolist())
    return _Joined(submit_s, user, group, table.skipped + tagged.skipped, True)


FORMAT = Format(
    "pai", "the official tables of PAI, or the 100K job files", (JOBS, TASKS, INSTANCES), read
)
