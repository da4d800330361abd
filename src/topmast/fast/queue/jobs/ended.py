"""What is over and still in memory: when that is too much, which of it leaves first."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heapreplace

Queue = list[tuple[int, str, int]]
"""What is over of one user, the oldest last: its place in age, its name and its bytes."""
Turn = tuple[int, int, Queue]
"""A user: less than 0 by the bytes, and the place of the oldest; the least is next."""
TenantTurn = tuple[int, int, str, list[Turn]]
"""As `Turn`, of a tenant, with a heap of its users."""


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
        tenants: dict[str, dict[str, Queue]] = {}
        for place, name in zip(range(len(order), 0, -1), reversed(order), strict=True):
            tenant, user, size_bytes = self.names[name]
            users = tenants.get(tenant) or tenants.setdefault(tenant, {})
            queue = users.get(user) or users.setdefault(user, [])
            queue.append((place, name, size_bytes))

        def turn(of_tenant: int, heap: list[Turn], tenant: str) -> TenantTurn:
            return of_tenant, heap[0][1], tenant, heap

        turns = []
        for tenant, users in tenants.items():
            heap = [(-sum([one[2] for one in q]), q[-1][0], q) for q in users.values()]
            heapify(heap)
            turns.append(turn(sum([user[0] for user in heap]), heap, tenant))
        heapify(turns)
        gone, left_bytes = list[str](), self.total_bytes
        while left_bytes > most_bytes and turns:
            of_tenant, _, tenant, heap = turns[0]
            of_user, _, queue = heap[0]
            _, name, size_bytes = queue.pop()
            gone.append(name)
            left_bytes -= size_bytes
            if queue:
                heapreplace(heap, (of_user + size_bytes, queue[-1][0], queue))
            else:
                heappop(heap)
            if heap:
                heapreplace(turns, turn(of_tenant + size_bytes, heap, tenant))
            else:
                heappop(turns)
        return gone
