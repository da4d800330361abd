"""Allocations on every host, in columns: what the preemption search reads.

An attempt (A) has an entry on each host where it holds something: its whole GPUs there, CPUs and
memory; and one more for each share of a GPU. The entries of a host are a list in the order in which
the attempts came. ``cleared[k, host]`` counts the GPUs that would be wholly free without the
attempts of a band below ``THRESHOLDS[k]`` that may be stopped, however young they are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topmast.fast.region.inventory.arrays import (
    F64,
    I64,
    MILLI,
    Arrays,
    CountedArrays,
    count_whole,
)
from topmast.jit import inner, kernel
from topmast.model.job import Band

NONE = -1
OVERDRAWN = "two attempts hold the same GPUs of a host: the books are wrong"
THRESHOLDS = np.array([Band.LOW, Band.NORMAL, Band.HIGH, Band.CRITICAL, 1_000_000], np.int64)
"""The last stands for any band."""


Table = Any
"""Records of the kinds below; compiled code reads and writes their fields by name."""

ATTEMPT = np.dtype(
    [
        ("evictable", np.bool_),  # preemptible, and starting or running
        ("band", np.int64),  # the effective one
        ("start_s", np.float64),  # when the slots were taken
        ("expected_s", np.float64),  # how long it will hold them; NaN: as an unknown job
        ("stopping", np.bool_),  # told to let go of them
        ("kept_s", np.float64),  # up to when its work is kept; infinite before it runs
        ("weight", np.float64),  # what its lost work counts (`preemption_cost.weight_of`)
        ("gpus", np.float64),  # of the whole gang
        ("entry", np.int64),  # its first
    ],
    align=True,
)
ENTRY = np.dtype(
    [
        ("of", np.int64),  # the attempt
        ("host", np.int64),
        ("whole", np.int64),  # GPUs held wholly
        ("slot", np.int64),  # for a share: the slot, of all hosts'; NONE otherwise
        ("milli", np.int64),
        ("cpus", np.float64),
        ("memory", np.float64),
        ("before", np.int64),  # in the list of its host
        ("after", np.int64),
        ("more", np.int64),  # the next of the same attempt
    ]
)
HOST = np.dtype(
    [
        ("first", np.int64),  # entry
        ("last", np.int64),
        ("latest_s", np.float64),  # up to when the work of any evictable attempt there is kept
        ("weight", np.float64),  # the least of any evictable attempt; 0 where shares are held
        ("lightest", np.float64),  # the least product of weight and GPUs of any of them
    ]
)


def threshold_of(band: int) -> int:
    """The index of the threshold below which a job of this band may stop others."""
    return int(np.searchsorted(THRESHOLDS, int(band)))


class AllocationTable(NamedTuple):
    """The tables; `allocation_index.py` owns them and lets them grow."""

    attempts: Table
    """(A) of `ATTEMPT`."""
    entries: Table
    """(E) of `ENTRY`."""
    hosts: Table
    """(H) of `HOST`."""
    cleared: I64
    """(5 x H)"""
    cleared_hist: I64
    """(5 x as `Arrays.hist`) hosts in service by ``cleared``."""


@inner
def _link(entries: Table, hosts: Table, entry: int) -> None:
    """Put an entry at the end of its host's list. O(1)."""
    host = entries[entry].host
    last = hosts[host].last
    entries[entry].before, entries[entry].after = last, NONE
    if last == NONE:
        hosts[host].first = entry
    else:
        entries[last].after = entry
    hosts[host].last = entry


@inner
def _unlink(entries: Table, hosts: Table, entry: int) -> None:
    """Take an entry out of its host's list. O(1)."""
    host, before, after = entries[entry].host, entries[entry].before, entries[entry].after
    if before == NONE:
        hosts[host].first = after
    else:
        entries[before].after = after
    if after == NONE:
        hosts[host].last = before
    else:
        entries[after].before = before


@inner
def _count_cleared(c: CountedArrays, h: AllocationTable, host: int, threshold: int) -> int:
    """Wholly free GPUs without attempts below a threshold. O(entries, squared for shares)."""
    count: int = c.whole[host]
    entry = h.hosts[host].first
    while entry != NONE:
        v = h.entries[entry].of
        if h.attempts[v].evictable and h.attempts[v].band < threshold:
            if h.entries[entry].slot == NONE:
                count += h.entries[entry].whole
            elif _frees_slot(c, h, host, entry, threshold):
                count += 1
        entry = h.entries[entry].after
    return count


@inner
def _frees_slot(
    c: CountedArrays, h: AllocationTable, host: int, share: int, threshold: int
) -> bool:
    """Whether a slot is free without those below a threshold; at its first such entry only."""
    slot = h.entries[share].slot
    milli = c.free_milli[slot]
    entry = h.hosts[host].first
    while entry != NONE:
        v = h.entries[entry].of
        if (
            h.entries[entry].slot == slot
            and h.attempts[v].evictable
            and h.attempts[v].band < threshold
        ):
            if milli == c.free_milli[slot] and entry != share:
                return False  # an earlier entry of this slot spoke for it
            milli += h.entries[entry].milli
        entry = h.entries[entry].after
    return bool(milli == MILLI)


@inner
def _count_in(c: CountedArrays, h: AllocationTable, host: int, change: int) -> None:
    for k in range(h.cleared.shape[0]):
        for level in range(4):
            start = c.hist_start[c.section[level, host]]
            h.cleared_hist[k, start + h.cleared[k, host]] += change


@inner
def _count_whole_in(c: CountedArrays, host: int, change: int) -> None:
    for level in range(4):
        c.hist[c.hist_start[c.section[level, host]] + c.whole[host]] += change


@inner
def refresh(c: CountedArrays, h: AllocationTable, host: int) -> None:
    """Count a host anew, after its slots, entries or attempts changed. O(its slots and entries).

    Raises `RuntimeError` when more GPUs would come free than there are: ``cleared_hist`` has no
    place for such a host, and to count it would overwrite what others hold.
    """
    served = c.available[host]
    if served:
        _count_whole_in(c, host, -1)
        _count_in(c, h, host, -1)
    c.whole[host] = count_whole(c, host)
    gpus = c.offset[host + 1] - c.offset[host]
    for k in range(h.cleared.shape[0]):
        cleared = _count_cleared(c, h, host, THRESHOLDS[k])
        if cleared > gpus:
            raise RuntimeError(OVERDRAWN)
        h.cleared[k, host] = cleared
    if served:
        _count_whole_in(c, host, 1)
        _count_in(c, h, host, 1)
    latest_s, weight, lightest = -np.inf, np.inf, np.inf
    entry = h.hosts[host].first
    while entry != NONE:
        v = h.entries[entry].of
        if h.attempts[v].evictable:
            latest_s = max(latest_s, h.attempts[v].kept_s)
            share = h.entries[entry].slot != NONE
            weight = min(weight, 0.0 if share else h.attempts[v].weight)
            lightest = min(lightest, h.attempts[v].weight * h.attempts[v].gpus)
        entry = h.entries[entry].after
    h.hosts[host].latest_s, h.hosts[host].weight = latest_s, weight
    h.hosts[host].lightest = lightest


@kernel
def recount(
    free_milli: I64, offset: I64, whole: I64, available: NDArray[np.bool_], section: I64, hist: I64,
    hist_start: I64, host: int,
) -> None:  # fmt: skip
    """Count a host's wholly free GPUs anew, and it in its sections. O(its slots)."""
    c = CountedArrays(free_milli, offset, whole, available, section, hist, hist_start)
    if c.available[host]:
        _count_whole_in(c, host, -1)
    c.whole[host] = count_whole(c, host)
    if c.available[host]:
        _count_whole_in(c, host, 1)


@kernel
def refresh_each(c: CountedArrays, h: AllocationTable, hosts: I64) -> None:
    """Count some hosts anew. O(their slots and entries)."""
    for host in hosts:
        refresh(c, h, host)


# `recount` and the next three run several times for every job, and take the arrays that they need
# one by one: a tuple of arrays costs several times as much to hand over from Python.


@kernel
def link_all_of(attempts: Table, entries: Table, hosts: Table, attempt: int) -> None:
    """Put the entries of an attempt at the ends of their hosts' lists. O(entries)."""
    entry = attempts[attempt].entry
    while entry != NONE:
        _link(entries, hosts, entry)
        entry = entries[entry].more


@kernel
def link_each(attempts: Table, entries: Table, hosts: Table, rows: I64) -> None:
    """`link_all_of` for several attempts, in order. O(entries)."""
    for row in rows:
        link_all_of(attempts, entries, hosts, row)


@kernel
def unlink_all_of(attempts: Table, entries: Table, hosts: Table, attempt: int, gone: I64) -> int:
    """Take the entries of an attempt out of their hosts' lists. O(entries).

    Fills ``gone`` with them, and returns their number. The counts of the hosts stay as they were.
    """
    count, entry = 0, attempts[attempt].entry
    while entry != NONE:
        _unlink(entries, hosts, entry)
        gone[count] = entry
        count += 1
        entry = entries[entry].more
    attempts[attempt].evictable = False
    return count


@kernel
def refresh_all_of(
    free_milli: I64, offset: I64, whole: I64, available: NDArray[np.bool_], section: I64, hist: I64,
    hist_start: I64, attempts: Table, entries: Table, hosts: Table, cleared: I64, cleared_hist: I64,
    attempt: int,
) -> None:  # fmt: skip
    """Count the hosts of an attempt anew. O(their slots and entries)."""
    c = CountedArrays(free_milli, offset, whole, available, section, hist, hist_start)
    h = AllocationTable(attempts, entries, hosts, cleared, cleared_hist)
    entry = h.attempts[attempt].entry
    while entry != NONE:
        if h.entries[entry].slot == NONE:
            refresh(c, h, h.entries[entry].host)
        entry = h.entries[entry].more


@kernel
def serve(c: CountedArrays, h: AllocationTable, host: int, available: bool) -> None:
    """Put a host in or out of service. O(levels)."""
    if c.available[host] != available:
        c.available[host] = available
        change = 1 if available else -1
        _count_whole_in(c, host, change)
        _count_in(c, h, host, change)


@kernel
def count_all(c: CountedArrays, h: AllocationTable) -> None:
    """Count everything anew. O(slots + entries)."""
    c.hist[:] = 0
    h.cleared_hist[:] = 0
    for host in range(c.available.shape[0]):
        if c.available[host]:
            _count_whole_in(c, host, 1)
            _count_in(c, h, host, 1)
        refresh(c, h, host)


@inner
def room_in(a: Arrays, h: AllocationTable, threshold: int, section: int, gpus: int) -> int:
    """The tasks that a section has room for, cleared or, if the ``threshold`` is below 0, free.

    O(W), or O(its hosts) if fewer.
    """
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


@kernel
def older_at(
    h: AllocationTable, of_region: I64, count: int, k: int, now: float, min_s: float
) -> F64:
    """By region: when the next attempt below a threshold becomes old enough to be stopped. O(A)."""
    first_s = np.full(count, np.inf)
    for v in range(of_region.shape[0]):
        if of_region[v] != NONE and h.attempts[v].evictable and h.attempts[v].band < THRESHOLDS[k]:
            old_s = h.attempts[v].start_s + min_s
            if old_s > now:
                first_s[of_region[v]] = min(first_s[of_region[v]], old_s)
    return first_s
