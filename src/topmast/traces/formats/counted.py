"""Formats of one row per job with one number of GPUs: PAI's tasks, Philly, Helios, Tiresias,
Muri, Sia.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from topmast.traces.formats.base import Format, Options, jobs, table_of, with_ids
from topmast.traces.formats.models import nominal_gpu_s, skew_of
from topmast.traces.table import Check, Layout
from topmast.traces.trace import DEFAULT_TENANT, Texts, Trace, gangs, texts_of
from topmast.traces.values import LONGEST_S, Kind, Moment, Number, Text

GPUS = Number(high=1e6)
DURATION = Number(high=LONGEST_S)
MS = 1000.0

# ----------------------------------------------------------------------- pai-tasks and helios-jobs

ARRIVALS = Layout(
    {
        "job_id": Text(id=True),
        "arrival_s": Number(),
        "service_sec": DURATION,
        "gpu_count": GPUS,
    }
)


def read_arrivals(path: Path, options: Options) -> Trace:
    """Job id, arrival, service time, GPUs."""
    table = with_ids(table_of(path, ARRIVALS, options), options)
    column = table.columns
    return jobs(
        path, table, options,
        job_id=column["job_id"],
        submit_s=column["arrival_s"],
        duration_s=column["service_sec"],
        counts=column["gpu_count"],
    )  # fmt: skip


# ------------------------------------------------------------------------------------------- philly

PHILLY = Layout(
    {
        "job_id": Text(id=True),
        "timestamp": Moment(),
        "duration": DURATION,
        "num_gpus": GPUS,
        "gpu_time": Number(high=1e15, blank=np.nan),
        "cluster": Text(),
    }
)


def read_philly(path: Path, options: Options) -> Trace:
    """One row per job; the virtual cluster is its tenant."""
    table = with_ids(table_of(path, PHILLY, options), options)
    column = table.columns
    return jobs(
        path, table, options,
        job_id=column["job_id"],
        submit_s=column["timestamp"],
        duration_s=column["duration"],
        counts=column["num_gpus"],
        tenant=or_default(column["cluster"]),
    )  # fmt: skip


def or_default(tenants: Texts) -> Texts:
    """Tenants, those without a name being called by the default."""
    if "" not in tenants.names:
        return tenants
    return texts_of(name or DEFAULT_TENANT for name in tenants.values())


# ------------------------------------------------------------------------------------------- helios

HELIOS = Layout(
    {
        "job_id": Text(id=True),
        "user": Text(),
        "vc": Text(),
        "gpu_num": Number(high=1e6, whole=True),
        "cpu_num": Number(high=1e9, blank=0.0),
        "node_num": Number(high=1e6, whole=True, blank=0.0),
        "submit_time": Moment(),
        "duration": DURATION,
        "queue": Number(blank=np.nan),
    }
)


def read_helios(path: Path, options: Options) -> Trace:
    """One row per Slurm job. GPUs are spread over its nodes if they divide, else as for all
    formats.
    """
    table = with_ids(table_of(path, HELIOS, options), options)
    column = table.columns
    count, nodes = column["gpu_num"], column["node_num"]
    gpus, tasks = gangs(count, options.host_gpus)
    even = (nodes > 1) & (count > 0) & (count % np.maximum(nodes, 1) == 0)
    gpus = np.where(even, count / np.maximum(nodes, 1), gpus)
    tasks = np.where(even, nodes, tasks).astype(np.int64)
    return jobs(
        path, table, options,
        job_id=column["job_id"],
        submit_s=column["submit_time"],
        duration_s=column["duration"],
        gpus=gpus,
        tasks=tasks,
        cpus=column["cpu_num"] / tasks,
        tenant=or_default(column["vc"]),
        user=column["user"],
        waited_s=column["queue"],
    )  # fmt: skip


# ------------------------------------------------------------------------------- tiresias and muri

TRAINING: dict[str, Kind] = {
    "job_id": Text(id=True),
    "num_gpu": GPUS,
    "submit_time": Number(high=1e13),
    "model_name": Text(),
    "duration": Number(high=LONGEST_S * MS),
}
TIRESIAS = Layout(TRAINING)
MURI = Layout(TRAINING)
ITERATED = Layout(
    {
        **TRAINING,
        "iterations": Number(high=1e12, whole=True),
        "iteration_time": Number(high=LONGEST_S * MS),
    }
)


def _read_training(
    path: Path, options: Options, layout: Layout, unit: float, *, is_iterated: bool = False
) -> Trace:
    table = with_ids(table_of(path, layout, options), options)
    column = table.columns
    run_time = column["duration"]
    if is_iterated:
        run_time = column["iterations"] * column["iteration_time"]
    model: Texts = column["model_name"]
    skews = np.array([skew_of(name) for name in model.names])
    return jobs(
        path, table, options,
        job_id=column["job_id"],
        submit_s=column["submit_time"] / unit,
        duration_s=run_time / unit,
        counts=column["num_gpu"],
        model=model,
        skew=skews[model.codes],
    )  # fmt: skip


def read_tiresias(path: Path, options: Options) -> Trace:
    """Times in seconds."""
    return _read_training(path, options, TIRESIAS, 1.0)


def read_muri(path: Path, options: Options) -> Trace:
    """As Tiresias, with times in milliseconds."""
    return _read_training(path, options, MURI, MS)


def read_muri_iterations(path: Path, options: Options) -> Trace:
    """As Muri; a job runs for its iterations, each as long as its iteration time."""
    return _read_training(path, options, ITERATED, MS, is_iterated=True)


# ---------------------------------------------------------------------------------------------- sia

SIA = Layout(
    {
        "name": Text(id=True),
        "time": Number(),
        "application": Text(blank=None),
        "num_replicas": Number(low=1, high=1e6, whole=True),
        "batch_size": Number(high=1e12, blank=np.nan),
        "duration": Number(high=LONGEST_S, blank=np.nan),
    },
    checks=(
        Check(
            "application", "has no known run time",
            lambda row: np.isnan(row["duration"])
            & np.isnan([nominal_gpu_s(name) for name in row["application"]]),
            "add a column duration, in seconds",
        ),
    ),
)  # fmt: skip


def read_sia(path: Path, options: Options) -> Trace:
    """Files without a duration get the nominal one of the application's size class."""
    table = with_ids(table_of(path, SIA, options), options, "name")
    column = table.columns
    model: Texts = column["application"]
    nominal_s = np.array([nominal_gpu_s(name) for name in model.names])[model.codes]
    replicas = column["num_replicas"]
    given_s = column["duration"]
    return jobs(
        path, table, options,
        job_id=column["name"],
        submit_s=column["time"],
        duration_s=np.where(np.isnan(given_s), nominal_s / replicas, given_s),
        counts=replicas,
        model=model,
    )  # fmt: skip


FORMATS = (
    Format("pai-tasks", "job_id, arrival_s, service_sec, gpu_count", (ARRIVALS,), read_arrivals),
    Format("helios-jobs", "as pai-tasks", (ARRIVALS,), read_arrivals),
    Format("philly", "timestamp, duration, num_gpus, gpu_time, cluster", (PHILLY,), read_philly),
    Format("helios", "the cluster_log.csv of Helios", (HELIOS,), read_helios),
    Format("tiresias", "the job files of Tiresias, in seconds", (TIRESIAS,), read_tiresias),
    Format("muri", "the job files of Muri, in milliseconds", (MURI,), read_muri),
    Format(
        "muri-iterations",
        "as muri, running iterations x iteration_time",
        (ITERATED,),
        read_muri_iterations,
    ),
    Format("sia", "the workloads of Sia and Pollux", (SIA,), read_sia),
)
