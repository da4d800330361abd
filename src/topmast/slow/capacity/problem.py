"""One capacity assignment to be decided, as its file says it: hosts, clusters, the buffer,
prices.
"""

from __future__ import annotations

from msgspec import Struct


class Host(Struct, frozen=True, forbid_unknown_fields=True):
    """A healthy host, where it stands, and the cluster that owns it (None: the shared buffer)."""

    name: str
    model: str
    gpus: int
    datacenter: str
    domain: str
    rack: str = ""
    cluster: str | None = None
    in_use: bool = False


class Cluster(Struct, frozen=True, forbid_unknown_fields=True):
    """A cluster, and the GPUs by model that it should have, even while a fault domain is down."""

    name: str
    capacity: dict[str, float]
    survive_domain: bool
    datacenter: str | None = None


class Prices(Struct, frozen=True, forbid_unknown_fields=True):
    """The prices, all in one currency: per GPU, or per host that moves."""

    shortfall_gpu: float
    buffer_gpu: float
    move_in_use: float
    move_idle: float
    far_gpu: float


class Problem(Struct, frozen=True, forbid_unknown_fields=True):
    """A whole problem. ``buffer_fraction``: of all GPUs of a model, the part to be left
    unassigned.
    """

    hosts: tuple[Host, ...]
    clusters: tuple[Cluster, ...]
    buffer_fraction: float
    prices: Prices
