"""What would be free on hosts if attempts were stopped or seated first; the columns stay as is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from topmast.fast.region.inventory.allocation import Allocation
from topmast.fast.region.inventory.columns import CPU_DECIMALS, Amounts, Columns, Ints, cpus_of
from topmast.model.job import Resources
from topmast.model.plan import Seat


class Overlay(Amounts):
    """Copies of the hosts that change, laid over the columns. O(slots of those hosts)."""

    def __init__(self, columns: Columns, gone: Iterable[Allocation] = ()) -> None:
        """``gone``: attempts that have given back what they hold."""
        self.columns = columns
        self.width = columns.width
        self._slots: dict[int, Ints] = {}
        self._rest: dict[int, tuple[float, float]] = {}
        """Free CPUs and memory."""
        self.release(gone)

    def row(self, host: str, time_slice: int) -> int:
        """The row of a host in a slice."""
        return self.columns.row(host, time_slice)

    def slots(self, row: int) -> Ints:
        """The free thousandths of the GPUs of one host."""
        found = self._slots.get(row)
        return self.columns.slots(row) if found is None else found

    def _other_than_gpus(self, row: int) -> tuple[float, float]:
        return self._rest[row]

    def _move(
        self, seats: Iterable[Seat], needs: dict[str, Resources], time_slice: int, sign: int
    ) -> None:
        columns = self.columns
        for seat in seats:
            row = columns.find(seat.host, time_slice)
            if row is None:
                continue  # the host left the fleet
            if row not in self._slots:
                self._slots[row] = columns.slots(row).copy()
                self._rest[row] = float(columns.free_cpus[row]), float(columns.free_memory[row])
            slots = self._slots[row]
            for slot in seat.slots:
                if slot < len(slots):
                    slots[slot] += sign * seat.slot_milli
            resources, (cpus, memory) = needs[seat.group], self._rest[row]
            cpus = round(cpus + sign * cpus_of(resources), CPU_DECIMALS)
            self._rest[row] = cpus, memory + sign * resources.memory_bytes


class Leaving:
    """A copy of columns from which attempts go in order; what has gone may come back."""

    def __init__(self, columns: Columns, order: Sequence[Allocation]) -> None:
        self._columns, self._order, self._gone = columns.trial(), order, 0
        self._columns.watched = False  # nothing is stopped in it: entries need not be kept

    def after(self, count: int) -> Columns:
        """The columns once so many have gone: the same object each time. O(what changes)."""
        self._columns.release(self._order[self._gone : count])
        for allocation in self._order[count : self._gone]:
            plan = allocation.plan
            self._columns.take(plan.seats, allocation.needs(), plan.in_slice)
        self._gone = count
        return self._columns
