"""Alibaba's GPU cluster of 2023 ("openb"): one row per pod, with shares of GPUs and lists of
models.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from topmast.model.job import Band
from topmast.traces.formats.base import Format, Options, jobs, table_of, with_ids
from topmast.traces.table import Check, Layout
from topmast.traces.trace import Texts, Trace, sizes_of, texts_of
from topmast.traces.values import Choice, Moment, Number, Text

BANDS = {
    "guaranteed": float(Band.HIGH),
    "ls": float(Band.HIGH),
    "burstable": float(Band.NORMAL),
    "be": float(Band.LOW),
}
"""By quality of service; LS is latency-sensitive, BE best effort."""

LAYOUT = Layout(
    {
        "name": Text(id=True),
        "cpu_milli": Number(high=1e9),
        "memory_mib": Number(high=1e12),
        "num_gpu": Number(high=1024, whole=True),
        "gpu_milli": Number(high=1000, whole=True),
        "gpu_spec": Text(),
        "qos": Choice(BANDS, blank=float(Band.NORMAL)),
        "pod_phase": Text(),
        "creation_time": Moment(),
        "deletion_time": Moment(),
        "scheduled_time": Moment(blank=True),
    },
    checks=(
        Check(
            "deletion_time", "is before the pod was created or placed",
            lambda row: row["deletion_time"] < np.fmax(row["creation_time"], row["scheduled_time"]),
        ),
        Check(
            "scheduled_time", "is before the pod was created",
            lambda row: row["scheduled_time"] < row["creation_time"],
        ),
        Check(
            "gpu_milli", "is a share of several GPUs",
            lambda row: (row["num_gpu"] > 1) & (row["gpu_milli"] != 1000),
        ),
    ),
)  # fmt: skip


def read(path: Path, options: Options) -> Trace:
    """One task per pod. For a pod that was never placed, its whole life stands in for its run."""
    table = with_ids(table_of(path, LAYOUT, options), options, "name")
    column = table.columns
    created, placed = column["creation_time"], column["scheduled_time"]
    return jobs(
        path, table, options,
        job_id=column["name"],
        submit_s=created,
        duration_s=column["deletion_time"] - np.where(np.isnan(placed), created, placed),
        gpus=column["num_gpu"] * column["gpu_milli"] / 1000,
        cpus=column["cpu_milli"] / 1000,
        memory=sizes_of(column["memory_mib"], "MiB"),
        gpu_models=_each_once(column["gpu_spec"]),
        band=column["qos"],
        waited_s=placed - created,
    )  # fmt: skip


def _each_once(specs: Texts) -> Texts:
    """Lists of models without those that come twice in one list."""
    lists = ["|".join(dict.fromkeys(part for part in s.split("|") if part)) for s in specs.names]
    named = texts_of(lists)
    return Texts(named.codes[specs.codes], named.names)


FORMAT = Format("openb", "the pods of Alibaba's cluster-trace-gpu-v2023", (LAYOUT,), read)
