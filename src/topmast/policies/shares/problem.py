"""A problem of sharing time, as it stands in its file (docs/reference/allocation.md)."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Job(Struct, frozen=True, forbid_unknown_fields=True):
    """One job: a gang of ``scale_factor`` workers of one type.

    ``throughputs`` are those of the whole gang, in steps/s by type; a type left out is 0.
    ``deadline_s`` counts from now. ``isolated_s``: how long it would have run by now on its own share.
    """

    id: str
    throughputs: dict[str, float]
    scale_factor: int = 1
    weight: float = 1.0
    steps_left: float | None = None
    elapsed_s: float = 0.0
    isolated_s: float = 0.0
    deadline_s: float | None = None
    arrival_s: float = 0.0
    entity: str | None = None


class Pair(Struct, frozen=True, forbid_unknown_fields=True):
    """Two jobs that can share their workers: steps/s of the one and of the other by type."""

    ids: tuple[str, str]
    throughputs: dict[str, tuple[float, float]]


class Entity(Struct, frozen=True, forbid_unknown_fields=True):
    """Who owns jobs: its part, and how its jobs share that part."""

    weight: float = 1.0
    policy: Literal["fairness", "fifo"] = "fairness"


class Problem(Struct, frozen=True, forbid_unknown_fields=True):
    """Workers by type, and the jobs that share them; ``costs`` in USD per worker and hour."""

    workers: dict[str, int]
    jobs: list[Job]
    pairs: list[Pair] = []
    costs: dict[str, float] = {}
    entities: dict[str, Entity] = {}
