"""The attempts of an index: rows and entries of `AllocationTable`, given out and taken back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from topmast.fast.preemption_cost import weight_of
from topmast.fast.region.inventory import allocation_table as holdings
from topmast.fast.region.inventory.allocation import Allocation, AllocationPhase
from topmast.fast.region.inventory.allocation_table import NONE, AllocationTable, Table
from topmast.fast.region.inventory.arrays import I64, Arrays, counted_of
from topmast.model.columns import SeatColumns
from topmast.model.job import MILLI

SPARE = 256
"""Rows and entries to begin with."""


class Rows(Protocol):
    """The columns of one region, as far as they are needed here."""

    region: str
    first_row: int
    """The number of its first host in the index."""
    gpus: I64
    """By host."""

    def find(self, host: str, time_slice: int) -> int | None:
        """The row of a host in a slice; None if either has left the configuration."""


class _Entry(Struct, gc=False):
    """What an attempt holds on one host; or one of its shares of a GPU there."""

    number: int
    host: int
    slot: int = NONE
    milli: int = 0
    whole: int = 0
    cpus: float = 0.0
    memory: float = 0.0

    def fields(self, attempt: int, more: int) -> tuple[int | float, ...]:
        """The fields of `ENTRY`, in its order, of an entry that is in no list of a host yet."""
        held = (self.whole, self.slot, self.milli, self.cpus, self.memory)
        return (attempt, self.host, *held, NONE, NONE, more)


class AllocationIndex:
    """Keeps the entries of attempts, and counts hosts anew; ``arrays`` are those of the index."""

    def __init__(self, arrays: Arrays, regions: Sequence[str]) -> None:
        self.counted = counted_of(arrays)
        self.regions = regions
        self.rows: dict[tuple[str, str], int] = {}
        """By region and job."""
        self.jobs: list[tuple[str, str]] = [("", "")] * SPARE
        """The region and job of each row."""
        self.of_region: I64 = np.full(SPARE, NONE, np.int64)
        self.held = _empty(len(arrays.whole), len(arrays.hist))
        self._free_rows = list(range(SPARE))[::-1]
        self._free_entries = list(range(SPARE))[::-1]
        self._gone: I64 = np.zeros(SPARE, np.int64)
        """Room for the entries that an attempt gives back."""

    def serve(self, row: int, available: bool) -> None:
        """A host goes in or out of service. O(levels)."""
        holdings.serve(self.counted, self.held, row, available)

    def refresh_each(self, rows: I64) -> None:
        """The slots of some hosts have changed. O(their slots and entries)."""
        holdings.refresh_each(self.counted, self.held, rows)

    def recount(self, row: int) -> None:
        """As `refresh_each`, where nothing is ever stopped. O(the slots of the host)."""
        holdings.recount(*self.counted, row)

    def hold(self, columns: Rows, allocation: Allocation) -> None:
        """An attempt took its seats. O(slots and entries of their hosts)."""
        self.enter(columns, allocation)
        self._count_anew(columns.region, allocation.job)

    def enter(self, columns: Rows, allocation: Allocation) -> None:
        """Note what an attempt holds; the counts of its hosts stay as they were. O(seats)."""
        row = self._row_for(columns.region, allocation.job)
        gpus, first = allocation.plan.gpus_milli / MILLI, NONE
        entries = self._entries(columns, allocation)
        held = self.held  # after that: it may have grown
        for entry in reversed(entries):
            held.entries[entry.number] = entry.fields(row, first)
            first = entry.number
        held.attempts[row] = (*self._described(allocation), gpus, first)
        holdings.link_all_of(held.attempts, held.entries, held.hosts, row)

    def hold_each(
        self,
        columns: Rows,
        seats: SeatColumns,
        hosts: I64,
        taken: I64,
        allocations: Sequence[Allocation],
    ) -> None:
        """Several attempts took their seats just now.

        ``taken``: whole GPUs of each of these ``hosts``, which are those of ``seats``. Raises
        `RuntimeError` if one holds another's slots. O(slots and entries of their hosts).
        """
        name, keys = columns.region, [(columns.region, job) for job in seats.jobs]
        while len(self._free_rows) < len(keys):
            self._grow_rows()
        while len(self._free_entries) < len(hosts):
            self._grow_entries()
        rows = _last(self._free_rows, len(keys))
        self.rows.update(zip(keys, rows, strict=True))
        for row, key in zip(rows, keys, strict=True):
            self.jobs[row] = key
        self.of_region[rows] = self.regions.index(name)
        numbers = np.array(_last(self._free_entries, len(hosts)), np.int64)
        spans = np.array(seats.spans, np.int64)
        firsts = np.cumsum(spans) - spans
        fields = np.zeros(len(hosts), holdings.ENTRY)
        fields["of"], fields["host"], fields["whole"] = np.repeat(rows, spans), hosts, taken
        fields["slot"] = fields["before"] = fields["after"] = NONE
        fields["more"][:-1] = numbers[1:]
        fields["more"][firsts + spans - 1] = NONE
        held = self.held
        held.entries[numbers] = fields
        held.attempts[rows] = _described_each(allocations, numbers[firsts])
        holdings.link_each(held.attempts, held.entries, held.hosts, np.array(rows, np.int64))
        try:
            self.refresh_each(np.unique(hosts))
        except RuntimeError as error:
            jobs = ", ".join(seats.jobs)
            raise RuntimeError(f"jobs {jobs} in region {name}: {error}") from error

    def _row_for(self, region: str, job: str) -> int:
        """A row for an attempt."""
        row, key = self._new_row(), (region, job)
        self.rows[key], self.jobs[row] = row, key
        self.of_region[row] = self.regions.index(region)
        return row

    def _count_anew(self, region: str, job: str) -> None:
        """Count the hosts of an attempt anew; raises `RuntimeError` if it holds another's slots.

        O(slots and entries of its hosts)
        """
        try:
            self._refresh(self.rows[region, job])
        except RuntimeError as error:
            raise RuntimeError(f"job {job} in region {region}: {error}") from error

    def _refresh(self, row: int) -> None:
        holdings.refresh_all_of(*self.counted, *self.held, row)

    def _entries(self, columns: Rows, allocation: Allocation) -> list[_Entry]:
        """An entry for each host, followed by those of its shares."""
        needs, time_slice = allocation.needs(), allocation.plan.in_slice
        found: dict[int, list[_Entry]] = {}
        for seat in allocation.plan.seats:
            local = columns.find(seat.host, time_slice)
            if local is None:
                continue
            host = columns.first_row + local
            on_host = found.get(host)
            if on_host is None:
                on_host = found[host] = [_Entry(self._new_entry(), host)]
            main, gpus, need = on_host[0], columns.gpus.item(local), needs[seat.group]
            slots = [slot for slot in seat.slots if slot < gpus]
            if seat.slot_milli >= MILLI:
                main.whole += len(slots)
            else:
                first = self.counted.offset.item(host)
                on_host += [
                    _Entry(self._new_entry(), host, first + slot, seat.slot_milli) for slot in slots
                ]
            main.cpus += round(need.cpus, 6)
            main.memory += need.memory_bytes
        return [entry for on_host in found.values() for entry in on_host]

    def let_go(self, columns: Rows, job: str) -> None:
        """An attempt gave its seats back. O(slots and entries of their hosts)."""
        row = self.rows.pop((columns.region, job))
        if len(self._gone) < len(self.held.entries):
            self._gone = np.zeros(len(self.held.entries), np.int64)
        held = self.held
        count = holdings.unlink_all_of(held.attempts, held.entries, held.hosts, row, self._gone)
        self._refresh(row)
        self._free_entries += self._gone[:count].tolist()
        self.of_region[row] = NONE
        self._free_rows.append(row)

    def note(self, columns: Rows, allocation: Allocation) -> None:
        """The phase of an attempt, or its kept work, changed. O(entries of its hosts)."""
        row = self.rows[columns.region, allocation.job]
        was = self.held.attempts[row]
        self.held.attempts[row] = (*self._described(allocation), was["gpus"], was["entry"])
        self._count_anew(columns.region, allocation.job)

    def named(self, jobs: Sequence[str]) -> NDArray[np.bool_]:
        """The rows of these jobs (A), in whatever region. O(A + jobs * regions)."""
        rows: NDArray[np.bool_] = np.zeros(len(self.of_region), np.bool_)
        keys = ((region, job) for job in jobs for region in self.regions)
        rows[[self.rows[key] for key in keys if key in self.rows]] = True
        return rows

    def _described(
        self, allocation: Allocation
    ) -> tuple[bool, int, float, float, bool, float, float]:
        """The first fields of `ATTEMPT`, in its order: up to weight."""
        expected_s = np.nan if allocation.expected_s is None else allocation.expected_s
        stopping = allocation.hold is AllocationPhase.STOPPING
        kept_s = allocation.kept_from_s()
        kept_s = np.inf if kept_s is None else kept_s
        band, start_s, may_stop = int(allocation.band), allocation.start_s, allocation.may_stop
        return may_stop, band, start_s, expected_s, stopping, kept_s, weight_of(band)

    def _new_row(self) -> int:
        if not self._free_rows:
            self._grow_rows()
        return self._free_rows.pop()

    def _grow_rows(self) -> None:
        size = len(self.of_region)
        self.held = self.held._replace(attempts=_grown(self.held.attempts))
        self.of_region = np.concatenate([self.of_region, np.full(size, NONE, np.int64)])
        self.jobs += [("", "")] * size
        self._free_rows = [*range(2 * size - 1, size - 1, -1), *self._free_rows]

    def _new_entry(self) -> int:
        if not self._free_entries:
            self._grow_entries()
        return self._free_entries.pop()

    def _grow_entries(self) -> None:
        size = len(self.held.entries)
        self.held = self.held._replace(entries=_grown(self.held.entries))
        self._free_entries = [*range(2 * size - 1, size - 1, -1), *self._free_entries]


def _last(free: list[int], count: int) -> list[int]:
    """Take so many from the end of a list, the last first. O(count)."""
    at = len(free) - count
    found = free[at:][::-1]
    del free[at:]
    return found


def _described_each(allocations: Sequence[Allocation], entries: I64) -> Table:
    """The rows of attempts that took their seats just now, with the first ``entries`` of each."""
    found = np.zeros(len(allocations), holdings.ATTEMPT)
    found["evictable"] = [one.may_stop for one in allocations]
    found["band"] = [int(one.band) for one in allocations]
    found["start_s"] = [one.start_s for one in allocations]
    found["expected_s"] = np.array([one.expected_s for one in allocations], np.float64)
    found["kept_s"] = np.inf  # none has begun to run
    found["weight"] = [weight_of(one.band) for one in allocations]
    found["gpus"] = np.array([one.plan.gpus_milli for one in allocations], np.int64) / MILLI
    found["entry"] = entries
    return found


def _empty(hosts: int, bins: int) -> AllocationTable:
    """Nothing is held."""
    levels = len(holdings.THRESHOLDS)
    nothing = (NONE, NONE, -np.inf, np.inf, np.inf)
    return AllocationTable(
        attempts=np.zeros(SPARE, holdings.ATTEMPT),
        entries=np.zeros(SPARE, holdings.ENTRY),
        hosts=np.full(hosts, np.array(nothing, holdings.HOST)),
        cleared=np.zeros((levels, hosts), np.int64),
        cleared_hist=np.zeros((levels, bins), np.int64),
    )


def _grown(table: Table) -> Table:
    """The same with twice the rows. O(rows)."""
    return np.concatenate([table, np.zeros_like(table)])
