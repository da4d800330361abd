"""A problem of sharing time, as it stands in its file (docs/reference/allocation.md)."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Job(Struct, frozen=True, forbid_unknown_fields=True):
    """One job: a gang of workers of one type."""

    id: str
    throughputs: dict[str, float]
    """Of the whole gang, in steps/s by type; a type left out is 0."""
    scale_factor: int = 1
    """The number of workers."""
    weight: float = 1.0
    steps_left: float | None = None
    elapsed_s: float = 0.0
    isolated_s: float = 0.0
    """How long it would have run by now on its own share."""
    deadline_s: float | None = None
    """From now."""
    arrival_s: float = 0.0
    entity: str | None = None
    before: dict[str, float] = {}
    """The fractions that it has had so far, by type: some policies let a job keep them."""


class Pair(Struct, frozen=True, forbid_unknown_fields=True):
    """Two jobs that can share their workers: steps/s of the one and of the other by type."""

    ids: tuple[str, str]
    throughputs: dict[str, tuple[float, float]]


class Entity(Struct, frozen=True, forbid_unknown_fields=True):
    """An owner of jobs: its part, and how its jobs share that part."""

    weight: float = 1.0
    policy: Literal["fairness", "fifo"] = "fairness"


class Problem(Struct, frozen=True, forbid_unknown_fields=True):
    """Workers by type, and the jobs that share them."""

    workers: dict[str, int]
    jobs: list[Job]
    pairs: list[Pair] = []
    costs: dict[str, float] = {}
    """In USD per worker and hour."""
    entities: dict[str, Entity] = {}
