"""The hosts of one region in columns: what is free, and where it stands in the topology.

Where gangs share GPUs in turns, every host has a row for each time slice: that of host h in slice s
is ``s * places + h``. A gang lies whole in one slice of one cluster, so that its tasks run at the
same time (the matrix of Ousterhout, *Scheduling Techniques for Concurrent Systems*, ICDCS '82).

Owned by the regional placer, changed only through the methods here. GPUs are counted by slot in
thousandths. A slot may go below zero: then a preemptor has claimed what a victim still holds, and
no other attempt can take it when it comes free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Protocol, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from topmast.fast.region.inventory.allocation import Allocation
from topmast.fast.region.inventory.allocation_index import AllocationIndex
from topmast.fast.region.inventory.arrays import Arrays
from topmast.fast.region.inventory.sections import Sections
from topmast.model.columns import SeatColumns
from topmast.model.engines import Capability
from topmast.model.fleet import HostSpec, RegionSpec
from topmast.model.job import MILLI, Level, Resources
from topmast.model.plan import PlacementRequest, Seat
from topmast.model.reason import PendingReason
from topmast.model.states import HostState

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

UNLIMITED = float("inf")
CPU_DECIMALS = 6
"""Sums of CPUs are rounded, so that taking and giving back, in any order, leaves what was there."""


class Affinity(Protocol):
    """Which of equally good GPUs a gang should have (see timesharing.slot_affinity)."""

    def host(self, columns: Columns, alike: Bools, row: int, count: int) -> int:
        """One of ``alike`` hosts for a gang with so many GPUs; ``row`` if it is all the same."""

    def slots(self, columns: Columns, row: int, free_milli: Ints, lowest: list[int]) -> list[int]:
        """As many free slots of a host as ``lowest``."""


class Amounts:
    """What is free on hosts, from which seats are taken."""

    def slots(self, row: int) -> Ints:
        """The free thousandths of the GPUs of one host."""
        raise NotImplementedError

    def _other_than_gpus(self, row: int) -> tuple[float, float]:
        """Free CPUs and memory of a host."""
        raise NotImplementedError

    def row(self, host: str, time_slice: int) -> int:
        """The row of a host in a slice."""
        raise NotImplementedError

    def _move(
        self, seats: Iterable[Seat], needs: dict[str, Resources], time_slice: int, sign: int
    ) -> None:
        raise NotImplementedError

    def take(self, seats: Iterable[Seat], needs: dict[str, Resources], time_slice: int = 0) -> None:
        """Subtract what the seats hold in a slice; ``needs`` by group name. O(slots held)."""
        self._move(seats, needs, time_slice, -1)

    def give_back(
        self, seats: Iterable[Seat], needs: dict[str, Resources], time_slice: int = 0
    ) -> None:
        """Add what the seats held in a slice. O(slots held)."""
        self._move(seats, needs, time_slice, +1)

    def release(self, gone: Iterable[Allocation]) -> Self:
        """Give back what attempts hold; returns itself. O(slots held)."""
        for allocation in gone:
            self.give_back(allocation.plan.seats, allocation.needs(), allocation.plan.in_slice)
        return self

    def is_overdrawn(
        self, seats: Iterable[Seat], needs: dict[str, Resources], time_slice: int = 0
    ) -> bool:
        """Whether more is taken than is there, of what any of the seats uses. O(their slots)."""
        return any(self.overdrawn(seat, needs[seat.group], time_slice) for seat in seats)

    def overdrawn(self, seat: Seat, needs: Resources, time_slice: int = 0) -> bool:
        """Whether more is taken than is there, of what the seat uses. O(slots of the seat)."""
        row = self.row(seat.host, time_slice)
        free, (cpus, memory) = self.slots(row), self._other_than_gpus(row)
        return (
            any(slot >= len(free) or free[slot] < 0 for slot in seat.slots)
            or (needs.cpus > 0 and cpus < 0)
            or (needs.memory_bytes > 0 and memory < 0)
        )


class Columns(Amounts):
    """Arrays over the hosts of a region, ordered by slice, then as its configuration has them.

    ``domain[level]`` (5 x hosts) numbers the host's domain at each level; ``free_milli`` (slots)
    holds every GPU of every host, host h owning ``free_milli[offset[h]:offset[h + 1]]``.
    """

    affinity: Affinity | None = None
    """What chooses among equally good GPUs; None: the first are taken."""
    version: Ints
    """(H) grows when what is free of a host has changed, or whether it is in service."""
    changes: Ints
    """(parts) grows with the version of any host of the part."""

    def __init__(self, region: RegionSpec, slices: int = 1) -> None:
        """``slices``: how often each host stands here, once for every time slice."""
        self.region, self.slices = region.name, slices
        self._known = [h for c in region.clusters for h in c.hosts]
        self.places = len(self._known)
        """How many hosts there are, and rows in each slice."""
        self.hosts: list[HostSpec] = [_in_slices(h, slices) for h in self._known] * slices
        """By row."""
        self.cluster_of: list[str] = [c.name for c in region.clusters for _ in c.hosts] * slices
        """By row."""
        self.index = {host.name: i for i, host in enumerate(self._known)}
        """By host, its row in the first slice."""
        self.models = np.array([h.model if h.gpus else "" for h in self.hosts], dtype=object)
        self.gpus: Ints = np.array([h.gpus for h in self.hosts], dtype=np.int64)
        self.width = int(self.gpus.max(initial=0)) + 1
        """One more than the GPUs of the widest host."""
        self.offset: Ints = np.concatenate([[0], np.cumsum(self.gpus)]).astype(np.int64)
        self.aside: object = None
        """What seats kept out of these columns take, as it was last worked out."""
        self._gpus_of, self._first_slot = _ints(self.gpus), _ints(self.offset)
        self.cpus: Floats = np.array(
            [round(h.cpus, CPU_DECIMALS) or UNLIMITED for h in self.hosts], dtype=np.float64
        )
        self.memory: Floats = np.array(
            [float(h.memory_bytes) or UNLIMITED for h in self.hosts], dtype=np.float64
        )
        self.size_of = _sizes_of(self.hosts)
        """Hosts of one number have as many GPUs and CPUs and as much memory."""
        self.domain = self._domains()
        self.clusters = _rows_of_clusters(region)
        """By cluster, the rows of its hosts in the first slice."""
        self.parts = [(name, number) for name in sorted(self.clusters) for number in range(slices)]
        """Each cluster in each slice, in the order of the index."""
        self.free_milli: Ints = np.full(int(self.offset[-1]), MILLI, dtype=np.int64)
        self.free_cpus, self.free_memory = self.cpus.copy(), self.memory.copy()
        self.unable = self._unable(region)
        self.version, self.changes, self.states = (
            np.zeros_like(self.size_of),
            np.zeros(len(self.parts), np.int64),
            [HostState.HEALTHY] * len(self.hosts),
        )
        self.available: Bools = np.ones(len(self.hosts), dtype=np.bool_)
        self.sections = Sections(
            self.parts,
            [(name, row // self.places) for row, name in enumerate(self.cluster_of)],
            self.models,
            self.gpus,
            self.domain,
        )
        self.reasons: dict[object, PendingReason] = {}
        """Why gangs find no place here, as far as that depends on the hosts alone (see explain)."""
        self.allocations: Mapping[str, Allocation] = {}
        """By job, the allocations, where they are known; kept by the placer."""
        self.closed: Mapping[str, str] = {}
        """Why, by host, its cluster gives it no new work, where that is known; kept likewise."""
        self.watched = True
        """Whether the index knows of the allocations: not where nothing is ever stopped."""
        self.grown: dict[str, None] = {}
        """Clusters with more room than when this was emptied last."""
        self.pool: object = None
        """The `index.Pool` that these columns are in, if they are in one."""
        self.counts: AllocationIndex | None = None
        """What is counted over these columns; None until it is first asked for."""
        self.first_row = 0
        """The number of the first host in the index."""

    @cached_property
    def names_of_models(self) -> tuple[str, ...]:
        """The models of the hosts' GPUs, by name. O(hosts) once."""
        return tuple(sorted({h.model for h in self._known if h.gpus}))

    @cached_property
    def model_of(self) -> Ints:
        """(H) the number of each host's model among those; any for a host without GPUs."""
        numbers = {name: at for at, name in enumerate(self.names_of_models)}
        return np.array([numbers.get(name, 0) for name in self.models], dtype=np.int64)

    def adopt(
        self, counts: AllocationIndex, arrays: Arrays, version: Ints, changes: Ints, first_row: int
    ) -> None:
        """Keep what is free in an index, from ``first_row`` on; ``changes`` are of these parts."""
        self.counts, self.changes, self.first_row = counts, changes, first_row
        rows = slice(first_row, first_row + len(self.hosts))
        start = int(arrays.offset[first_row])
        self.free_milli = arrays.free_milli[start : start + len(self.free_milli)]
        self.free_cpus = arrays.free_cpus[rows]
        self.free_memory = arrays.free_memory[rows]
        self.available = arrays.available[rows]
        self.version = version[rows]

    def _domains(self) -> Ints:
        """Number the domains of each level by first appearance; a name counts within its parent."""
        domain: Ints = np.zeros((len(Level), len(self.hosts)), dtype=np.int64)
        for level in Level:
            numbers: dict[tuple[str, ...], int] = {}
            for i, host in enumerate(self.hosts):
                path = (
                    str(i // self.places), self.cluster_of[i],
                    host.datacenter, host.pod, host.rack, host.name,
                )  # fmt: skip
                key = path[: len(path) - level]
                domain[level, i] = numbers.setdefault(key, len(numbers))
        return domain

    def _unable(self, region: RegionSpec) -> dict[Capability, list[int]]:
        """By capability, the rows of the hosts of clusters without it."""
        found: dict[Capability, list[int]] = {}
        for capability in Capability:
            names = {c.name for c in region.clusters if not c.can(capability)}
            found[capability] = [i for i, name in enumerate(self.cluster_of) if name in names]
        return found

    def known(self, host: str) -> HostSpec:
        """A host as the fleet file has it, with all of its memory."""
        return self._known[self.index[host]]

    def rows_in(self, cluster: str, time_slice: int) -> Ints:
        """The rows of a cluster's hosts in a slice."""
        return self.clusters[cluster] + time_slice * self.places

    def rows_of(self, hosts: Iterable[str]) -> list[int]:
        """The rows of these hosts in every slice, of those that are there. O(hosts x slices)."""
        known = [self.index[host] for host in hosts if host in self.index]
        return [row + number * self.places for row in known for number in range(self.slices)]

    def unfit(self, ask: PlacementRequest) -> list[int]:
        """The rows of hosts in clusters with an engine that cannot run the gang. O(these)."""
        return [row for capability in ask.capabilities for row in self.unable[capability]]

    def excluded(self, ask: PlacementRequest) -> list[int]:
        """The rows of hosts that the gang avoids, that are reserved for something else before it
        would end, and of those that cannot run it. O(these).
        """
        barred = self.rows_of(ask.avoid_hosts) + self.unfit(ask)
        return barred + self.rows_of(ask.reserved) if ask.reserved else barred

    def row(self, host: str, time_slice: int) -> int:
        """The row of a host in a slice."""
        return self.index[host] + time_slice * self.places

    def find(self, host: str, time_slice: int) -> int | None:
        """The row of a host in a slice; None if either has left the configuration."""
        row = self.index.get(host)
        return None if row is None or time_slice >= self.slices else self.row(host, time_slice)

    def take_work(self, hosts: Iterable[str], time_slice: int = 0) -> bool:
        """Whether all of these hosts are there, with this slice, and take work. O(hosts)."""
        rows = [self.find(host, time_slice) for host in hosts]
        return all(row is not None and bool(self.available[row]) for row in rows)

    def unheld_by_host(self) -> Ints:
        """Thousandths of the GPUs of each host that are held in no slice (places). O(slots)."""
        if self.slices == 1:
            return self.free_by_host()
        least = np.clip(self.free_milli, 0, None).reshape(self.slices, -1).min(axis=0)
        total = np.concatenate([[0], np.cumsum(least)])
        ends = self.offset[1 : self.places + 1]
        return np.asarray(total[ends] - total[self.offset[: self.places]], dtype=np.int64)

    def set_state(self, host: str, state: HostState) -> None:
        """Note a host's state; only a healthy one takes work. O(slices)."""
        for row in self.rows_of((host,)):
            self.states[row] = state
            if self.counts is not None:
                self.counts.serve(self.first_row + row, state is HostState.HEALTHY)
            else:
                self.available[row] = state is HostState.HEALTHY
            self._changed((row,))
        if state is HostState.HEALTHY:
            self.grown[self.cluster_of[self.index[host]]] = None

    def hold(self, allocation: Allocation) -> None:
        """An attempt takes its seats; it is in ``allocations`` already. O(slots of its hosts)."""
        plan, needs = allocation.plan, allocation.needs()
        if not self.watched:
            self.take(plan.seats, needs, plan.in_slice)
            return
        self._add(plan.seats, needs, plan.in_slice, -1)
        if self.counts is not None:
            self.counts.hold(self, allocation)

    def have_room(self, seats: SeatColumns) -> bool:
        """Whether all these seats are free, on hosts that take work, and none is there twice.

        For gangs without CPUs and memory. O(slots).
        """
        if self.slices > 1 or not all(host in self.index for host in seats.hosts):
            return False
        rows, taken, slots = self._taken_by(seats)
        numbers = slots - np.repeat(self.offset[rows], taken)
        return bool(
            self.available[rows].all()
            and (numbers < np.repeat(self.gpus[rows], taken)).all()
            and (self.free_milli[slots] == MILLI).all()
            and len(np.unique(slots)) == len(slots)
        )

    def _taken_by(self, seats: SeatColumns) -> tuple[Ints, Ints, Ints]:
        """The rows of the hosts, how many slots are taken of each, and the numbers of these."""
        rows = np.array([self.index[host] for host in seats.hosts], dtype=np.int64)
        gpus = np.array([kind.gpus for kind in seats.kinds], dtype=np.int64)[list(seats.kind)]
        taken = np.array(seats.tasks, dtype=np.int64) * np.repeat(gpus, seats.spans)
        slots = np.repeat(self.offset[rows], taken) + np.array(seats.slots, dtype=np.int64)
        return rows, taken, slots

    def hold_each(self, seats: SeatColumns, allocations: Sequence[Allocation]) -> None:
        """Several attempts without CPUs and memory take their seats. O(slots of their hosts)."""
        rows, taken, slots = self._taken_by(seats)
        self.free_milli[slots] -= MILLI
        self.version[rows] += 1
        self.changes[self.sections.cluster[rows]] += 1
        if self.counts is None:
            return
        hosts = self.first_row + rows
        if self.watched:
            self.counts.hold_each(self, seats, hosts, taken, allocations)
        else:
            for host in dict.fromkeys(hosts.tolist()):
                self.counts.recount(host)

    def let_go(self, allocation: Allocation) -> None:
        """An attempt gives its seats back; it is not among the ``allocations`` any more."""
        plan, needs = allocation.plan, allocation.needs()
        self.grown[plan.cluster] = None
        if not self.watched:
            self.give_back(plan.seats, needs, plan.in_slice)
            return
        self._add(plan.seats, needs, plan.in_slice, +1)
        if self.counts is not None:
            self.counts.let_go(self, allocation.job)

    def note(self, allocation: Allocation) -> None:
        """An attempt may be stopped now or no more, or kept its work. O(entries of its hosts)."""
        if self.watched and self.counts is not None:
            self.counts.note(self, allocation)

    def _move(
        self, seats: Iterable[Seat], needs: dict[str, Resources], time_slice: int, sign: int
    ) -> None:
        rows = self._add(seats, needs, time_slice, sign)
        if self.counts is not None and self.watched:
            self.counts.refresh_each(self.first_row + np.array(rows, np.int64))
        elif self.counts is not None:
            for row in rows:
                self.counts.recount(self.first_row + row)

    def _add(
        self, seats: Iterable[Seat], needs: dict[str, Resources], time_slice: int, sign: int
    ) -> list[int]:
        """Change what is free; returns the rows of the hosts that are there, each once."""
        rows: dict[int, None] = {}
        for seat in seats:
            row = self.find(seat.host, time_slice)
            if row is None:
                continue  # the host left the fleet, or the profile has fewer slices now
            free, gpus, change = self.free_milli, self._gpus_of[row], sign * seat.slot_milli
            base = self._first_slot[row]
            for slot in seat.slots:
                if slot < gpus:  # the host may have lost GPUs in a new configuration
                    free[base + slot] += change
            need = needs[seat.group]
            if need.cpus:
                cpus = self.free_cpus[row] + sign * cpus_of(need)
                self.free_cpus[row] = round(cpus, CPU_DECIMALS)
            if need.memory_bytes:
                self.free_memory[row] += sign * need.memory_bytes
            rows[row] = None
        self._changed(rows)
        return list(rows)

    def _changed(self, rows: Iterable[int]) -> None:
        """Something about the hosts of these rows is other than before. O(rows)."""
        for row in rows:
            self.version[row] += 1
            self.changes[self.sections.cluster[row]] += 1

    def _other_than_gpus(self, row: int) -> tuple[float, float]:
        return float(self.free_cpus[row]), float(self.free_memory[row])

    def free_gpus_milli(self, rows: Ints) -> int:
        """Thousandths held in no slice, on hosts that take work; ``rows``: of the first slice."""
        return int(self.unheld_by_host()[rows][self.available[rows]].sum())

    def slots(self, row: int) -> Ints:
        """A view of the free thousandths of the GPUs of one host."""
        return self.free_milli[self._first_slot[row] : self._first_slot[row + 1]]

    def whole_free(self) -> Ints:
        """Wholly free GPUs by host (hosts). O(slots)."""
        whole = (self.free_milli == MILLI).astype(np.int64)
        return self._sum_by_host(whole)

    def free_by_host(self) -> Ints:
        """Thousandths free by host, claimed slots counting nothing (hosts). O(slots)."""
        return self._sum_by_host(np.clip(self.free_milli, 0, None))

    def shares_free(self, milli: int) -> Ints:
        """How many shares of ``milli`` fit by host (hosts). O(slots)."""
        return self._sum_by_host(np.clip(self.free_milli, 0, None) // milli)

    def _sum_by_host(self, values: Ints) -> Ints:
        total = np.concatenate([[0], np.cumsum(values)])
        return np.asarray(total[self.offset[1:]] - total[self.offset[:-1]], dtype=np.int64)

    def empty(self) -> Columns:
        """The same hosts with nothing allocated and all of them healthy."""
        copy = self._copy()
        copy.free_milli = np.full_like(self.free_milli, MILLI)
        copy.free_cpus = self.cpus.copy()
        copy.free_memory = self.memory.copy()
        copy.available = np.ones(len(self.hosts), dtype=np.bool_)
        return copy

    def trial(self) -> Columns:
        """A copy with free amounts of its own."""
        copy = self._copy()
        copy.free_milli = self.free_milli.copy()
        copy.free_cpus = self.free_cpus.copy()
        copy.free_memory = self.free_memory.copy()
        copy.available = self.available.copy()
        return copy

    def still(self) -> Columns:
        """A copy that stays as it is while these columns change. O(slots)."""
        copy = self.trial()
        copy.states, copy.closed, copy.reasons = list(self.states), dict(self.closed), {}
        copy.version, copy.changes = self.version.copy(), self.changes.copy()
        return copy

    def without(self, gone: Iterable[Allocation]) -> Columns:
        """A copy once some attempts are gone. O(slots)."""
        return self.trial().release(gone)

    def avoiding(self, rows: Sequence[int]) -> Columns:
        """The columns with the hosts of some rows out of service; itself for none. O(slots)."""
        if not rows:
            return self
        copy = self.trial()
        copy.available[rows] = False
        return copy

    def _copy(self) -> Columns:
        """The same hosts, in no pool."""
        copy = Columns.__new__(Columns)
        copy.__dict__.update(self.__dict__)
        copy.pool, copy.counts, copy.first_row = None, None, 0
        copy.allocations = {}
        return copy


def _ints(values: Ints) -> list[int]:
    found: list[int] = values.tolist()
    return found


def _sizes_of(hosts: Sequence[HostSpec]) -> Ints:
    """Numbers by which hosts of one size have the same (hosts)."""
    sizes: dict[tuple[int, float, int], int] = {}
    numbers = [sizes.setdefault((h.gpus, h.cpus, h.memory_bytes), len(sizes)) for h in hosts]
    return np.array(numbers, dtype=np.int64)


def _rows_of_clusters(region: RegionSpec) -> dict[str, Ints]:
    ends = np.cumsum([0, *(len(c.hosts) for c in region.clusters)], dtype=np.int64).tolist()
    return {c.name: np.arange(ends[at], ends[at + 1]) for at, c in enumerate(region.clusters)}


def _in_slices(host: HostSpec, slices: int) -> HostSpec:
    """A host as each slice has it: all GPUs and CPUs, used in turns, and a part of the memory.

    Suspended work keeps its memory.
    """
    if slices == 1:
        return host
    return msgspec.structs.replace(host, memory_bytes=host.memory_bytes // slices)


def cpus_of(resources: Resources) -> float:
    """The CPUs of a task, in whole millionths."""
    return max(round(resources.cpus, CPU_DECIMALS), 10.0**-CPU_DECIMALS) if resources.cpus else 0.0
