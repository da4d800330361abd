"""Gangs of a cluster that can run at the same time: each GPU, and the CPUs of each host, once."""

from __future__ import annotations

from collections.abc import Iterable

from topmast.fast.cluster.attempt import Attempt
from topmast.model.fleet import HostSpec
from topmast.model.job import MILLI

Slot = tuple[str, int]
CPU_MARGIN = 1e-6


class Room:
    """What running gangs take of the hosts."""

    def __init__(self, hosts: Iterable[HostSpec]) -> None:
        self._there = {host.name: host.cpus for host in hosts}
        self._taken: dict[Slot, list[tuple[str, int]]] = {}
        self._cpus: dict[str, float] = {}

    def fits(self, attempt: Attempt) -> bool:
        """Whether a gang could run beside these; a partner may be on its GPUs. O(slots + tasks)."""
        turns = attempt.turns
        partner = None if turns is None else turns.partner
        wanted: dict[Slot, int] = {}
        for task in attempt.tasks:
            seat = task.seat
            for slot in seat.slots:
                key = (seat.host, slot)
                wanted[key] = wanted.get(key, 0) + seat.slot_milli
        for key, milli in wanted.items():
            taken = sum(m for job, m in self._taken.get(key, ()) if job != partner)
            if taken + milli > MILLI:
                return False
        return all(self._has_cpus(host, cpus) for host, cpus in cpus_by_host(attempt).items())

    def _has_cpus(self, host: str, cpus: float) -> bool:
        there = self._there.get(host)
        return not there or self._cpus.get(host, 0.0) + cpus <= there + CPU_MARGIN

    def take(self, attempt: Attempt) -> None:
        """The gang runs. O(slots and tasks)."""
        for task in attempt.tasks:
            seat = task.seat
            for slot in seat.slots:
                self._taken.setdefault((seat.host, slot), []).append((attempt.job, seat.slot_milli))
        for host, cpus in cpus_by_host(attempt).items():
            self._cpus[host] = self._cpus.get(host, 0.0) + cpus


def cpus_by_host(attempt: Attempt) -> dict[str, float]:
    """The CPUs that a gang takes of each host, where it names any."""
    asked = {group.name: group.resources.cpus for group in attempt.spec.groups}
    found: dict[str, float] = {}
    for task in attempt.tasks:
        if asked[task.seat.group]:
            found[task.seat.host] = found.get(task.seat.host, 0.0) + asked[task.seat.group]
    return found


def slots_of(attempt: Attempt) -> frozenset[Slot]:
    """The GPU slots that a gang sits on."""
    return frozenset((task.seat.host, slot) for task in attempt.tasks for slot in task.seat.slots)
