"""Jobs of one request that differ in little, as those of a sweep: what they share is read once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from topmast.model.errors import InvalidInput
from topmast.model.files.environment import read_envs
from topmast.model.files.fields import Value
from topmast.model.files.jobfile import read_script
from topmast.model.files.labels import read_labels
from topmast.model.files.source import JOB_LIMITS, from_document
from topmast.model.job import JobSpec

LONGEST_BYTES = 15_000
"""So long is what jobs may share; with what differs they are within the limits of a document."""

_OWN: dict[str, Callable[[JobSpec, Value], dict[str, Any]]] = {
    "name": lambda spec, value: {"name": value.name()},
    "run": lambda spec, value: _with_run(spec, read_script(value)),
    "envs": lambda spec, value: {"envs": read_envs(value)},
    "labels": lambda spec, value: {"labels": read_labels(value) or UNSET},
}
"""Fields in which jobs may differ, and what each changes of a job that is alike otherwise.

What they may hold does not depend on any other field, but for `_BOUND`.
"""
_BOUND = ("secrets", "depends_on")
"""Fields that the above, or the jobs before, bear on: a job with one of them is read whole."""


def _with_run(spec: JobSpec, run: str) -> dict[str, Any]:
    (only,) = spec.groups
    return {} if run == only.run else {"groups": (replace(only, run=run),)}


def shared_part(document: dict[str, Any]) -> bytes | None:
    """What jobs must have in common to be alike, as a key; None for one that is read whole.

    ``document`` is as JSON has it. O(document).
    """
    shared = document.copy()
    for field in _OWN:
        if shared.get(field) is not None:
            shared[field] = True
    for field in _BOUND:
        if field in shared:
            return None
    try:
        key = msgspec.json.encode(shared)
    except (RecursionError, TypeError, ValueError):
        return None
    return key if len(key) <= LONGEST_BYTES else None


def read_like(spec: JobSpec, document: dict[str, Any]) -> JobSpec | None:
    """The job in ``document``, of which ``spec`` is one with the same shared part.

    None where something is wrong with it, which `parse_job` has the words for. O(what differs).
    """
    changes: dict[str, Any] = {}
    try:
        for field, read in _OWN.items():
            own = document.get(field)
            if own is not None:
                changes |= read(spec, Value(from_document(own, "", JOB_LIMITS), field, ""))
    except InvalidInput:
        return None
    return replace(spec, **changes)
