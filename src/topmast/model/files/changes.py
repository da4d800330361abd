"""Changes of jobs as a request says them, with the names of a job file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from topmast.model.errors import MOST_TOLD, InvalidInput, refuse_all, restated
from topmast.model.files.fields import nearest, one_of
from topmast.model.files.jobfile import MAX_RESTARTS
from topmast.model.job import Band, JobChanges
from topmast.model.units import MAX_DURATION_S


def changes_within(document: Any, at: str) -> JobChanges:
    """The same as `changes_of`, of an object that another field holds."""
    with restated(lambda error: error.at(field=error.field.replace("changes", at, 1))):
        return changes_of(document)


def changes_of(document: Any) -> JobChanges:
    """Changes from the JSON of a request. Raises InvalidInput, with all that is wrong."""
    known = ", ".join(FIELDS)
    if not isinstance(document, dict) or not document:
        raise InvalidInput(
            "must be an object that says what changes", field="changes", remedy=known
        )
    found: dict[str, Any] = {}
    errors: list[InvalidInput] = []
    for name, value in document.items():
        try:
            if name not in FIELDS:
                remedy = nearest(name, FIELDS) or f"known: {known}"
                field = f"changes.{name[:100]}"
                raise InvalidInput("cannot be changed", field=field, remedy=remedy)
            field, read = FIELDS[name]
            found[field] = read(value)
        except InvalidInput as error:
            errors.append(error)
        if len(errors) == MOST_TOLD:
            break
    refuse_all(errors)
    return JobChanges(**found)


def _band(name: Any) -> Band:
    known = [band.name.lower() for band in Band]
    if not isinstance(name, str) or name.lower() not in known:
        shown, remedy = str(name)[:100], one_of(str(name), known)
        raise InvalidInput(f"unknown band '{shown}'", field="changes.priority", remedy=remedy)
    return Band[name.upper()]


def _duration_s(name: str, null: str, value: Any) -> float | None:
    """``null``: what that means there."""
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0 < value <= MAX_DURATION_S:
        remedy = f"seconds, more than 0 and at most {MAX_DURATION_S:g}; null is {null}"
        raise InvalidInput("must be a duration", field=f"changes.{name}", remedy=remedy)
    return float(value)


def _restarts(value: Any) -> int:
    field, remedy = "changes.max_restarts", f"a whole number from 0 to {MAX_RESTARTS}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput("must be a whole number", field=field, remedy=remedy)
    if not 0 <= value <= MAX_RESTARTS:
        wanted = "must be 0 or more" if value < 0 else f"must be {MAX_RESTARTS} or less"
        raise InvalidInput(wanted, field=field, remedy=remedy)
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput("must be true or false", field="changes.preemptible")
    return value


FIELDS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "priority": ("band", _band),
    "time_limit_s": ("time_limit_s", partial(_duration_s, "time_limit_s", "no limit")),
    "max_restarts": ("max_restarts", _restarts),
    "preemptible": ("preemptible", _truth),
    "expected_duration_s": (
        "duration_s", partial(_duration_s, "expected_duration_s", "not known"),
    ),
}  # fmt: skip
"""What may be changed: the field of `JobChanges`, and what reads it."""
