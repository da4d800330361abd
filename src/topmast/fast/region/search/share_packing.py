"""Compiled kernels: whether shares of several sizes fit into the GPUs of one host."""

from __future__ import annotations

import numpy as np

from topmast.fast.region.inventory.arrays import I64, MILLI
from topmast.fast.region.search.kernels import NOWHERE
from topmast.jit import kernel

PACKING_NODES = 20_000
"""Steps of the search for a packing of shares of several sizes into a host; then it fails."""


@kernel
def packs(items: I64, count: int, bins: I64, opened: int, where: I64) -> bool:
    """Whether shares (``items``, largest first) fit into ``bins`` and so many whole GPUs.

    Backtracking, equal shares and equally full bins being interchangeable. Writes the bin of each
    to ``where``; bins beyond those given are the opened GPUs. At most PACKING_NODES steps.
    """
    total = bins.shape[0] + opened
    free = np.empty(total, np.int64)
    for k in range(total):
        free[k] = bins[k] if k < bins.shape[0] else MILLI
    for i in range(count):
        where[i] = NOWHERE
    at = 0
    for _ in range(PACKING_NODES):
        if at == count:
            return True
        least = where[at - 1] if at > 0 and items[at] == items[at - 1] else 0
        start = least
        if where[at] != NOWHERE:
            free[where[at]] += items[at]
            start = where[at] + 1
        found = NOWHERE
        for k in range(start, total):
            if free[k] < items[at]:
                continue
            tried = False
            for earlier in range(least, k):
                tried = tried or free[earlier] == free[k]
            if not tried:
                found = k
                break
        where[at] = found
        if found != NOWHERE:
            free[found] -= items[at]
            at += 1
        else:
            at -= 1
            if at < 0:
                return False
    return False


@kernel
def fewest_opened(items: I64, count: int, bins: I64, whole: int) -> int:
    """The fewest of ``whole`` free GPUs to be given out in shares; more than those if none will do.

    Shares of one size: O(bins). Several sizes: by trying.
    """
    if items[0] == items[count - 1]:
        fitting = 0
        for i in range(bins.shape[0]):
            fitting += bins[i] // items[0]
        each = MILLI // items[0]
        needed: int = max(0, (count - fitting + each - 1) // each)
        return needed
    where = np.empty(count, np.int64)
    for opened in range(min(whole, count) + 1):
        if packs(items, count, bins, opened, where):
            return opened
    return whole + 1
