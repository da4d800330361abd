"""What people are shown of plans: where data lies, and which cluster has which hosts."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class DataMoveView(Struct, frozen=True):
    """A replica that a plan makes or deletes."""

    op: str
    """``copy`` or ``drop``."""
    dataset: str
    region: str
    """Where the replica comes to be, or no longer is."""
    source: str | None
    """The region it is copied from."""
    bytes: float
    state: str
    """``under way``, ``done``, ``to come`` or ``given up``."""
    why: str


class DataPlanView(Struct, frozen=True):
    """The plan of where data lies."""

    every_s: float | None
    """None: nothing is planned."""
    next_s: float | None
    solving: bool
    number: int | None
    """None: there is no plan yet."""
    applied_s: float | None
    figures: dict[str, Any]
    """Those of the planner's answer."""
    forecast: dict[str, Any]
    """The forecast's errors on days held out; empty: too few days."""
    copies_left: int
    copies_in_flight: int
    drops_left: int
    done: int
    given_up: tuple[str, ...]
    trouble: str | None
    """Why the latest plan failed, so that an earlier one stays in force."""
    trouble_s: float | None
    fetched: int = 0
    """How many jobs had data copied on demand within the last period."""
    fetched_most: int | None = None
    """How many of these are allowed; None: any number."""
    moves: tuple[DataMoveView, ...] = ()
    """What the plan in force moves, some hundreds at most: under way, given up, done, to come."""


class CapacityRow(Struct, frozen=True):
    """A cluster and GPU model in a plan of capacity, in GPUs."""

    region: str
    cluster: str
    gpu_model: str
    configured: float
    """In the fleet file."""
    unmet: float
    """What jobs waited for, on average over the time before the plan."""
    idle: float
    """What had no work, on average over the time before the plan."""
    requested: float
    """What the cluster asked for."""
    lacking: float
    """The part of it that it could not be given."""
    gpus: float
    """What it has now."""
    lent: float = 0.0
    """Those of ``gpus`` that belong to the region's buffer."""


class HostMoveView(Struct, frozen=True):
    """A host that takes no new work, and goes to another cluster when it is empty."""

    host: str
    cluster: str
    leaves_for: str


class CapacityPlanView(Struct, frozen=True):
    """The plan that assigns hosts to clusters."""

    every_s: float | None
    """None: nothing is planned."""
    next_s: float | None
    solving: bool
    number: int | None
    """None: there is no plan yet."""
    applied_s: float | None
    figures: dict[str, dict[str, Any]]
    """Those of the planner's answers, by region."""
    clusters: tuple[CapacityRow, ...]
    leaving: tuple[HostMoveView, ...]
    trouble: str | None
    """Why the latest plan failed, so that an earlier one stays in force."""
    trouble_s: float | None
    buffer: tuple[str, ...] = ()
    """Spare hosts: no cluster's plan counts on them, but jobs may run on them."""
    out_of_reach: tuple[str, ...] = ()
    """Regions of other processes that cannot be planned for now."""
