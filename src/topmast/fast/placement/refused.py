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

from topmast.fast.placement.compiled import Choice
from topmast.fast.placement.holdings import Holdings
from topmast.fast.placement.index import Index
from topmast.fast.placement.jit import inner, kernel
from topmast.fast.placement.kernels import HOST_LEVEL, I64, Arrays
from topmast.model.job import Level

CHOICES = 4
"""Jobs that accept more GPU models than that are looked at again whenever there is more room."""
FIRST_ROWS = 64
FREE_ONLY = -1
ALL = (0, 1 << 62)
"""Any cluster, as a span of numbers."""
SPAN = 3 + 2 * CHOICES
"""The column where the span begins."""
LEVEL = SPAN + 2
KEPT = LEVEL + 1


Key = tuple[int, tuple[int, ...] | None, bool, bool, tuple[int, int]]
"""Kin; the accelerators that might be used; whether to look again at any room; whether seats were kept from it; the span.

Of one kin questions may have different spans: where there is its data, it was asked about with victims, too."""
NOBODY: Key = (0, None, False, False, ALL)


class Refused:
    """What those who were refused need, by kin and what they might use (R rows); working memory, of one index."""

    def __init__(self) -> None:
        self._row_of: dict[Key, int] = {}
        self._key_of: list[Key] = [NOBODY] * FIRST_ROWS
        self._free = list(range(FIRST_ROWS))[::-1]
        self._needs: I64 = np.zeros((FIRST_ROWS, KEPT + 1), np.int64)
        """(R) 1 in use, threshold, tasks; then model and GPUs of a task, for each choice, 0 GPUs: none;
        the first cluster that may hold it, and the one after the last; the widest level; 1 where reserved
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
        span: tuple[int, int] = ALL,
        level: Level = Level.CLUSTER,
        *,
        kept: bool = False,
    ) -> None:
        """A gang was refused that may span ``level``. No tasks: look again whenever the ``span`` has more room.

        ``kept``: reserved seats were kept from it. O(1).
        """
        key = (kin, models, tasks == 0, kept, span)
        row = self._row_of.get(key)
        if row is None:
            if not self._free:
                self._grow()
            row = self._row_of[key] = self._free.pop()
            self._key_of[row] = key
        needs = self._needs[row]
        needs[:] = 0
        needs[0], needs[1] = 1, threshold
        needs[SPAN:LEVEL] = span
        needs[LEVEL], needs[KEPT] = level, kept
        if len(choices) <= CHOICES:
            needs[2] = tasks
            for at, choice in enumerate(choices):
                needs[3 + 2 * at : 5 + 2 * at] = choice.model, choice.gpus

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
        found = _who_fits(index.arrays, index.holders.held, self._needs, grown, kept)
        kin: dict[int, None] = {}
        for row in np.flatnonzero(found).tolist():
            key = self._key_of[row]
            kin[key[0]] = None
            del self._row_of[key]
            self._needs[row, 0] = 0
            self._free.append(row)
        return tuple(kin)


@kernel
def _who_fits(a: Arrays, h: Holdings, needs: I64, clusters: I64, kept: bool) -> NDArray[np.bool_]:
    """Which rows of ``needs`` might fit into one of the clusters. O(R * sections of the clusters * W)."""
    found = np.zeros(needs.shape[0], np.bool_)
    for row in range(needs.shape[0]):
        if not needs[row, 0] or needs[row, KEPT] != kept:
            continue
        tasks = needs[row, 2]
        for cluster in clusters:
            if not needs[row, SPAN] <= cluster < needs[row, SPAN + 1]:
                continue
            if tasks == 0:
                found[row] = True
                break
            at = 3
            while not found[row] and at < SPAN and needs[row, at + 1] > 0:
                model, gpus = needs[row, at], needs[row, at + 1]
                level, need = needs[row, LEVEL], tasks
                if level == HOST_LEVEL:
                    level, gpus, need = 4, gpus * tasks, 1
                found[row] = _has_room(
                    a, h, needs[row, 1], a.by_cluster[cluster, model, level - 1], need, gpus
                )
                at += 2
    return found


@inner
def _has_room(a: Arrays, h: Holdings, threshold: int, span: I64, tasks: int, gpus: int) -> bool:
    """Whether one of some sections, from the first to before the last, has room for all the tasks."""
    for section in range(span[0], span[1]):
        if _room(a, h, threshold, section, gpus) >= tasks:
            return True
    return False


@inner
def _room(a: Arrays, h: Holdings, threshold: int, section: int, gpus: int) -> int:
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
