"""Datasets at run time: replicas, copies in flight."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class ReplicaState(StrEnum):
    """Whether a region's copy may be read."""

    COPYING = "copying"
    COMPLETE = "complete"


class Copy(Struct, frozen=True):
    """A copy of a dataset on its way. ``cause`` says who wanted it: a person, or a job's id."""

    id: str
    dataset: str
    source: str
    target: str
    bytes: int
    cause: str
    begun_s: float
