"""Fleets from lists of machines, and fleet files written: what is written is read back first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from topmast.model.errors import InvalidInput
from topmast.model.files.fleetfile import parse_fleet
from topmast.model.fleet import Fleet
from topmast.model.units import show
from topmast.traces.files import replacing
from topmast.traces.formats.base import Options, table_of
from topmast.traces.source import place
from topmast.traces.table import Check, Layout, Table
from topmast.traces.values import Number, Text

MAX_GPUS = 65_536

PAI_MACHINES = Layout(
    {
        "machine": Text(blank=None, id=True),
        "gpu_type": Text(),
        "cap_cpu": Number(high=1e6),
        "cap_mem": Number(high=1e6),
        "cap_gpu": Number(high=MAX_GPUS, whole=True),
    },
    columns=("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu"),
    checks=(
        Check(
            "gpu_type", "is missing from a machine with GPUs",
            lambda row: (row["cap_gpu"] > 0) & [not name for name in row["gpu_type"]],
        ),
    ),
)  # fmt: skip
OPENB_NODES = Layout(
    {
        "sn": Text(blank=None, id=True),
        "cpu_milli": Number(high=1e9, whole=True),
        "memory_mib": Number(high=1e9, whole=True),
        "gpu": Number(high=MAX_GPUS, whole=True),
        "model": Text(),
    },
    checks=(
        Check(
            "model", "is missing from a node with GPUs",
            lambda row: (row["gpu"] > 0) & [not name for name in row["model"]],
        ),
    ),
)  # fmt: skip
FORMATS = ("pai-machines", "openb-nodes")

_Kind = tuple[str, int, float, str]
"""GPU model, GPUs, CPUs, memory."""


def read_machines(path: Path, format: str) -> dict[str, Any]:
    """The fleet of a list of machines, as the document of a fleet file: one region, one cluster."""
    if format not in FORMATS:
        message = f"no list of machines {show(format)} is known"
        raise InvalidInput(message, field="format", remedy=" or ".join(FORMATS))
    options = Options()
    if format == "pai-machines":
        return _fleet("pai", _pai(table_of(path, PAI_MACHINES, options)))
    return _fleet("openb", _openb(table_of(path, OPENB_NODES, options)))


def _pai(table: Table) -> list[_Kind]:
    column = table.columns
    _refuse_twice(table, "machine")
    models = column["gpu_type"].values()
    rows = zip(models, column["cap_gpu"], column["cap_cpu"], column["cap_mem"], strict=True)
    return [(model, int(gpus), cpus, f"{memory:g}GB") for model, gpus, cpus, memory in rows]


def _openb(table: Table) -> list[_Kind]:
    column = table.columns
    _refuse_twice(table, "sn")
    models = column["model"].values()
    rows = zip(models, column["gpu"], column["cpu_milli"], column["memory_mib"], strict=True)
    return [(model, int(gpus), milli / 1000, f"{int(mib)}MiB") for model, gpus, milli, mib in rows]


def _refuse_twice(table: Table, column: str) -> None:
    seen: dict[str, int] = {}
    for row, name in enumerate(table.columns[column]):
        if seen.setdefault(name, row) != row:
            message = f"{show(name)} is on line {table.lines[seen[name]]} too"
            raise table.wrong(row, column, message, "list each machine once")


def _fleet(name: str, machines: list[_Kind]) -> dict[str, Any]:
    """Machines that are alike in one entry, in order of first appearance."""
    counts: dict[_Kind, int] = {}
    for kind in machines:
        counts[kind] = counts.get(kind, 0) + 1
    hosts = []
    for (model, gpus, cpus, memory), count in counts.items():
        host: dict[str, Any] = {"count": count, "name": model.lower() if gpus else "cpu"}
        host |= {"gpu": model} if gpus else {}
        hosts.append(host | {"gpus": gpus, "cpus": _plain(cpus), "memory": memory})
    return {"regions": {name: {"clusters": {name: {"hosts": hosts}}}}}


def _plain(value: float) -> int | float:
    return int(value) if value == int(value) else float(value)


def fleet_text(document: dict[str, Any]) -> str:
    """The fleet file of a document."""
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text = yaml.dump(document, Dumper=dumper, sort_keys=False, default_flow_style=None, width=120)
    assert isinstance(text, str)
    return text


def write_fleet(document: dict[str, Any], path: Path) -> Fleet:
    """Write a fleet file, having made sure that it can be read."""
    fleet = parse_fleet(document, where=place(path))
    with replacing(path) as (_, file):
        file.write(fleet_text(document).encode())
    return fleet
