"""The second phase: from counts to hosts by name, so that a cluster's hosts are spread over
racks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from topmast.slow.arrays import Ints
from topmast.slow.capacity.classes import Classes
from topmast.slow.capacity.problem import Host

Racks = dict[str, list[int]]


def assign_hosts(classes: Classes, hosts: Sequence[Host], count: Ints) -> dict[int, int]:
    """The claimant of every host of this model, by index.

    A claimant with too many gives up its cheapest hosts, each from the rack where it has the
    most; one with too few takes each from the rack where it has the fewest. O(hosts racks of a
    cell + K E).
    """
    owner: dict[int, int] = {}
    for (_, k, _), members in classes.members.items():
        owner.update((index, k) for index in members)
    for e in range(len(classes.total)):
        _assign_cell(classes, hosts, count, e, owner)
    return owner


def _assign_cell(
    classes: Classes, hosts: Sequence[Host], count: Ints, e: int, owner: dict[int, int]
) -> None:
    held = classes.have.sum(axis=0)[:, e]
    pool: Racks = {}
    counted = [_per_rack(classes, hosts, k, e) for k in range(len(held))]
    for k in range(len(held)):
        left = int(held[k] - count[k, e])
        for kind in (1, 0):
            mine = _by_rack(classes.members.get((kind, k, e), []), hosts)
            while left > 0 and mine:
                index = _drawn(mine, lambda rack, k=k: (-counted[k][rack], rack))  # type: ignore[misc]
                rack = hosts[index].rack
                counted[k][rack] -= 1
                pool.setdefault(rack, []).append(index)
                left -= 1
    for k in range(len(held)):
        for _ in range(int(count[k, e] - held[k])):
            index = _drawn(pool, lambda rack, k=k: (counted[k].get(rack, 0), rack))  # type: ignore[misc]
            rack = hosts[index].rack
            counted[k][rack] = counted[k].get(rack, 0) + 1
            owner[index] = k


def _drawn(racks: Racks, rank: Callable[[str], tuple[int, str]]) -> int:
    """Take one host from the first rack by ``rank``."""
    rack = min(racks, key=rank)
    index = racks[rack].pop()
    if not racks[rack]:
        del racks[rack]
    return index


def _by_rack(members: Sequence[int], hosts: Sequence[Host]) -> Racks:
    """Hosts by rack, the last by name first to be drawn."""
    racks: Racks = {}
    for index in sorted(members, key=lambda each: hosts[each].name):
        racks.setdefault(hosts[index].rack, []).append(index)
    return racks


def _per_rack(classes: Classes, hosts: Sequence[Host], k: int, e: int) -> dict[str, int]:
    counted: dict[str, int] = {}
    for kind in (0, 1):
        for index in classes.members.get((kind, k, e), []):
            counted[hosts[index].rack] = counted.get(hosts[index].rack, 0) + 1
    return counted
