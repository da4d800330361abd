"""A problem read from JSON, and refused with the field and the remedy when it makes no sense."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from topmast.model.errors import Faults
from topmast.model.files.problems import (
    check_amount,
    check_name,
    check_unique,
    convert,
    parse,
)
from topmast.model.units import show
from topmast.slow.data.problem import Prices, Problem, Table, Workload

MAX_BYTES = float(2**63)
MAX_AMOUNT = 1e12
"""GPUs or CPUs, in one place."""
MAX_PRICE = 1e18
MAX_REGIONS = 64


def parse_problem(text: bytes, where: str = "problem") -> Problem:
    """The problem in a JSON document; `InvalidInput` says which field of ``where`` is wrong."""
    return parse(text, Problem, check, where)


def convert_problem(document: Mapping[str, Any], where: str = "problem") -> Problem:
    """The problem in a document that is in memory already."""
    return convert(document, Problem, check, where)


def check(faults: Faults, problem: Problem) -> None:
    """Find all that makes no sense. O(size of the problem)."""
    _check_regions(faults, problem)
    regions = {region.name for region in problem.regions}
    for index, table in enumerate(problem.tables):
        _check_table(faults, f"tables[{index}]", table, regions)
    check_unique(faults, "tables", [table.name for table in problem.tables])
    tables = {table.name for table in problem.tables}
    for index, workload in enumerate(problem.workloads):
        _check_workload(faults, f"workloads[{index}]", workload, tables)
    check_unique(faults, "workloads", [workload.name for workload in problem.workloads])
    for index, link in enumerate(problem.links):
        field = f"links[{index}]"
        _known(faults, f"{field}.from", [link.source], regions, "region")
        _known(faults, f"{field}.to", [link.target], regions, "region")
        check_amount(faults, f"{field}.bytes_per_period", link.bytes_per_period, MAX_BYTES)
        if link.source == link.target:
            faults.add("a link from a region to itself", f"{field}.to", "name two regions")
    if problem.move_budget_bytes is not None:
        check_amount(faults, "move_budget_bytes", problem.move_budget_bytes, MAX_BYTES)
    _check_prices(faults, problem.prices)


def _check_regions(faults: Faults, problem: Problem) -> None:
    if not problem.regions:
        faults.add("names no region", "regions", "give at least one")
    if len(problem.regions) > MAX_REGIONS:
        faults.add(f"has {len(problem.regions)} regions", "regions", f"at most {MAX_REGIONS}")
    for index, region in enumerate(problem.regions):
        field = f"regions[{index}]"
        check_name(faults, f"{field}.name", region.name)
        check_amount(faults, f"{field}.storage_bytes", region.storage_bytes, MAX_BYTES)
        check_amount(faults, f"{field}.cpus", region.cpus, MAX_AMOUNT)
        for model, gpus in region.gpus.items():
            check_amount(faults, f"{field}.gpus.{model}", gpus, MAX_AMOUNT)
    check_unique(faults, "regions", [region.name for region in problem.regions])


def _check_table(faults: Faults, field: str, table: Table, regions: set[str]) -> None:
    check_name(faults, f"{field}.name", table.name)
    check_amount(faults, f"{field}.bytes", table.bytes, MAX_BYTES)
    _known(faults, f"{field}.replicas", table.replicas, regions, "region")
    _once(faults, f"{field}.replicas", table.replicas)
    if table.allowed is not None:
        _known(faults, f"{field}.allowed", table.allowed, regions, "region")
        _once(faults, f"{field}.allowed", table.allowed)
    if table.min_replicas < 0:
        faults.add(f"{table.min_replicas} is negative", f"{field}.min_replicas", "0 or more")


def _check_workload(faults: Faults, field: str, workload: Workload, tables: set[str]) -> None:
    check_name(faults, f"{field}.name", workload.name)
    _known(faults, f"{field}.tables", workload.tables, tables, "table")
    _once(faults, f"{field}.tables", workload.tables)
    check_amount(faults, f"{field}.cpus", workload.cpus, MAX_AMOUNT)
    for model, gpus in workload.gpus.items():
        check_amount(faults, f"{field}.gpus.{model}", gpus, MAX_AMOUNT)


def _check_prices(faults: Faults, prices: Prices) -> None:
    for name in ("non_collocated_gpu", "non_collocated_cpu", "replica_byte", "moved_byte"):
        check_amount(faults, f"prices.{name}", getattr(prices, name), MAX_PRICE)
    if not prices.overload_gpu:
        faults.add("names no price", "prices.overload_gpu", "such as [[0.1, 2.0], [1.0, 5.0]]")
    before = (0.0, 0.0)
    for index, (fraction, price) in enumerate(prices.overload_gpu):
        field = f"prices.overload_gpu[{index}]"
        check_amount(faults, field, price, MAX_PRICE)
        if not math.isfinite(fraction) or fraction <= before[0] or fraction > MAX_AMOUNT:
            faults.add(
                f"the fraction {fraction:g} does not rise", field, "finite, each above the last"
            )
        if price < before[1]:
            faults.add(f"the price {price:g} falls", field, "prices do not decrease")
        before = (fraction, price)
    if prices.overload_gpu and before[1] < prices.non_collocated_gpu:
        faults.add(
            f"the last price {before[1]:g} is below"
            f" non_collocated_gpu {prices.non_collocated_gpu:g}",
            "prices.overload_gpu",
            "make the last at least as high, or overload would never be refused",
        )


def _known(faults: Faults, field: str, names: Iterable[str], known: set[str], what: str) -> None:
    for name in names:
        if name not in known:
            faults.add(
                f"unknown {what} {show(name)}", field, f"name a {what} that the problem lists"
            )


def _once(faults: Faults, field: str, names: tuple[str, ...]) -> None:
    if len(names) < 2:
        return
    seen = set[str]()
    for name in names:
        if name in seen:
            faults.add(f"{show(name)} is listed twice", field, "list it once")
        seen.add(name)


class Earlier(msgspec.Struct, frozen=True):
    """What is read of an earlier answer: placement, shares, and what it has warm_start."""

    placement: dict[str, tuple[str, ...]]
    serve: dict[str, dict[str, float]] = {}
    duals: Any = None
