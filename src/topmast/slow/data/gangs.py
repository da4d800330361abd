"""Which regions cannot hold a gang whole, however empty they are: no plan of data may count on
serving it there.
"""

from __future__ import annotations

from msgspec import Struct

from topmast.model.fleet import ClusterSpec, Fleet, HostSpec
from topmast.model.job import MILLI


class Gang(Struct, frozen=True):
    """Tasks that start together in one cluster, and the thousandths of GPUs of each."""

    tasks: int = 1
    milli: int = 0


ALONE = Gang()
"""Work of unknown gang size: any region may serve it."""


class Rooms:
    """What the clusters of a fleet hold when they are empty."""

    def __init__(self, fleet: Fleet) -> None:
        self._regions = sorted(fleet.regions, key=lambda region: region.name)
        self._known: dict[tuple[str, Gang], tuple[str, ...]] = {}

    def barred(self, model: str, gang: Gang) -> tuple[str, ...]:
        """The regions that have GPUs of ``model`` ("" or an unknown one: any), where none of their
        clusters holds the gang.

        Empty if no region could hold it: a plan can do nothing for that. O(hosts), or O(1) if it
        was asked before.
        """
        key = (model, gang)
        if key not in self._known:
            self._known[key] = self._barred(model, gang)
        return self._known[key]

    def _barred(self, model: str, gang: Gang) -> tuple[str, ...]:
        if gang.milli <= 0:
            return ()
        every = [h for r in self._regions for c in r.clusters for h in c.hosts if h.gpus]
        named = model if any(host.model == model for host in every) else ""
        there = [
            r for r in self._regions if any(_takes(h, named) for c in r.clusters for h in c.hosts)
        ]
        short = tuple(r.name for r in there if not any(_holds(c, named, gang) for c in r.clusters))
        return () if len(short) == len(there) else short


def _takes(host: HostSpec, model: str) -> bool:
    return host.gpus > 0 and model in ("", host.model)


def _holds(cluster: ClusterSpec, model: str, gang: Gang) -> bool:
    """Whether an empty cluster has hosts of one model for all tasks of a gang."""
    tasks: dict[str, int] = {}
    for host in cluster.hosts:
        if _takes(host, model):
            tasks[host.model] = tasks.get(host.model, 0) + _tasks_on(host, gang.milli)
    return max(tasks.values(), default=0) >= gang.tasks


def _tasks_on(host: HostSpec, milli: int) -> int:
    """How many tasks the GPUs of a host take; a share of a GPU sits on one."""
    return host.gpus * (MILLI // milli) if milli < MILLI else host.gpus * MILLI // milli
