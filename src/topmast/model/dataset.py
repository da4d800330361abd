"""Datasets at run time: replicas, copies in flight."""

from __future__ import annotations

import re
from enum import StrEnum

from msgspec import Struct


def dataset_variable(name: str) -> str:
    """The environment variable by which a task finds a dataset."""
    return f"TOPMAST_DATASET_{re.sub('[^A-Za-z0-9]', '_', name).upper()}"


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
