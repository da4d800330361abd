"""A table of throughputs, as Gavel's files have it: steps per second of a model on each GPU model.

The file is JSON: GPU model -> ``('ResNet-18 (batch size 64)', 2)`` -> ``{"null": steps/s alone,
OTHER: [steps/s, steps/s of the other]}``. GPU models are written in capitals here (`V100`);
entries named ``v100_unconsolidated`` say what a gang reaches that is spread over hosts.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from msgspec import Struct

from topmast.model.errors import InvalidInput
from topmast.model.units import show
from topmast.traces.source import open_regular, place

MAX_BYTES = 2**28
SPREAD = "_unconsolidated"
_KEY = re.compile(r"\('(.+)', ([0-9]{1,5})\)")


class Work(Struct, frozen=True):
    """What is timed: a job type on so many GPUs."""

    model: str
    gpus: int


class Throughputs(Struct, frozen=True):
    """Steps per second, by what is timed and by GPU model; absent where it does not run."""

    where: str
    alone: dict[Work, dict[str, float]]
    spread: dict[Work, dict[str, float]]
    """The same over several hosts."""
    together: dict[tuple[Work, Work], dict[str, tuple[float, float]]]
    """Of two that share their GPUs; absent where one of them gets nowhere."""

    def speeds(self, work: Work) -> dict[str, float]:
        """GPU models on which the work runs, the newest name first, and its steps per second."""
        return self.alone.get(work, {})

    def timed(self, model: str, gpus: int) -> Work:
        """The entry for a job type: on so many GPUs, else on one."""
        work = Work(model, gpus)
        return work if self.speeds(work) else Work(model, 1)

    def steps_per_s(self, work: tuple[str, int], model: str) -> float | None:
        """Of a job alone on a GPU model; None: not known. O(1)."""
        return self.speeds(self.timed(*work)).get(model)

    def beside(
        self, one: tuple[str, int], other: tuple[str, int], model: str
    ) -> tuple[float, float] | None:
        """The speeds of two on the same GPUs, each over its speed alone; None: not known. O(1)."""
        first, second = self.timed(*one), self.timed(*other)
        found = self.together.get((first, second), {}).get(model)
        alone = self.speeds(first).get(model), self.speeds(second).get(model)
        if found is None or not alone[0] or not alone[1]:
            return None
        return min(1.0, found[0] / alone[0]), min(1.0, found[1] / alone[1])


def read_throughputs(path: Path) -> Throughputs:
    """The table in the file at ``path``."""
    where = place(path)
    with open_regular(path) as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise InvalidInput("is larger than 256 MiB", where=where)
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"is not JSON: {show(str(error))}", where=where) from None
    if not isinstance(document, dict) or not document:
        raise _wrong(where, "", "is no mapping of GPU models")
    table = Throughputs(where, {}, {}, {})
    # By name from last to first: V100 before P100 before K80, the reference model first.
    for name in sorted(document, reverse=True):
        _read_model(table, name, document[name])
    return table


def _read_model(table: Throughputs, name: str, entries: Any) -> None:
    if not isinstance(entries, dict):
        raise _wrong(table.where, name, "is no mapping of job types")
    model = name.removesuffix(SPREAD).upper()
    target = table.spread if name.endswith(SPREAD) else table.alone
    for key, rates in entries.items():
        work = _work(table.where, f"{name}.{key}", key)
        if not isinstance(rates, dict):
            raise _wrong(table.where, f"{name}.{key}", "is no mapping")
        alone = _rate(table.where, f"{name}.{key}.null", rates.get("null", 0.0))
        if alone > 0:
            target.setdefault(work, {})[model] = alone
        if target is table.alone:
            _read_pairs(table, model, work, rates, f"{name}.{key}")


def _read_pairs(
    table: Throughputs, model: str, work: Work, rates: dict[str, Any], field: str
) -> None:
    for key, pair in rates.items():
        if key == "null":
            continue
        other = _work(table.where, f"{field}.{key}", key)
        if not isinstance(pair, list) or len(pair) != 2:
            raise _wrong(table.where, f"{field}.{key}", "is not a pair of numbers")
        own, others = (_rate(table.where, f"{field}.{key}", rate) for rate in pair)
        if own > 0 and others > 0:
            table.together.setdefault((work, other), {})[model] = (own, others)


def _work(where: str, field: str, key: str) -> Work:
    found = _KEY.fullmatch(key)
    if found is None:
        raise _wrong(where, field, "names no job type", "('ResNet-18 (batch size 64)', 2)")
    return Work(found[1], int(found[2]))


def _rate(where: str, field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise _wrong(where, field, f"{show(str(value))} is no rate", "steps per second")
    return float(value)


def _wrong(where: str, field: str, message: str, remedy: str = "") -> InvalidInput:
    return InvalidInput(
        message, field=field if field.isprintable() else show(field), where=where, remedy=remedy
    )
