"""The floor to compare a simulator with: one pool of GPUs and a heap, nothing else.

No topology, tenants, data or history; first come, first served, and jobs that do not fit are passed
over.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from itertools import count


def replay(
    submit_s: Sequence[float], duration_s: Sequence[float], gpus: Sequence[float], pool_gpus: float
) -> list[float]:
    """When each job begins, in the order of submission. O(n x (log n + sizes)).

    Jobs larger than the pool never begin: infinity.
    """
    begins_s = [float("inf")] * len(submit_s)
    waiting: dict[float, deque[int]] = {}
    running: list[tuple[float, int, float]] = []
    free, at = pool_gpus, 0
    numbers = count()
    while at < len(submit_s) or running:
        now_s = running[0][0] if running else submit_s[at]
        if at < len(submit_s):
            now_s = min(now_s, submit_s[at])
        while running and running[0][0] <= now_s:
            free += heapq.heappop(running)[2]
        while at < len(submit_s) and submit_s[at] <= now_s:
            waiting.setdefault(gpus[at], deque()).append(at)
            at += 1
        while True:
            heads = [jobs[0] for size, jobs in waiting.items() if size <= free and jobs]
            if not heads:
                break
            job = min(heads)
            waiting[gpus[job]].popleft()
            free -= gpus[job]
            begins_s[job] = now_s
            heapq.heappush(running, (now_s + duration_s[job], next(numbers), gpus[job]))
    return begins_s
