"""What is over and still in memory: when that is too much, which of it leaves first."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heapreplace

Queue = list[str]
"""Names of one user, the oldest last."""


class Ended:
    """Jobs, or sweeps, that are over, with what they take of the room for all of them.

    When there is too much, the tenant with most loses first, of it the user with most, of this one
    the oldest: one that ends many takes from others what is beyond an equal share. Tenants come
    first since those that manage one may have many users.
    """

    def __init__(self) -> None:
        self.names: dict[str, tuple[str, str, int]] = {}
        """Tenant, user and bytes, by name; what was over first comes first."""
        self.total_bytes = 0

    def add(self, name: str, tenant: str, user: str, size_bytes: int) -> None:
        """One is over. O(1)."""
        self.names[name] = (tenant, user, size_bytes)
        self.total_bytes += size_bytes

    def remove(self, name: str) -> None:
        """One goes on, or has left memory. O(1)."""
        self.total_bytes -= self.names.pop(name, ("", "", 0))[2]

    def is_too_much(self, most_bytes: int) -> bool:
        """Whether a tenth more is kept than there is room for. O(1)."""
        return self.total_bytes > most_bytes + most_bytes // 10

    def excess(self, most_bytes: int, age: Callable[[str], float] | None = None) -> list[str]:
        """What is to leave, so that the rest has room.

        ``age`` tells which is older where the order of `names` does not: the lower one. O(kept +
        leaving log users), once for each tenth of the room: amortised O(log users) for each name.
        """
        order = list(self.names) if age is None else sorted(self.names, key=age)
        place = {name: number for number, name in enumerate(order)}
        users: dict[str, dict[str, Queue]] = {}
        for name in reversed(order):
            tenant, user, _ = self.names[name]
            users.setdefault(tenant, {}).setdefault(user, []).append(name)

        def size_of(queue: Queue) -> int:
            return sum(self.names[name][2] for name in queue)

        tenants = []
        for tenant, queues in users.items():
            heap = [(-size_of(queue), place[queue[-1]], queue) for queue in queues.values()]
            heapify(heap)
            tenants.append((sum(user[0] for user in heap), heap[0][1], tenant, heap))
        heapify(tenants)
        gone, left_bytes = list[str](), self.total_bytes
        while left_bytes > most_bytes and tenants:
            of_tenant, _, tenant, heap = tenants[0]
            of_user, _, queue = heap[0]
            gone.append(queue.pop())
            size_bytes = self.names[gone[-1]][2]
            left_bytes -= size_bytes
            if queue:
                heapreplace(heap, (of_user + size_bytes, place[queue[-1]], queue))
            else:
                heappop(heap)
            if heap:
                heapreplace(tenants, (of_tenant + size_bytes, heap[0][1], tenant, heap))
            else:
                heappop(tenants)
        return gone
