"""What would be free on hosts if attempts were stopped or seated first; the columns stay as is."""

from __future__ import annotations

from collections.abc import Iterable

from topmast.fast.region.inventory.columns import CPU_DECIMALS, Columns, Ints, cpus_of
from topmast.model.job import Resources
from topmast.model.plan import Seat


class Overlay:
    """Copies of the hosts that change, laid over the columns. O(slots of those hosts)."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.row = columns.row
        self.width = columns.width
        self._slots: dict[int, Ints] = {}
        self._cpus: dict[int, float] = {}
        self._memory: dict[int, float] = {}

    def slots(self, row: int) -> Ints:
        """The free thousandths of one host."""
        found = self._slots.get(row)
        return self.columns.slots(row) if found is None else found

    def take(self, seats: Iterable[Seat], needs: dict[str, Resources], time_slice: int = 0) -> None:
        """Subtract what seats hold in a slice; ``needs`` by group. O(slots of their hosts)."""
        self._move(seats, needs, time_slice, -1)

    def give_back(
        self, seats: Iterable[Seat], needs: dict[str, Resources], time_slice: int = 0
    ) -> None:
        """Add what the seats held in a slice. O(slots of their hosts)."""
        self._move(seats, needs, time_slice, +1)

    def _move(
        self, seats: Iterable[Seat], needs: dict[str, Resources], time_slice: int, sign: int
    ) -> None:
        for seat in seats:
            row = self.columns.find(seat.host, time_slice)
            if row is None:
                continue  # the host left the fleet
            if row not in self._slots:
                self._slots[row] = self.columns.slots(row).copy()
                self._cpus[row] = float(self.columns.free_cpus[row])
                self._memory[row] = float(self.columns.free_memory[row])
            slots = self._slots[row]
            for slot in seat.slots:
                if slot < len(slots):
                    slots[slot] += sign * seat.slot_milli
            resources = needs[seat.group]
            self._cpus[row] = round(self._cpus[row] + sign * cpus_of(resources), CPU_DECIMALS)
            self._memory[row] += sign * resources.memory_bytes

    def overdrawn(self, seat: Seat, needs: Resources, time_slice: int = 0) -> bool:
        """Whether more is taken than is there, of what a seat taken here uses. O(its slots)."""
        row = self.row(seat.host, time_slice)
        free = self.slots(row)
        return (
            any(slot >= len(free) or free[slot] < 0 for slot in seat.slots)
            or (needs.cpus > 0 and self._cpus[row] < 0)
            or (needs.memory_bytes > 0 and self._memory[row] < 0)
        )
