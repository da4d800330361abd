"""How tenants and accounts share what the server has too little of for all: memory, disk.

Each tenant may have as much as it leaves free, and what is below it shares that in the same way:
tenants, and at last accounts. So some is always left for one more. Accounts alone do not do: those
that manage a tenant can make as many as they like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from topmast.model.access import ROOT

RULE = "no account and no tenant may have more than it leaves free"


def below(had: Iterable[tuple[str, int]], path: Callable[[str], Sequence[str]]) -> dict[str, int]:
    """The bytes of each tenant and of those below it; ``path``: a tenant and all above it.

    O(had x depth of the tree).
    """
    found: dict[str, int] = {}
    for tenant, size_bytes in had:
        for name in path(tenant):
            found[name] = found.get(name, 0) + size_bytes
    return found


def left_bytes(
    path: Sequence[str], below: Mapping[str, int], own_bytes: int, free_bytes: int
) -> int:
    """What an account may have more for the tenant of a path; below 0 if it has too much already.

    As long as own + x <= free - x, x more may come, which leaves free - own - x to what is below.
    """
    return (left_of_tenant(path, below, free_bytes) - own_bytes) // 2


def left_of_tenant(path: Sequence[str], below: Mapping[str, int], free: int) -> int:
    """The same of all accounts of the tenant together, in bytes or in what else is counted."""
    left = free
    for tenant in reversed(path):
        if tenant != ROOT:
            left = (left - below.get(tenant, 0)) // 2
    return left
