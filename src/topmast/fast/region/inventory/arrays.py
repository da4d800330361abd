"""What compiled kernels read of the inventory: columns of all regions, and their counts.

A *section* is the hosts of one GPU model in one topology domain; ``hist[section, f]`` counts its
hosts in service with f wholly free GPUs, and is kept with each allocation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topmast.jit import inner

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

MILLI = 1000
"""Thousandths of a whole GPU."""


class Arrays(NamedTuple):
    """The columns that the search reads; `columns.py` and `index.py` own them."""

    free_milli: I64
    """(slots) thousandths free of each GPU; below zero where a preemptor has claimed a victim's."""
    offset: I64
    """(H + 1) host h owns slots offset[h]:offset[h + 1]."""
    whole: I64
    """(H) wholly free GPUs."""
    available: NDArray[np.bool_]
    """(H) hosts in service."""
    free_cpus: F64
    free_memory: F64
    section: I64
    """(4 x H) the host's section at the levels rack, pod, datacenter, cluster."""
    hist: I64
    """Section s has hist[hist_start[s]:hist_start[s + 1]]: hosts in service by wholly free GPUs."""
    hist_start: I64
    members: I64
    """Section s has the hosts members[member_start[s]:member_start[s + 1]], in order."""
    member_start: I64
    by_cluster: I64
    """(C x models x 4 x 2) sections of a cluster, model, level: the first, and after the last."""


class CountedArrays(NamedTuple):
    """Of `Arrays` those that counting a host anew reads and writes."""

    free_milli: I64
    offset: I64
    whole: I64
    available: NDArray[np.bool_]
    section: I64
    hist: I64
    hist_start: I64


def counted_of(a: Arrays) -> CountedArrays:
    """The same arrays, only those that are counted with."""
    return CountedArrays(
        a.free_milli, a.offset, a.whole, a.available, a.section, a.hist, a.hist_start
    )


@inner
def hist_of(a: Arrays, section: int) -> I64:
    """A section's hosts in service by wholly free GPUs (its W)."""
    return a.hist[a.hist_start[section] : a.hist_start[section + 1]]


@inner
def count_whole(a: CountedArrays, host: int) -> int:
    """Count a host's wholly free GPUs anew. O(its slots)."""
    count = 0
    for slot in range(a.offset[host], a.offset[host + 1]):
        if a.free_milli[slot] == MILLI:
            count += 1
    return count
