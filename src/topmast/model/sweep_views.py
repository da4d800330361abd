"""What people are shown of sweeps."""

from __future__ import annotations

from msgspec import Struct


class SweepView(Struct, frozen=True):
    """A sweep as it stands."""

    id: str
    name: str
    tenant: str
    user: str
    band: str
    jobs: int
    """How many it has."""
    first_job: str
    """Its jobs are numbered from here."""
    variables: tuple[str, ...]
    """What differs from job to job."""
    states: dict[str, int]
    """How many of its jobs are in each state."""
    done: float
    """The part of its jobs that has ended, from 0 to 1."""
    gpus: float
    """What its jobs hold now."""
    max_parallel: int | None
    """How many of its jobs may be in the queue or run at a time; None: all."""
    submit_s: float
    finish_s: float | None
    """When the last of its jobs ended; None: not all have."""
    labels: dict[str, str] = {}
    held: int = 0
    """How many of those that have not ended people keep from starting, now or when they stop."""
