"""Engines and stores of a server that follow the fleet while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager

import structlog

from topmast.adapters.engines.registry import check_engines, with_engines
from topmast.adapters.objects import StoreMover
from topmast.app.process import Process
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.errors import InvalidInput
from topmast.model.fleet import ClusterSpec, Fleet
from topmast.model.fleet_changes import cluster_regions
from topmast.ports import Post
from topmast.service.profile import later_profile

log = structlog.get_logger(__name__)


class HeldNews:
    """What an engine tells before its cluster is in the fleet: kept, in order, until it is."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._kept: list[m.Message] | None = []
        self._lock = threading.Lock()

    def __call__(self, message: m.Message) -> None:
        with self._lock:
            if self._kept is not None:
                self._kept.append(message)
                return
        self._post(message)

    def release(self) -> None:
        """Hand on what was kept, and from now on all that comes."""
        with self._lock:
            kept, self._kept = self._kept or [], None
            for message in kept:
                self._post(message)


class LiveSurroundings:
    """`service.fleet_changes.Surroundings` of a process. One call at a time.

    ``stores_of``: where the regions of a fleet keep their datasets. ``apart``: regions with
    processes of their own, which open engines themselves when they hear of clusters. ``require``
    raises InvalidInput for a fleet that this process may not serve.
    """

    def __init__(
        self,
        process: Process,
        mover: StoreMover,
        stores_of: Callable[[Fleet], dict[str, str]],
        apart: Container[str],
        require: Callable[[Fleet], None],
    ) -> None:
        self._process = process
        self._mover = mover
        self._stores_of = stores_of
        self._apart = apart
        self._require = require
        self._new: dict[str, HeldNews] = {}

    def check_file(self, fleet: Fleet) -> None:
        """Raises InvalidInput for the first thing that engines find wrong with a fleet file."""
        check_engines(fleet, self._process.outside.engines)

    def checked(self, fleet: Fleet) -> Fleet:
        """The fleet, each cluster told what its engine can do. Raises InvalidInput."""
        self._require(fleet)
        process = self._process
        now = process.machines.profile
        # The next leader could not lead a fleet that its profile does not fit.
        with_engines(fleet, later_profile(process.journal.option, now), process.outside.engines)
        return with_engines(fleet, now, process.outside.engines)

    def open(self, fleet: Fleet) -> None:
        """Open the engines and stores that are new; those that leave stay until `settle`.

        Raises InvalidInput.
        """
        now = self._process.machines.queue.fleet
        with _as_invalid("regions", "a store cannot be made"):
            self._mover.set_regions({**self._stores_of(now), **self._stores_of(fleet)})
        for region in fleet.regions:
            for cluster in region.clusters if region.name not in self._apart else ():
                if cluster.name not in self._process.engines:
                    self._equip(region.name, cluster)

    def _equip(self, region: str, cluster: ClusterSpec) -> None:
        news = HeldNews(self._process.poster(ids.cluster(cluster.name)))
        field = f"regions.{region}.clusters.{cluster.name}"
        with _as_invalid(field, f"engine '{cluster.engine}' cannot be opened"):
            self._process.equip(region, cluster, news)
        self._new[cluster.name] = news

    def settle(self, fleet: Fleet) -> None:
        """This is the fleet now: hear the engines that are new, and close what it does not have."""
        process, clusters = self._process, cluster_regions(fleet)
        for name, news in self._new.items():
            if name in clusters:
                news.release()
                # A cluster of this name may have been here before: what runs is to be told anew.
                process.runtime.post(ids.cluster(name), m.Recovered())
        self._new.clear()
        for name in [name for name in process.engines if name not in clusters]:
            process.unequip(name)
            log.info("the engine of a cluster was closed: it left the fleet", cluster=name)
        self._mover.set_regions(self._stores_of(fleet))


@contextmanager
def _as_invalid(field: str, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = "`topmast doctor --fleet FILE` on the server's machine looks at it"
        raise InvalidInput(f"{what}: {error}", field=field, remedy=remedy) from None
