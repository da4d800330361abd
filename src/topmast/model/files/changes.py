"""Changes of jobs as a request says them, with the names of a job file."""

from __future__ import annotations

import math
from typing import Any

from msgspec import UNSET, UnsetType

from topmast.model.errors import InvalidInput
from topmast.model.files.fields import nearest, one_of
from topmast.model.files.jobfile import MAX_RESTARTS
from topmast.model.job import Band, JobChanges
from topmast.model.units import MAX_DURATION_S

FIELDS = ("priority", "time_limit_s", "max_restarts", "preemptible", "expected_duration_s")


def changes_within(document: Any, at: str) -> JobChanges:
    """The same as `changes_of`, of an object that another field holds."""
    try:
        return changes_of(document)
    except InvalidInput as error:
        field = error.field.replace("changes", at, 1)
        raise InvalidInput(error.message, field=field, remedy=error.remedy) from None


def changes_of(document: Any) -> JobChanges:
    """Changes from the JSON of a request. Raises InvalidInput."""
    if not isinstance(document, dict) or not document:
        known = ", ".join(FIELDS)
        raise InvalidInput(
            "must be an object that says what changes", field="changes", remedy=known
        )
    for name in document:
        if name not in FIELDS:
            remedy = nearest(name, FIELDS) or f"known: {', '.join(FIELDS)}"
            raise InvalidInput("cannot be changed", field=f"changes.{name[:100]}", remedy=remedy)
    return JobChanges(
        band=_band(document["priority"]) if "priority" in document else UNSET,
        time_limit_s=_duration_s(document, "time_limit_s", "no limit"),
        max_restarts=_restarts(document["max_restarts"]) if "max_restarts" in document else UNSET,
        preemptible=_truth(document["preemptible"]) if "preemptible" in document else UNSET,
        duration_s=_duration_s(document, "expected_duration_s", "not known"),
    )


def _band(name: Any) -> Band:
    known = [band.name.lower() for band in Band]
    if not isinstance(name, str) or name.lower() not in known:
        shown, remedy = str(name)[:100], one_of(str(name), known)
        raise InvalidInput(f"unknown band '{shown}'", field="changes.priority", remedy=remedy)
    return Band[name.upper()]


def _duration_s(document: dict[str, Any], name: str, null: str) -> float | UnsetType | None:
    """``null``: what that means there."""
    value = document.get(name, UNSET)
    if value is None or value is UNSET:
        return value
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0 < value <= MAX_DURATION_S:
        remedy = f"seconds, more than 0 and at most {MAX_DURATION_S:g}; null is {null}"
        raise InvalidInput("must be a duration", field=f"changes.{name}", remedy=remedy)
    return float(value)


def _restarts(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_RESTARTS:
        remedy = f"a whole number from 0 to {MAX_RESTARTS}"
        raise InvalidInput("must be a number", field="changes.max_restarts", remedy=remedy)
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput("must be true or false", field="changes.preemptible")
    return value
