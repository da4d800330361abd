"""Gangs on the engine of one cluster, ordered as its cluster manager does."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from topmast.adapters.engines.far.engine import FarEngine
from topmast.adapters.engines.far.launcher import Listed, Part
from topmast.adapters.engines.registry import ENGINES, read_options
from topmast.model.absent import given
from topmast.model.engines import Deadlines
from topmast.model.errors import Unavailable
from topmast.model.fleet import ClusterSpec
from topmast.model.job import Checkpoint, JobSpec, Resources, TaskGroup
from topmast.model.messages import (
    HostClosed,
    HostDown,
    HostOpened,
    Message,
    StartGang,
    TaskEvicted,
    TaskExited,
    TaskList,
    TaskLost,
)
from topmast.model.plan import Seat
from topmast.ports import Engine, Site

GRACE_S = 5.0
OPEN_S = 60.0


class WallClock:
    """The time of day."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()


def options_of(cluster: ClusterSpec) -> Any:
    """The options of a cluster's engine, as the file says them."""
    kind = ENGINES[cluster.engine]
    deadlines = Deadlines.__struct_fields__
    given = {name: text for name, text in cluster.options.items() if name not in deadlines}
    field = f"clusters.{cluster.name}.options"
    return read_options(given, kind.options_type, engine=cluster.engine, field=field)


class Gangs:
    """An engine with a folder of its own, and what it tells."""

    def __init__(self, cluster: ClusterSpec, region: str, folder: Path) -> None:
        self._cluster = cluster
        self._region = region
        self.released_s: dict[str, float] = {}
        """When the scheduler was last told to let a part of a gang run, by our monotonic clock."""
        site = Site(WallClock(), lambda *_: None, lambda _: None, folder / "checkpoints")
        kind = _noting(ENGINES[cluster.engine], self.released_s)
        self._engine = kind(cluster, folder / "engine", site, options_of(cluster))
        self._changed = threading.Condition()
        self._over: dict[str, int] = {}
        self._lost: dict[str, str] = {}
        self._unusable: dict[str, str] = {}
        self._listed: TaskList | None = None

    def open(self) -> Sequence[str]:
        """Start; the hosts that take work. Raises Unavailable when there is none."""
        self._engine.open(self._heard)
        self.list()
        assert self._listed is not None
        closed = {**given(self._listed.closed_hosts, {}), **self._unusable}
        down = self._listed.down_hosts
        usable = [h.name for h in self._cluster.hosts if h.name not in {*closed, *down}]
        if not usable:
            why = "; ".join(f"{host}: {reason}" for host, reason in closed.items())
            raise Unavailable(f"cluster {self._cluster.name} takes no work: {why or 'all down'}")
        return usable

    def list(self) -> None:
        """Ask the engine what it runs, and wait for the answer."""
        with self._changed:
            self._listed = None
        self._engine.list_tasks()
        with self._changed:
            if not self._changed.wait_for(lambda: self._listed is not None, OPEN_S):
                raise Unavailable(
                    f"engine {self._cluster.engine} of cluster {self._cluster.name} does not say "
                    f"within {OPEN_S:g} s what it runs"
                )

    def start(self, name: str, hosts: Sequence[str], command: str) -> None:
        """Order a gang with one task on each host."""
        groups = (TaskGroup("bench", len(hosts), Resources(), f"exec {command}\n"),)
        spec = JobSpec(name, groups, checkpoint=Checkpoint(grace_s=GRACE_S))
        seats = tuple(Seat("bench", rank, host, ()) for rank, host in enumerate(hosts))
        self._engine.start_gang(StartGang(name, 1, spec, self._region, self._cluster.name, seats))

    def wait(self, name: str, tasks: int, patience_s: float) -> None:
        """Until so many tasks of a gang are told to have ended. Raises Unavailable."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._over.get(name, 0) >= tasks, patience_s):
                raise Unavailable(f"{name} does not end within {patience_s:g} s")

    def trouble(self, name: str) -> str:
        """Why tasks of a gang were lost; empty: none was."""
        with self._changed:
            return self._lost.get(name, "")

    def stop(self, name: str) -> None:
        """End a gang."""
        self._engine.stop(name, 1, 0.0)

    def close(self) -> None:
        """Stop watching."""
        self._engine.close()

    def _heard(self, message: Message) -> None:
        with self._changed:
            match message:
                case TaskExited():
                    self._over[message.job] = self._over.get(message.job, 0) + 1
                    if message.code:
                        self._lost[message.job] = f"exit code {message.code} {message.error}"
                case TaskLost(job=job, error=why) | TaskEvicted(job=job, why=why):
                    self._over[job] = self._over.get(job, 0) + 1
                    self._lost[job] = why
                case HostDown(host=host, error=why) | HostClosed(host=host, why=why):
                    self._unusable[host] = why
                case HostOpened():
                    self._unusable.pop(message.host, None)
                case TaskList():
                    self._listed = message
            self._changed.notify_all()


def _noting(kind: type[Engine], released_s: dict[str, float]) -> type[Engine]:
    """The engine, its launcher noting when the scheduler may run a part."""
    if not issubclass(kind, FarEngine):
        return kind

    def note(name: str) -> None:
        released_s[name.split("-", 2)[-1].rsplit("-", 2)[0]] = time.monotonic()

    class Launcher(kind.launcher_type):  # type: ignore[misc, name-defined]
        def submit(self, part: Part) -> str:
            id: str = super().submit(part)
            note(part.name)
            return id

        def release(self, listed: Sequence[Listed]) -> None:
            super().release(listed)
            for one in listed:
                note(one.name)

    return type(kind.__name__, (kind,), {"launcher_type": Launcher})
