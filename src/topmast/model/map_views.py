"""The fleet as a map: every host with the jobs that hold its GPUs, region by region."""

from __future__ import annotations

from msgspec import Struct


class HolderView(Struct, frozen=True, gc=False):
    """A job that holds GPUs."""

    name: str
    """Empty for a job of a tenant that the reader may not see."""
    tenant: str
    band: str
    state: str


class HostCells(Struct, frozen=True, gc=False):
    """A host and what holds its GPUs."""

    name: str
    rack: str
    model: str
    gpus: int
    state: str
    held: dict[str, float]
    """GPUs by job, in the order of its slots."""
    closed: str = ""
    """By what order it takes no new work and why, or what its engine says; empty: it does."""


class ClusterCells(Struct, frozen=True):
    """The hosts of a cluster."""

    name: str
    hosts: tuple[HostCells, ...]


class RegionCells(Struct, frozen=True):
    """The clusters of a region."""

    name: str
    reachable: bool
    """False while the region does not answer; its hosts are then as last known."""
    clusters: tuple[ClusterCells, ...]


class FleetMap(Struct, frozen=True):
    """Every host of every region, and the jobs that hold GPUs."""

    at_s: float
    """When it was drawn; with many hosts it is kept for some seconds."""
    jobs: dict[str, HolderView]
    """By the names that ``held`` has; those of others' jobs are numbers without meaning."""
    regions: tuple[RegionCells, ...]
