"""Quota gates: jobs for which quota gives the same answer, so that it is looked up once."""

from __future__ import annotations

from collections.abc import Hashable

from msgspec import Struct

from topmast.model.fleet import Fleet
from topmast.model.job import Band, JobSpec, Resources

Key = tuple[Hashable, ...]
Wanted = tuple[dict[str, int], ...]
"""By choice, thousandths of GPUs by model."""


class QuotaGate(Struct):
    """What one tenant's quota lets jobs use that want the same of it."""

    key: Key
    spec: JobSpec
    """Of one of its jobs: the same for all as far as quota goes."""
    members: dict[int, None] = {}
    """Its job classes with jobs, by number."""
    users: int = 0
    """How many job classes it has, with jobs or without."""
    as_of: int = -1
    """The change of the ledger for which ``choices`` hold."""
    choices: dict[bool, tuple[int, ...]] = {}
    """By mode, the accelerators that it may use."""
    fleet: Fleet | None = None
    """The fleet for which ``wanted`` holds."""
    wanted: Wanted = ()
    """What its jobs take of each GPU model."""


def gate_key(spec: JobSpec) -> Key:
    """All that decides what quota lets a job use: the key of its quota gate."""
    return (spec.tenant, wanted_of(spec), spec.band is Band.OPPORTUNISTIC, spec.preemptible)


def wanted_of(spec: JobSpec) -> tuple[tuple[int, int | None, Resources], ...]:
    """By group, the tasks that there are, or are at least, and what each needs. O(groups)."""
    return tuple([(group.count, group.min_count, group.resources) for group in spec.groups])
