"""The field ``sweep`` of a job file: which jobs a submission becomes."""

from __future__ import annotations

import math

from topmast.model.files.environment import ENV_LIMIT_BYTES, check_name
from topmast.model.files.fields import Record, Value
from topmast.model.sweep import Span, Sweep

MAX_JOBS = 100_000
MAX_VARIABLES = 100
MAX_NUMBER = 10**15

_WAYS = ("matrix", "list", "range")


def read_sweep(value: Value | None) -> Sweep | None:
    """The settings of a sweep. Raises InvalidInput."""
    if value is None:
        return None
    fields = value.record((*_WAYS, "max_parallel"))
    given = [way for way in _WAYS if fields.get(way) is not None]
    if len(given) != 1:
        what = " and ".join(given) if given else "no settings"
        raise value.error(f"has {what}", "give one of matrix, list and range")
    parallel = fields.get("max_parallel")
    limit = parallel.integer(low=1, high=MAX_JOBS) if parallel else None
    sweep = _settings(given[0], fields.need(given[0]), limit)
    if not 1 <= sweep.size <= MAX_JOBS:
        raise value.error(f"becomes {sweep.size:,} jobs", f"from 1 to {MAX_JOBS:,}")
    return sweep


def _settings(way: str, value: Value, limit: int | None) -> Sweep:
    if way == "matrix":
        return Sweep(matrix=_matrix(value), max_parallel=limit)
    if way == "list":
        listed = value.items(limit=MAX_JOBS)
        return Sweep(settings=tuple(_setting(item) for item in listed), max_parallel=limit)
    fields = value.record(("variable", "from", "to", "step"))
    return _range(fields, limit)


def _matrix(value: Value) -> dict[str, tuple[str, ...]]:
    found = {}
    for name, entry in value.entries(limit=MAX_VARIABLES).items():
        check_name(name, entry)
        items = entry.items(limit=MAX_JOBS)
        found[name] = tuple(item.raw(limit_bytes=ENV_LIMIT_BYTES) for item in items)
        if not items:
            raise entry.error("lists no value", "leave the variable out")
    if math.prod(len(values) for values in found.values()) > MAX_JOBS:
        raise value.error("has too many combinations", f"at most {MAX_JOBS:,}")
    return found


def _setting(item: Value) -> dict[str, str]:
    found = {}
    for name, entry in item.entries(limit=MAX_VARIABLES).items():
        check_name(name, entry)
        found[name] = entry.raw(limit_bytes=ENV_LIMIT_BYTES)
    return found


def _range(fields: Record, limit: int | None) -> Sweep:
    variable = fields.need("variable", "SEED")
    name = variable.name()
    check_name(name, variable)
    first, last, step = (fields.get(field) for field in ("from", "to", "step"))
    last = last or fields.need("to", "99")
    low = first.integer(low=-MAX_NUMBER, high=MAX_NUMBER) if first else 0
    high = last.integer(low=low, high=MAX_NUMBER)
    by = step.integer(low=1, high=MAX_NUMBER) if step else 1
    return Sweep(span=Span(low, high, by), variable=name, max_parallel=limit)


def dump_sweep(sweep: Sweep) -> dict[str, object]:
    """What `read_sweep` reads back."""
    limit = {} if sweep.max_parallel is None else {"max_parallel": sweep.max_parallel}
    if sweep.span is not None:
        numbers = {"from": sweep.span.first, "to": sweep.span.last, "step": sweep.span.step}
        return {"range": {"variable": sweep.variable, **numbers}, **limit}
    if sweep.settings:
        return {"list": [dict(setting) for setting in sweep.settings], **limit}
    return {"matrix": {name: list(values) for name, values in sweep.matrix.items()}, **limit}
