"""A problem read from JSON, and refused with the field and the remedy when it makes no sense."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topmast.model.errors import Faults
from topmast.model.files.problems import (
    check_amount,
    check_name,
    check_unique,
    convert,
    parse,
)
from topmast.model.units import show
from topmast.slow.capacity.problem import Cluster, Host, Problem

MAX_GPUS_PER_HOST = 1_000_000
MAX_GPUS = 1e12
MAX_PRICE = 1e12


def parse_problem(text: bytes, where: str = "problem") -> Problem:
    """The problem in a JSON document; `InvalidInput` says which field of ``where`` is wrong."""
    return parse(text, Problem, check, where)


def convert_problem(document: Mapping[str, Any], where: str = "problem") -> Problem:
    """The problem in a document that is in memory already."""
    return convert(document, Problem, check, where)


def check(faults: Faults, problem: Problem) -> None:
    """Find all that makes no sense. O(size of the problem)."""
    for index, cluster in enumerate(problem.clusters):
        _check_cluster(faults, f"clusters[{index}]", cluster)
    check_unique(faults, "clusters", [cluster.name for cluster in problem.clusters])
    clusters = {cluster.name for cluster in problem.clusters}
    for index, host in enumerate(problem.hosts):
        _check_host(faults, f"hosts[{index}]", host, clusters)
    check_unique(faults, "hosts", [host.name for host in problem.hosts])
    check_amount(faults, "buffer_fraction", problem.buffer_fraction, 1.0)
    for name in problem.prices.__struct_fields__:
        check_amount(faults, f"prices.{name}", getattr(problem.prices, name), MAX_PRICE)


def _check_cluster(faults: Faults, field: str, cluster: Cluster) -> None:
    check_name(faults, f"{field}.name", cluster.name)
    for model, gpus in cluster.capacity.items():
        check_amount(faults, f"{field}.capacity.{model}", gpus, MAX_GPUS)
    if cluster.datacenter is not None:
        check_name(faults, f"{field}.datacenter", cluster.datacenter)


def _check_host(faults: Faults, field: str, host: Host, clusters: set[str]) -> None:
    for name in ("name", "model", "datacenter", "domain"):
        check_name(faults, f"{field}.{name}", getattr(host, name))
    if not 0 <= host.gpus <= MAX_GPUS_PER_HOST:
        message = f"{host.gpus} is out of range"
        faults.add(message, f"{field}.gpus", f"from 0 to {MAX_GPUS_PER_HOST}")
    if host.cluster is not None and host.cluster not in clusters:
        remedy = "null, or a cluster that the problem lists; one that is given up has capacity {}"
        faults.add(f"unknown cluster {show(host.cluster)}", f"{field}.cluster", remedy)
