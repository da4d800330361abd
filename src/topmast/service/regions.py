"""The state of every region, for reading: those of this process, and copies of the others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
import structlog
from msgspec import Struct

from topmast.fast.region import RegionalPlacer
from topmast.model.errors import TopmastError
from topmast.ports import LogPage
from topmast.runtime.machines import Machines, RegionState

FRESH_S = 0.2
"""How old a copy may be."""

log = structlog.get_logger(__name__)


class Elsewhere(Protocol):
    """Asks the process of one region."""

    def get(self, path: str, params: dict[str, str | int] | None = None) -> bytes:
        """What it has at ``path``; raises Unavailable."""
        ...


class LogChunk(Struct, frozen=True):
    """A piece of a task's output."""

    data: bytes
    next_offset: int
    attempt: int
    complete: bool
    """Nothing more can come."""


class Regions:
    """The state of regions; ``peers`` are in other processes, ``reached`` says if a link is up."""

    def __init__(
        self,
        machines: Machines,
        peers: Mapping[str, Elsewhere] | None = None,
        reached: Callable[[str], bool] = lambda region: True,
    ) -> None:
        self._machines = machines
        self._peers = dict(peers or {})
        self._reached = reached
        self._copies: dict[str, RegionalPlacer] = {}
        self._states: dict[str, RegionState] = {}
        self._copied_s: dict[str, float] = {}
        self._shapes: dict[str, int] = {}

    @property
    def placers(self) -> dict[str, RegionalPlacer]:
        """Every placer with a state that is known here; of other processes as of the last `look`.

        Regions that left the fleet are not included: what is left of them has no cluster.
        """
        here = dict(self._machines.placers)  # the runtime's thread may be adding a region
        known = {**{n: p for n, p in here.items() if n not in self._peers}, **self._copies}
        return {name: placer for name, placer in known.items() if placer.columns.clusters}

    def states(self) -> dict[str, RegionState]:
        """The machines of every region of `placers`. To be called between two commits."""
        found = {name: self.state(name) for name in sorted(self.placers)}
        return {name: state for name, state in found.items() if state is not None}

    def state(self, region: str) -> RegionState | None:
        """The machines of a region; None for one that left. To be called between two commits."""
        if region in self._peers:
            return self._states.get(region)
        return self._machines.region_state(region) if region in self._machines.placers else None

    def shapes(self) -> tuple[int, ...] | None:
        """Changes when the hosts of a region do; None until those of every region are known."""
        if any(name not in self._shapes for name in self._peers):
            return None
        here = (id(p.columns) for n, p in self._machines.placers.items() if n not in self._peers)
        return (*here, *self._shapes.values())

    def is_apart(self, region: str) -> bool:
        """Whether the region's placer runs in another process."""
        return region in self._peers

    async def look(self) -> None:
        """Update the copies; a region that cannot be reached keeps its last copy."""
        if self._peers:
            await asyncio.gather(*(asyncio.to_thread(self._copy, name) for name in self._peers))

    def look_now(self, age_s: float) -> None:
        """The same for a thread that may wait; copies not older than ``age_s`` are kept."""
        for name in self._peers:
            self._copy(name, max(age_s, FRESH_S))

    def reached(self) -> dict[str, RegionalPlacer]:
        """The placers of this process, and copies of the others that have their link up."""
        away = self.out_of_reach()
        return {name: placer for name, placer in self.placers.items() if name not in away}

    def out_of_reach(self) -> tuple[str, ...]:
        """Regions of other processes with their link down, or never looked at."""
        return tuple(n for n in self._peers if n not in self._copies or not self._reached(n))

    def _copy(self, region: str, age_s: float = FRESH_S) -> None:
        asked_s = time.monotonic()
        if not self._reached(region) or asked_s - self._copied_s.get(region, -age_s) < age_s:
            return
        try:
            blob = self._peers[region].get("/books")
            state = msgspec.json.decode(blob, type=RegionState)
        except (TopmastError, msgspec.DecodeError) as error:
            log.warning("the state of a region cannot be read", region=region, why=str(error))
            return
        copy = self._machines.copy_of_placer(region, bytes(state.placer))
        known = self._copies.get(region)
        if copy.state.region.clusters and (
            known is None or known.state.region != copy.state.region
        ):
            self._shapes[region] = self._shapes.get(region, 0) + 1
        self._states[region] = state
        self._copies[region], self._copied_s[region] = copy, asked_s

    def log(
        self, region: str, job: str, epoch: int, rank: int, offset: int, limit: int
    ) -> LogPage | None:
        """A piece of a task's output in another process's region; None if there is none. Blocks."""
        where: dict[str, str | int] = {
            "job": job, "epoch": epoch, "rank": rank, "offset": offset, "limit": limit,
        }  # fmt: skip
        try:
            data = self._peers[region].get("/log", where)
        except TopmastError as error:
            log.info("this region's placer has the output", region=region, why=str(error))
            return None
        complete, data = data[:1] == b"1", data[1:]
        return LogPage(data, offset + len(data), complete)
