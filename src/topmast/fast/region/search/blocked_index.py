"""Who was refused, and what would have to be there for another look to make sense (negative cache).

A gang of one group with whole GPUs was refused when a search over every cluster found no place. Since then
most hosts can only have become fuller; it fits, at the earliest, when a domain of a cluster that has grown
has room for all its tasks, of the widest level that it may span: free, or, where it may stop others,
free once all of lower bands were gone. That is necessary, not sufficient, so that nobody is forgotten. Of
any other job nothing is known but that more room may help it.

Who was refused while seats were reserved for another cannot have those until that reservation ends, of which
the queue tells.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from topmast.fast.region.inventory.allocation_table import AllocationTable
from topmast.fast.region.inventory.arrays import I64, Arrays
from topmast.fast.region.inventory.index import Index
from topmast.fast.region.inventory.jit import inner, kernel
from topmast.fast.region.search.compiled import Choice
from topmast.fast.region.search.kernels import HOST_LEVEL
from topmast.model.job import Level

CHOICES = 4
"""Jobs that accept more GPU models than that are looked at again whenever there is more room."""
FIRST_ROWS = 64
FREE_ONLY = -1
ANY = -1
EVERYWHERE = (-1, ANY)
"""Any cluster: the bits of all regions, and no cluster in particular."""
WHERE = 3 + 2 * CHOICES
"""The column of the regions' bits; the next is that of the cluster."""
LEVEL = WHERE + 2
KEPT = LEVEL + 1

Where = tuple[int, int]
"""Which clusters a question was of: the bits of their regions (`Index.region_bits`), and the one, or `ANY`."""
Key = tuple[int, tuple[int, ...] | None, bool, bool, Where]
"""Kin; the accelerators that might be used; whether to look again at any room; whether seats were kept from it; where.

Of one kin questions may be of different regions: where there is its data, it was asked about with victims, too."""
NOBODY: Key = (0, None, False, False, EVERYWHERE)


class Refused:
    """What those who were refused need, by kin and what they might use (R rows); working memory, of one index."""

    def __init__(self) -> None:
        self._row_of: dict[Key, int] = {}
        self._key_of: list[Key] = [NOBODY] * FIRST_ROWS
        self._free = list(range(FIRST_ROWS))[::-1]
        self._needs: I64 = np.zeros((FIRST_ROWS, KEPT + 1), np.int64)
        """(R) 1 in use, threshold, tasks; then model and GPUs of a task, for each choice, 0 GPUs: none;
        the bits of the regions that may hold it, and the cluster, or `ANY`; the widest level; 1 where reserved
        seats were kept from it."""

    def __len__(self) -> int:
        return len(self._row_of)

    def note(
        self,
        kin: int,
        models: tuple[int, ...] | None,
        tasks: int,
        threshold: int,
        choices: list[Choice],
        where: Where = EVERYWHERE,
        level: Level = Level.CLUSTER,
        *,
        kept: bool = False,
    ) -> None:
        """A gang was refused that may span ``level``. No tasks: look again whenever there is more room ``where`` it was asked about.

        ``kept``: reserved seats were kept from it. O(1).
        """
        key = (kin, models, tasks == 0, kept, where)
        row = self._row_of.get(key)
        if row is None:
            if not self._free:
                self._grow()
            row = self._row_of[key] = self._free.pop()
            self._key_of[row] = key
        _write(self._needs[row], tasks, threshold, choices, where, level)
        self._needs[row, KEPT] = kept

    def _grow(self) -> None:
        rows = len(self._needs)
        self._needs = np.concatenate([self._needs, np.zeros_like(self._needs)])
        self._key_of += [NOBODY] * rows
        self._free = list(range(rows, 2 * rows))[::-1]

    def end_of_reservation(self) -> None:
        """No seats are kept from anybody any more. O(R)."""
        self._needs[:, KEPT] = 0

    def who_fits(
        self, index: Index, clusters: Iterable[int], *, kept: bool = False
    ) -> tuple[int, ...]:
        """The kin that might fit into these clusters, forgotten from now on.

        Either those from whom seats are ``kept``, or the others. O(R * sections of the clusters * W).
        """
        grown: I64 = np.array(list(clusters), np.int64)
        found = _who_fits(
            index.arrays, index.holders.held, index.region_bits, self._needs, grown, kept
        )
        kin: dict[int, None] = {}
        for row in np.flatnonzero(found).tolist():
            key = self._key_of[row]
            kin[key[0]] = None
            del self._row_of[key]
            self._needs[row, 0] = 0
            self._free.append(row)
        return tuple(kin)


def regions_with_room(
    index: Index, tasks: int, threshold: int, choices: list[Choice], where: Where, level: Level
) -> int:
    """The bits of regions in which a gang might fit, if all were gone whom it may stop, however young.

    All bits, where nothing is known of such a gang. O(sections * W).
    """
    needs: I64 = np.zeros((1, KEPT + 1), np.int64)
    _write(needs[0], tasks, threshold, choices, where, level)
    if not needs[0, 2]:
        return where[0]
    return int(_where_room(index.arrays, index.holders.held, index.region_bits, needs))


def _write(
    needs: I64, tasks: int, threshold: int, choices: list[Choice], where: Where, level: Level
) -> None:
    needs[:] = 0
    needs[0], needs[1] = 1, threshold
    needs[WHERE:LEVEL] = where
    needs[LEVEL] = level
    if len(choices) <= CHOICES:
        needs[2] = tasks
        for at, choice in enumerate(choices):
            needs[3 + 2 * at : 5 + 2 * at] = choice.model, choice.gpus


@kernel
def _who_fits(
    a: Arrays, h: AllocationTable, bits: I64, needs: I64, clusters: I64, kept: bool
) -> NDArray[np.bool_]:
    """Which rows of ``needs`` might fit into one of the clusters. O(R * sections of the clusters * W)."""
    found = np.zeros(needs.shape[0], np.bool_)
    for row in range(needs.shape[0]):
        if not needs[row, 0] or needs[row, KEPT] != kept:
            continue
        for cluster in clusters:
            if _may_hold(a, h, bits, needs, row, cluster):
                found[row] = True
                break
    return found


@kernel
def _where_room(a: Arrays, h: AllocationTable, bits: I64, needs: I64) -> int:
    """The bits of the regions that might hold the only row of ``needs``. O(sections * W)."""
    regions = 0
    for cluster in range(bits.size):
        if not regions & bits[cluster] and _may_hold(a, h, bits, needs, 0, cluster):
            regions |= bits[cluster]
    return regions


@inner
def _may_hold(a: Arrays, h: AllocationTable, bits: I64, needs: I64, row: int, cluster: int) -> bool:
    """Whether a row of ``needs`` might fit into a cluster. O(sections of the cluster * W)."""
    if not needs[row, WHERE] & bits[cluster]:
        return False
    if needs[row, WHERE + 1] >= 0 and needs[row, WHERE + 1] != cluster:
        return False
    tasks = needs[row, 2]
    if tasks == 0:
        return True
    at = 3
    while at < WHERE and needs[row, at + 1] > 0:
        model, gpus = needs[row, at], needs[row, at + 1]
        level, need = needs[row, LEVEL], tasks
        if level == HOST_LEVEL:
            level, gpus, need = 4, gpus * tasks, 1
        if _has_room(a, h, needs[row, 1], a.by_cluster[cluster, model, level - 1], need, gpus):
            return True
        at += 2
    return False


@inner
def _has_room(
    a: Arrays, h: AllocationTable, threshold: int, span: I64, tasks: int, gpus: int
) -> bool:
    """Whether one of some sections, from the first to before the last, has room for all the tasks."""
    for section in range(span[0], span[1]):
        if _room(a, h, threshold, section, gpus) >= tasks:
            return True
    return False


@inner
def _room(a: Arrays, h: AllocationTable, threshold: int, section: int, gpus: int) -> int:
    """How many tasks a section has room for, free or cleared. O(W), or O(its hosts) if they are fewer."""
    start = a.hist_start[section]
    width = a.hist_start[section + 1] - start
    room = 0
    if a.member_start[section + 1] - a.member_start[section] < width - gpus:
        for at in range(a.member_start[section], a.member_start[section + 1]):
            host = a.members[at]
            if a.available[host]:
                free = a.whole[host] if threshold < 0 else h.cleared[threshold, host]
                room += free // gpus
        return room
    for free in range(gpus, width):
        if threshold < 0:
            room += a.hist[start + free] * (free // gpus)
        else:
            room += h.cleared_hist[threshold, start + free] * (free // gpus)
    return room
