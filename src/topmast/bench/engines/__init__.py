"""`topmast bench engines`: gangs on the clusters of a site, beside the tools that the site has.

Each figure is taken twice in the same run: once by the engine of the cluster, which keeps what
Topmast promises, and once by the scheduler's own command or interface. Latencies are taken in
turns, so that both see the same machine.
"""

from __future__ import annotations

import math
import os
import resource
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from topmast.adapters.engines.registry import with_engines
from topmast.bench.engines.bare import BARE, Bare
from topmast.bench.engines.doorbell import Doorbell, address_towards
from topmast.bench.engines.gangs import Gangs, options_of
from topmast.bench.engines.listing import measure_listing
from topmast.bench.options import EnginesOptions
from topmast.bench.setup import folder, machine
from topmast.model.errors import InvalidInput, Unavailable
from topmast.model.files.fleetfile import read_fleet
from topmast.model.fleet import ClusterSpec
from topmast.policies.registry import load_profile

GOAL_TIMES, GOAL_MORE_S = 1.5, 0.2
"""A start may take so many times what it takes the bare tool, and so much more, in the median."""
PAUSE_S = 1.5
"""Before each start alone: a site clears hosts after the one before, and Slurm looks at its queue
once a second, so that else the one of the two that comes after the other waits for it."""
PATIENCE_S = 120.0
"""For a gang to start, and to end."""
SUBMITTERS = 8
"""Of the tool at once, as many as an engine has."""


def measure_engines(options: EnginesOptions, state: Path | None) -> dict[str, Any]:
    """A row for each cluster. Raises InvalidInput, Unavailable."""
    fleet = with_engines(read_fleet(options.fleet), load_profile("mast", {}))
    chosen = [
        (region.name, cluster)
        for region in fleet.regions
        for cluster in region.clusters
        if not options.names or cluster.name in options.names
    ]
    names = [cluster.name for _, cluster in chosen]
    for name in options.names:
        if name not in names:
            known = ", ".join(c.name for region in fleet.regions for c in region.clusters)
            raise InvalidInput(
                f"there is no cluster '{name}'", field="--cluster", remedy=f"known: {known}"
            )
    rows, before = [], os.getloadavg()[0]
    with folder(state) as path:
        for region_name, cluster in chosen:
            with _Rig(cluster, region_name, path / cluster.name, options) as rig:
                rows.append(rig.row())
    given = {"starts": options.starts, "gangs": options.gangs, "jobs": options.jobs}
    load = {"before": before, "after": os.getloadavg()[0]}
    return {"rows": rows, **given, "load": load, "machine": machine()}


class _Rig(ExitStack):
    """One cluster under test."""

    def __init__(
        self, cluster: ClusterSpec, region: str, path: Path, options: EnginesOptions
    ) -> None:
        super().__init__()
        self._cluster = cluster
        self._options = options
        settings = options_of(cluster)
        self._python = getattr(settings, "python", "") or sys.executable
        self._mark = secrets.token_hex(3)
        self._bell = Doorbell(options.home or _home(cluster, settings))
        self.callback(self._bell.close)
        self._bare: Bare = BARE[cluster.engine](cluster, settings)
        self.callback(self._bare.close)
        self._gangs = Gangs(cluster, region, path)
        self.callback(self._gangs.close)
        self._count = 0

    def row(self) -> dict[str, Any]:
        """All figures of the cluster."""
        cluster, options = self._cluster, self._options
        _note(f"{cluster.name}: waiting for its hosts")
        self._usable = self._gangs.open()
        self._tasks = min(options.tasks, len(self._usable))
        self._alone(), self._alone_bare()  # the first time hosts fetch and compile what they need
        _note(f"{cluster.name}: {options.starts} gangs one after the other")
        ours, theirs = [], []
        for _ in range(options.starts):
            ours.append(self._alone())
            theirs.append(self._alone_bare())
        _note(f"{cluster.name}: {options.gangs} gangs at once")
        together = self._together(self._gangs.start, self._end)
        beside = self._together(self._bare.start, self._bare.finish)
        _note(f"{cluster.name}: listing {options.jobs} jobs")
        listing = measure_listing(cluster, self._bare, options.jobs)
        median_s, bare_s = _percentile(ours, 50), _percentile(theirs, 50)
        goal_s = GOAL_TIMES * bare_s + GOAL_MORE_S
        return {
            "engine": cluster.engine,
            "cluster": cluster.name,
            "tasks": self._tasks,
            "latency_p50_s": median_s,
            "latency_p99_s": _percentile(ours, 99),
            "bare_p50_s": bare_s,
            "bare_p99_s": _percentile(theirs, 99),
            "goal_s": goal_s,
            "reached": median_s <= goal_s,
            **together,
            **{f"bare_{name}": value for name, value in beside.items()},
            **listing,
        }

    # --- one after the other --------------------------------------------------------------------

    def _alone(self) -> float:
        """Seconds from the order to the first act of the last task."""
        time.sleep(PAUSE_S)
        name, hosts = self._next()
        began_s = time.monotonic()
        self._gangs.start(name, hosts, self._bell.command(name, self._python))
        started_s = self._started(name)
        self._end(name)
        return started_s - began_s

    def _alone_bare(self) -> float:
        time.sleep(PAUSE_S)
        name, hosts = self._next()
        began_s = time.monotonic()
        self._bare.start(name, hosts, self._bell.command(name, self._python))
        started_s = self._bell.wait(name, self._tasks, PATIENCE_S)
        self._bare.finish(name)
        return started_s - began_s

    def _started(self, name: str) -> float:
        try:
            return self._bell.wait(name, self._tasks, PATIENCE_S)
        except Unavailable as error:
            self._gangs.stop(name)
            if why := self._gangs.trouble(name):
                raise Unavailable(f"cluster {self._cluster.name}: {name}: {why}") from None
            raise error from None

    def _end(self, name: str) -> None:
        self._gangs.wait(name, self._tasks, PATIENCE_S)

    def _next(self) -> tuple[str, list[str]]:
        """A name, and the next hosts."""
        number, self._count = self._count, self._count + 1
        at = number * self._tasks
        hosts = [self._usable[(at + rank) % len(self._usable)] for rank in range(self._tasks)]
        return f"b{self._mark}-{number}", hosts

    # --- all at once ----------------------------------------------------------------------------

    def _together(
        self, start: Callable[[str, Sequence[str], str], None], end: Callable[[str], None]
    ) -> dict[str, float]:
        """Gangs a second: handed to the scheduler, and started; and the CPU time of our side."""
        gangs = [self._next() for _ in range(self._options.gangs)]
        commands = {name: self._bell.command(name, self._python) for name, _ in gangs}
        cpu_s, began_s = _cpu_s(), time.monotonic()
        with ThreadPoolExecutor(SUBMITTERS) as pool:
            list(pool.map(lambda gang: start(gang[0], gang[1], commands[gang[0]]), gangs))
        accepted_s = time.monotonic()
        started_s = max(self._bell.wait(name, self._tasks, PATIENCE_S) for name, _ in gangs)
        used_s = _cpu_s() - cpu_s
        for name, _ in gangs:
            end(name)
        released = [s for name, s in self._gangs.released_s.items() if name in commands]
        accepted_s = max(released, default=accepted_s)
        return {
            "starts_per_s": len(gangs) / (started_s - began_s),
            "accepted_per_s": len(gangs) / (accepted_s - began_s),
            "cpu_ms_per_start": 1e3 * used_s / len(gangs),
        }


def _home(cluster: ClusterSpec, settings: Any) -> str:
    """Where the hosts of a cluster reach this machine: where its runners call."""
    listen, advertise = (
        getattr(settings, "listen", "127.0.0.1:0"),
        getattr(settings, "advertise", ""),
    )
    if advertise:
        return str(advertise).partition(":")[0]
    if not listen.startswith("unix:"):
        return str(listen).rpartition(":")[0].strip("[]")
    host = cluster.hosts[0].name
    return address_towards(settings.address.get(host, host))


def _cpu_s() -> float:
    """CPU time of this process and of the commands that it has run."""
    used = [resource.getrusage(which) for which in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _percentile(seconds: list[float], percent: float) -> float:
    """By the nearest rank."""
    ordered = sorted(seconds)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201
