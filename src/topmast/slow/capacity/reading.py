"""A problem read from JSON, and refused with the field and the remedy when it makes no sense."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from topmast.model.errors import InvalidInput
from topmast.model.units import show
from topmast.slow.capacity.problem import Cluster, Host, Problem

MAX_GPUS_PER_HOST = 1_000_000
MAX_GPUS = 1e12
MAX_PRICE = 1e12


def parse_problem(text: bytes, where: str = "problem") -> Problem:
    """The problem in a JSON document; `InvalidInput` says which field of ``where`` is wrong."""
    return _checked(text, where, msgspec.json.decode)


def convert_problem(document: Mapping[str, Any], where: str = "problem") -> Problem:
    """The problem in a document that is in memory already."""
    return _checked(document, where, msgspec.convert)


def _checked(source: Any, where: str, decode: Any) -> Problem:
    try:
        problem: Problem = decode(source, type=Problem)
        check(problem)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        field = place.rstrip("`").lstrip(".")
        raise InvalidInput(message[:1].lower() + message[1:], field=field, where=where) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"not JSON: {error}", where=where) from None
    except InvalidInput as error:
        raise InvalidInput(
            error.message, field=error.field, where=where, remedy=error.remedy
        ) from None
    except RecursionError:
        raise InvalidInput("nested too deeply", where=where) from None
    return problem


def check(problem: Problem) -> None:
    """Raise `InvalidInput` for the first thing that makes no sense. O(size of the problem)."""
    for index, cluster in enumerate(problem.clusters):
        _check_cluster(f"clusters[{index}]", cluster)
    _unique("clusters", [cluster.name for cluster in problem.clusters])
    clusters = {cluster.name for cluster in problem.clusters}
    for index, host in enumerate(problem.hosts):
        _check_host(f"hosts[{index}]", host, clusters)
    _unique("hosts", [host.name for host in problem.hosts])
    _amount("buffer_fraction", problem.buffer_fraction, 1.0)
    for name in problem.prices.__struct_fields__:
        _amount(f"prices.{name}", getattr(problem.prices, name), MAX_PRICE)


def _check_cluster(field: str, cluster: Cluster) -> None:
    _name(f"{field}.name", cluster.name)
    for model, gpus in cluster.capacity.items():
        _amount(f"{field}.capacity.{model}", gpus, MAX_GPUS)
    if cluster.datacenter is not None:
        _name(f"{field}.datacenter", cluster.datacenter)


def _check_host(field: str, host: Host, clusters: set[str]) -> None:
    for name in ("name", "model", "datacenter", "domain"):
        _name(f"{field}.{name}", getattr(host, name))
    if not 0 <= host.gpus <= MAX_GPUS_PER_HOST:
        message = f"{host.gpus} is out of range"
        _refuse(f"{field}.gpus", message, f"from 0 to {MAX_GPUS_PER_HOST}")
    if host.cluster is not None and host.cluster not in clusters:
        remedy = "null, or a cluster that the problem lists; one that is given up has capacity {}"
        _refuse(f"{field}.cluster", f"unknown cluster {show(host.cluster)}", remedy)


def _refuse(field: str, message: str, remedy: str) -> None:
    raise InvalidInput(message, field=field, remedy=remedy)


def _name(field: str, name: str) -> None:
    if not name.strip():
        _refuse(field, "must not be empty", "give it a name")


def _amount(field: str, value: float, high: float) -> None:
    if not math.isfinite(value) or not 0 <= value <= high:
        _refuse(field, f"{value:g} is out of range", f"from 0 to {high:g}, finite")


def _unique(field: str, names: list[str]) -> None:
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if first.setdefault(name, index) != index:
            message = f"the name {show(name)} is that of {field}[{first[name]}] too"
            _refuse(f"{field}[{index}].name", message, "names are unique")
