"""Who holds what on every host, in columns: what the search for victims reads.

An attempt (A) has an entry on each host where it holds something: its whole GPUs there, CPUs and memory;
and one more for each share of a GPU. The entries of a host are a list in the order in which the
attempts came. ``cleared[k, host]`` counts the GPUs that would be wholly free if all attempts that may be
stopped were gone whose band is lower than ``THRESHOLDS[k]``, however young they are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topmast.fast.region.inventory.arrays import F64, I64, MILLI, Arrays, count_whole
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
        (
            "expected_s",
            np.float64,
        ),  # how long it is expected to hold them; NaN: as a job nobody knows
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
    """The tables; `holders.py` owns them and lets them grow."""

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
def _link(a: Arrays, h: AllocationTable, entry: int) -> None:
    """Put an entry at the end of its host's list. O(1)."""
    host = h.entries[entry].host
    last = h.hosts[host].last
    h.entries[entry].before, h.entries[entry].after = last, NONE
    if last == NONE:
        h.hosts[host].first = entry
    else:
        h.entries[last].after = entry
    h.hosts[host].last = entry


@inner
def _unlink(a: Arrays, h: AllocationTable, entry: int) -> None:
    """Take an entry out of its host's list. O(1)."""
    host, before, after = h.entries[entry].host, h.entries[entry].before, h.entries[entry].after
    if before == NONE:
        h.hosts[host].first = after
    else:
        h.entries[before].after = after
    if after == NONE:
        h.hosts[host].last = before
    else:
        h.entries[after].before = before


@inner
def _count_cleared(a: Arrays, h: AllocationTable, host: int, threshold: int) -> int:
    """Wholly free GPUs once everybody below a threshold is gone. O(entries, squared for shares)."""
    count: int = a.whole[host]
    entry = h.hosts[host].first
    while entry != NONE:
        v = h.entries[entry].of
        if h.attempts[v].evictable and h.attempts[v].band < threshold:
            if h.entries[entry].slot == NONE:
                count += h.entries[entry].whole
            elif _frees_slot(a, h, host, entry, threshold):
                count += 1
        entry = h.entries[entry].after
    return count


@inner
def _frees_slot(a: Arrays, h: AllocationTable, host: int, share: int, threshold: int) -> bool:
    """Whether a slot is free without those below a threshold; told for its first such entry only."""
    slot = h.entries[share].slot
    milli = a.free_milli[slot]
    entry = h.hosts[host].first
    while entry != NONE:
        v = h.entries[entry].of
        if (
            h.entries[entry].slot == slot
            and h.attempts[v].evictable
            and h.attempts[v].band < threshold
        ):
            if milli == a.free_milli[slot] and entry != share:
                return False  # an earlier entry of this slot spoke for it
            milli += h.entries[entry].milli
        entry = h.entries[entry].after
    return bool(milli == MILLI)


@inner
def _count_in(a: Arrays, h: AllocationTable, host: int, change: int) -> None:
    for k in range(h.cleared.shape[0]):
        for level in range(4):
            start = a.hist_start[a.section[level, host]]
            h.cleared_hist[k, start + h.cleared[k, host]] += change


@inner
def _count_whole_in(a: Arrays, host: int, change: int) -> None:
    for level in range(4):
        a.hist[a.hist_start[a.section[level, host]] + a.whole[host]] += change


@kernel
def refresh(a: Arrays, h: AllocationTable, host: int) -> None:
    """Count a host anew, after its slots, entries or attempts changed. O(its slots and entries).

    Raises `RuntimeError` when more GPUs would come free than there are: ``cleared_hist`` has no place for
    such a host, and to count it would overwrite what others hold.
    """
    served = a.available[host]
    if served:
        _count_whole_in(a, host, -1)
        _count_in(a, h, host, -1)
    a.whole[host] = count_whole(a, host)
    gpus = a.offset[host + 1] - a.offset[host]
    for k in range(h.cleared.shape[0]):
        cleared = _count_cleared(a, h, host, THRESHOLDS[k])
        if cleared > gpus:
            raise RuntimeError(OVERDRAWN)
        h.cleared[k, host] = cleared
    if served:
        _count_whole_in(a, host, 1)
        _count_in(a, h, host, 1)
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
def refresh_each(a: Arrays, h: AllocationTable, hosts: I64) -> None:
    """Count some hosts anew. O(their slots and entries)."""
    for host in hosts:
        refresh(a, h, host)


# The next three run several times for every job, and take the fields of `Arrays` and `AllocationTable` one by one: a tuple
# of arrays costs several times as much to hand over from Python.


@kernel
def link_all_of(
    free_milli: I64, offset: I64, whole: I64, available: NDArray[np.bool_], free_cpus: F64,
    free_memory: F64, section: I64, hist: I64, hist_start: I64, members: I64, member_start: I64,
    by_cluster: I64, attempts: Table, entries: Table, hosts: Table, cleared: I64, cleared_hist: I64,
    attempt: int,
) -> None:  # fmt: skip
    """Put the entries of an attempt at the ends of their hosts' lists. O(entries)."""
    a = Arrays(
        free_milli, offset, whole, available, free_cpus, free_memory, section, hist, hist_start,
        members, member_start, by_cluster,
    )  # fmt: skip
    h = AllocationTable(attempts, entries, hosts, cleared, cleared_hist)
    entry = h.attempts[attempt].entry
    while entry != NONE:
        _link(a, h, entry)
        entry = h.entries[entry].more


@kernel
def remove(
    free_milli: I64, offset: I64, whole: I64, available: NDArray[np.bool_], free_cpus: F64,
    free_memory: F64, section: I64, hist: I64, hist_start: I64, members: I64, member_start: I64,
    by_cluster: I64, attempts: Table, entries: Table, hosts: Table, cleared: I64, cleared_hist: I64,
    attempt: int, gone: I64,
) -> int:  # fmt: skip
    """Take an attempt off its hosts, and count those anew. O(their slots and entries).

    Fills ``gone`` with its entries, and returns how many they are.
    """
    a = Arrays(
        free_milli, offset, whole, available, free_cpus, free_memory, section, hist, hist_start,
        members, member_start, by_cluster,
    )  # fmt: skip
    h = AllocationTable(attempts, entries, hosts, cleared, cleared_hist)
    count, entry = 0, h.attempts[attempt].entry
    while entry != NONE:
        _unlink(a, h, entry)
        gone[count] = entry
        count += 1
        entry = h.entries[entry].more
    h.attempts[attempt].evictable = False
    _refresh_hosts(a, h, attempt)
    return count


@kernel
def refresh_all_of(
    free_milli: I64, offset: I64, whole: I64, available: NDArray[np.bool_], free_cpus: F64,
    free_memory: F64, section: I64, hist: I64, hist_start: I64, members: I64, member_start: I64,
    by_cluster: I64, attempts: Table, entries: Table, hosts: Table, cleared: I64, cleared_hist: I64,
    attempt: int,
) -> None:  # fmt: skip
    """Count the hosts of an attempt anew. O(their slots and entries)."""
    a = Arrays(
        free_milli, offset, whole, available, free_cpus, free_memory, section, hist, hist_start,
        members, member_start, by_cluster,
    )  # fmt: skip
    h = AllocationTable(attempts, entries, hosts, cleared, cleared_hist)
    _refresh_hosts(a, h, attempt)


@inner
def _refresh_hosts(a: Arrays, h: AllocationTable, attempt: int) -> None:
    entry = h.attempts[attempt].entry
    while entry != NONE:
        if h.entries[entry].slot == NONE:
            refresh(a, h, h.entries[entry].host)
        entry = h.entries[entry].more


@kernel
def serve(a: Arrays, h: AllocationTable, host: int, available: bool) -> None:
    """Put a host in or out of service. O(levels)."""
    if a.available[host] != available:
        a.available[host] = available
        change = 1 if available else -1
        _count_whole_in(a, host, change)
        _count_in(a, h, host, change)


@kernel
def count_all(a: Arrays, h: AllocationTable) -> None:
    """Count everything anew. O(slots + entries)."""
    a.hist[:] = 0
    h.cleared_hist[:] = 0
    for host in range(a.available.shape[0]):
        if a.available[host]:
            _count_whole_in(a, host, 1)
            _count_in(a, h, host, 1)
        refresh(a, h, host)


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
