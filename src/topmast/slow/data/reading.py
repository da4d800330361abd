"""A problem read from JSON, and refused with the field and the remedy when it makes no sense."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from topmast.model.errors import InvalidInput
from topmast.model.units import show
from topmast.slow.data.problem import Prices, Problem, Table, Workload

MAX_BYTES = float(2**63)
MAX_AMOUNT = 1e12
"""GPUs or CPUs, in one place."""
MAX_PRICE = 1e18
MAX_REGIONS = 64


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
        raise InvalidInput(_lower(message), field=field, where=where) from None
    except msgspec.DecodeError as error:
        raise InvalidInput(f"not JSON: {error}", where=where) from None
    except InvalidInput as error:
        raise InvalidInput(
            error.message, field=error.field, where=where, remedy=error.remedy
        ) from None
    except RecursionError:
        raise InvalidInput("nested too deeply", where=where) from None
    return problem


def _lower(message: str) -> str:
    """Messages begin small, as they stand after the name of a field."""
    return message[:1].lower() + message[1:]


def check(problem: Problem) -> None:
    """Raise `InvalidInput` for the first thing that makes no sense. O(size of the problem)."""
    _check_regions(problem)
    regions = {region.name for region in problem.regions}
    for index, table in enumerate(problem.tables):
        _check_table(f"tables[{index}]", table, regions)
    _unique("tables", [table.name for table in problem.tables])
    tables = {table.name for table in problem.tables}
    for index, workload in enumerate(problem.workloads):
        _check_workload(f"workloads[{index}]", workload, tables)
    _unique("workloads", [workload.name for workload in problem.workloads])
    for index, link in enumerate(problem.links):
        field = f"links[{index}]"
        _known(f"{field}.from", [link.source], regions, "region")
        _known(f"{field}.to", [link.target], regions, "region")
        _amount(f"{field}.bytes_per_period", link.bytes_per_period, MAX_BYTES)
        if link.source == link.target:
            _refuse(f"{field}.to", "a link from a region to itself", "name two regions")
    if problem.move_budget_bytes is not None:
        _amount("move_budget_bytes", problem.move_budget_bytes, MAX_BYTES)
    _check_prices(problem.prices)


def _check_regions(problem: Problem) -> None:
    if not problem.regions:
        _refuse("regions", "names no region", "give at least one")
    if len(problem.regions) > MAX_REGIONS:
        _refuse("regions", f"has {len(problem.regions)} regions", f"at most {MAX_REGIONS}")
    for index, region in enumerate(problem.regions):
        field = f"regions[{index}]"
        _name(f"{field}.name", region.name)
        _amount(f"{field}.storage_bytes", region.storage_bytes, MAX_BYTES)
        _amount(f"{field}.cpus", region.cpus, MAX_AMOUNT)
        for model, gpus in region.gpus.items():
            _amount(f"{field}.gpus.{model}", gpus, MAX_AMOUNT)
    _unique("regions", [region.name for region in problem.regions])


def _check_table(field: str, table: Table, regions: set[str]) -> None:
    _name(f"{field}.name", table.name)
    _amount(f"{field}.bytes", table.bytes, MAX_BYTES)
    _known(f"{field}.replicas", table.replicas, regions, "region")
    _once(f"{field}.replicas", table.replicas)
    if table.allowed is not None:
        _known(f"{field}.allowed", table.allowed, regions, "region")
        _once(f"{field}.allowed", table.allowed)
    if table.min_replicas < 0:
        _refuse(f"{field}.min_replicas", f"{table.min_replicas} is negative", "0 or more")


def _check_workload(field: str, workload: Workload, tables: set[str]) -> None:
    _name(f"{field}.name", workload.name)
    _known(f"{field}.tables", workload.tables, tables, "table")
    _once(f"{field}.tables", workload.tables)
    _amount(f"{field}.cpus", workload.cpus, MAX_AMOUNT)
    for model, gpus in workload.gpus.items():
        _amount(f"{field}.gpus.{model}", gpus, MAX_AMOUNT)


def _check_prices(prices: Prices) -> None:
    for name in ("non_collocated_gpu", "non_collocated_cpu", "replica_byte", "moved_byte"):
        _amount(f"prices.{name}", getattr(prices, name), MAX_PRICE)
    if not prices.overload_gpu:
        _refuse("prices.overload_gpu", "names no price", "such as [[0.1, 2.0], [1.0, 5.0]]")
    before = (0.0, 0.0)
    for index, (fraction, price) in enumerate(prices.overload_gpu):
        field = f"prices.overload_gpu[{index}]"
        _amount(field, price, MAX_PRICE)
        if not math.isfinite(fraction) or fraction <= before[0] or fraction > MAX_AMOUNT:
            _refuse(
                field, f"the fraction {fraction:g} does not rise", "finite, each above the last"
            )
        if price < before[1]:
            _refuse(field, f"the price {price:g} falls", "prices do not decrease")
        before = (fraction, price)
    if before[1] < prices.non_collocated_gpu:
        _refuse(
            "prices.overload_gpu",
            f"the last price {before[1]:g} is below non_collocated_gpu {prices.non_collocated_gpu:g}",
            "make the last at least as high, or overload would never be refused",
        )


def _refuse(field: str, message: str, remedy: str) -> None:
    raise InvalidInput(message, field=field, remedy=remedy)


def _name(field: str, name: str) -> None:
    if not name.strip():
        _refuse(field, "must not be empty", "give it a name")


def _amount(field: str, value: float, high: float) -> None:
    if not math.isfinite(value) or not 0 <= value <= high:
        _refuse(field, f"{value:g} is out of range", f"from 0 to {high:g}, finite")


def _known(field: str, names: Iterable[str], known: set[str], what: str) -> None:
    for name in names:
        if name not in known:
            _refuse(field, f"unknown {what} {show(name)}", f"name a {what} that the problem lists")


def _unique(field: str, names: list[str]) -> None:
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if name in first:
            message = f"the name {show(name)} is that of {field}[{first[name]}] too"
            _refuse(f"{field}[{index}].name", message, "names are unique")
        first[name] = index


def _once(field: str, names: tuple[str, ...]) -> None:
    if len(names) < 2:
        return
    seen = set[str]()
    for name in names:
        if name in seen:
            _refuse(field, f"{show(name)} is listed twice", "list it once")
        seen.add(name)


class Earlier(msgspec.Struct, frozen=True):
    """What is read of an earlier answer: placement, shares, and what it has learnt."""

    placement: dict[str, tuple[str, ...]]
    serve: dict[str, dict[str, float]] = {}
    duals: Any = None
