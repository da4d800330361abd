"""Jobs of one request that differ in little, as those of a sweep: what they share is read once."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from topmast.model.errors import InvalidInput
from topmast.model.files.documents import from_document
from topmast.model.files.environment import read_envs
from topmast.model.files.fields import Value, is_name
from topmast.model.files.jobfile import read_script
from topmast.model.files.labels import read_labels
from topmast.model.files.source import JOB_LIMITS
from topmast.model.job import JobSpec

LONGEST_BYTES = 15_000
"""So long is what jobs may share; with what differs they are within the limits of a document."""

_FEW, _SHORT = 100, 10_000
"""Variables, and characters of their values together, that are surely within the limits."""


def _name(spec: JobSpec, own: Any, changes: dict[str, Any]) -> None:
    plain = type(own) is str and is_name(own)
    changes["name"] = own if plain else _value("name", own).name()


def _run(spec: JobSpec, own: Any, changes: dict[str, Any]) -> None:
    (only,) = spec.groups
    if own != only.run:
        changes["groups"] = (replace(only, run=read_script(_value("run", own))),)


def _envs(spec: JobSpec, own: Any, changes: dict[str, Any]) -> None:
    """Most often its variables are those of ``spec``, and their values cannot be wrong."""
    known = isinstance(own, dict) and len(own) <= _FEW and own.keys() == spec.envs.keys()
    plain = known and _are_plain(own.values())
    changes["envs"] = own if plain else read_envs(_value("envs", own))


def _are_plain(values: Collection[Any]) -> bool:
    """Whether these are short texts of printable ASCII. O(their characters)."""
    length = 0
    for value in values:
        if type(value) is not str or not (value.isascii() and value.isprintable()):
            return False
        length += len(value)
    return length <= _SHORT


def _labels(spec: JobSpec, own: Any, changes: dict[str, Any]) -> None:
    changes["labels"] = read_labels(_value("labels", own)) or UNSET


def _value(field: str, own: Any) -> Value:
    return Value(from_document(own, "", JOB_LIMITS), field, "")


_OWN = {"name": _name, "run": _run, "envs": _envs, "labels": _labels}
"""Fields in which jobs may differ, and what notes the changes of a job that is alike otherwise.

What they may hold does not depend on any other field, but for `_BOUND`.
"""
_BOUND = ("secrets", "depends_on")
"""Fields that the above, or the jobs before, bear on: a job with one of them is read whole."""


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
                read(spec, own, changes)
    except InvalidInput:
        return None
    return replace(spec, **changes)
