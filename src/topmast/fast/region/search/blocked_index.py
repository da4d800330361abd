"""The blocked index: what each blocked placement class lacks, so that only useful room unblocks it.

A gang of one group with whole GPUs found no place when a search looked at every cluster. Since then
most hosts can only have become fuller. It fits, at the earliest, when a domain of a cluster that
has grown has room for all its tasks, at the widest level that it may span: free, or, where it may
stop other jobs, free once all of lower bands were gone. That is necessary, not sufficient, so that
no job starves. Of any other job nothing is known but that more room may help it.

A class that was refused while seats were reserved for another job cannot have those until that
reservation ends, of which the queue tells.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from topmast.fast.region.inventory.allocation_table import AllocationTable, room_in
from topmast.fast.region.inventory.arrays import I64, Arrays
from topmast.fast.region.inventory.index import Index
from topmast.fast.region.search.compiled import Choice
from topmast.fast.region.search.kernels import HOST_LEVEL
from topmast.jit import inner, kernel
from topmast.model.job import Level

CHOICES = 4
"""Jobs that accept more GPU models than that are tried again whenever there is more room."""
FIRST_ROWS = 64
FREE_ONLY = -1
"""The threshold of a gang that may stop no job."""
ANY = -1
EVERYWHERE = (-1, ANY)
"""Any cluster: the bits of all regions, and no cluster in particular."""
WHERE = 3 + 2 * CHOICES
"""The column of the regions' bits; the next is that of the cluster."""
LEVEL = WHERE + 2
KEPT = LEVEL + 1

Where = tuple[int, int]
"""The clusters of a request: their regions' bits (`Index.region_bits`), and the one, or `ANY`."""


class Needs(Struct, frozen=True, gc=False):
    """What has to be there for a gang to be placed."""

    tasks: int
    """0: not known, so that any room may help."""
    threshold: int
    """Of the jobs that it may stop (`threshold_of`), or `FREE_ONLY`."""
    choices: list[Choice]
    """What one of its tasks may take."""
    where: Where = EVERYWHERE
    level: Level = Level.CLUSTER
    """The widest that it may span."""


Key = tuple[int, tuple[int, ...] | None, bool, bool, Where]
"""Placement class; the accelerators that might be used; whether any room may help; whether reserved
seats were kept from it; where.

Requests of one class may be of different regions: with preemption only those with its data."""
NO_KEY: Key = (0, None, False, False, EVERYWHERE)


class BlockedIndex:
    """What blocked classes need (R rows); working memory, of one index."""

    def __init__(self) -> None:
        self._row_of: dict[Key, int] = {}
        self._key_of: list[Key] = [NO_KEY] * FIRST_ROWS
        self._free = list(range(FIRST_ROWS))[::-1]
        self._needs: I64 = np.zeros((FIRST_ROWS, KEPT + 1), np.int64)
        """(R) 1 in use, threshold, tasks; then model and GPUs of a task, for each choice, 0 GPUs:
        none; the bits of the regions that may hold it, and the cluster, or `ANY`; the widest level;
        1 where reserved seats were kept from it."""

    def __len__(self) -> int:
        return len(self._row_of)

    def block(
        self,
        placement_class: int,
        models: tuple[int, ...] | None,
        needs: Needs,
        *,
        kept: bool = False,
    ) -> None:
        """A gang of a class found no place. ``kept``: reserved seats were kept from it. O(1)."""
        key = (placement_class, models, needs.tasks == 0, kept, needs.where)
        row = self._row_of.get(key)
        if row is None:
            if not self._free:
                self._grow()
            row = self._row_of[key] = self._free.pop()
            self._key_of[row] = key
        _write(self._needs[row], needs)
        self._needs[row, KEPT] = kept

    def _grow(self) -> None:
        rows = len(self._needs)
        self._needs = np.concatenate([self._needs, np.zeros_like(self._needs)])
        self._key_of += [NO_KEY] * rows
        self._free = list(range(rows, 2 * rows))[::-1]

    def end_of_reservation(self) -> None:
        """No reserved seats are kept from any class any more. O(R)."""
        self._needs[:, KEPT] = 0

    def take_helped(
        self, index: Index, clusters: Iterable[int], *, kept: bool = False
    ) -> tuple[int, ...]:
        """The classes that may fit into these clusters; they are not in the index any more.

        Either those from which reserved seats are ``kept``, or the others.
        O(R * sections of the clusters * W).
        """
        grown: I64 = np.array(list(clusters), np.int64)
        found = _may_fit(
            index.arrays, index.holders.held, index.region_bits, self._needs, grown, kept
        )
        helped: dict[int, None] = {}
        for row in np.flatnonzero(found).tolist():
            key = self._key_of[row]
            helped[key[0]] = None
            del self._row_of[key]
            self._needs[row, 0] = 0
            self._free.append(row)
        return tuple(helped)


def regions_with_room(index: Index, needs: Needs) -> int:
    """The bits of regions where a gang might fit without all jobs that it may stop, however young.

    All bits, where nothing is known of such a gang. O(sections * W).
    """
    if not needs.tasks or len(needs.choices) > CHOICES:
        return needs.where[0]
    row: I64 = np.zeros((1, KEPT + 1), np.int64)
    _write(row[0], needs)
    return int(_where_room(index.arrays, index.holders.held, index.region_bits, row))


def _write(row: I64, needs: Needs) -> None:
    row[:] = 0
    row[0], row[1] = 1, needs.threshold
    row[WHERE:LEVEL] = needs.where
    row[LEVEL] = needs.level
    if len(needs.choices) <= CHOICES:
        row[2] = needs.tasks
        for at, choice in enumerate(needs.choices):
            row[3 + 2 * at : 5 + 2 * at] = choice.model, choice.gpus


@kernel
def _may_fit(
    a: Arrays, h: AllocationTable, bits: I64, needs: I64, clusters: I64, kept: bool
) -> NDArray[np.bool_]:
    """Rows of ``needs`` that might fit into one of the clusters. O(R * sections of these * W)."""
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
        span = a.by_cluster[cluster, model, level - 1]
        for section in range(span[0], span[1]):
            if room_in(a, h, needs[row, 1], section, gpus) >= need:
                return True
        at += 2
    return False
