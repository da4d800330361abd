"""First come, first served on hosts, each task by best fit, in a few lines of plain Python: no score, no journal."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class Waiting:
    """A gang of equal tasks with whole GPUs."""

    submit_s: float
    duration_s: float
    tasks: int
    gpus: int
    """Of a task."""
    start_s: float = math.inf


class Hosts:
    """Free GPUs by host. A task goes to the host with fewest that holds it, the first of those."""

    def __init__(self, gpus: Sequence[int]) -> None:
        self.free = list(gpus)

    def seat(self, job: Waiting) -> list[int] | None:
        """The host of each task, or none if the gang does not fit as a whole."""
        seats: list[int] = []
        for _ in range(job.tasks):
            able = [(free, host) for host, free in enumerate(self.free) if free >= job.gpus]
            if not able:
                self.leave(job, seats)
                return None
            seats.append(min(able)[1])
            self.free[seats[-1]] -= job.gpus
        return seats

    def leave(self, job: Waiting, seats: Sequence[int]) -> None:
        """A gang ends."""
        for host in seats:
            self.free[host] += job.gpus


def waits_s(jobs: Sequence[Waiting], hosts: Sequence[int], *, skip: bool) -> list[float]:
    """How long each job waits, in the order of submission; ``skip``: those that do not fit are passed over."""
    pool, coming, waiting = Hosts(hosts), list(jobs), list[Waiting]()
    ends: list[tuple[float, int, Waiting, list[int]]] = []
    while coming or ends:
        now_s = min([job.submit_s for job in coming[:1]] + [end[0] for end in ends[:1]])
        while ends and ends[0][0] <= now_s:
            _, _, job, seats = heapq.heappop(ends)
            pool.leave(job, seats)
        while coming and coming[0].submit_s <= now_s:
            waiting.append(coming.pop(0))
        lacking: set[tuple[int, int]] = set()
        for job in list(waiting):
            kind = (job.tasks, job.gpus)
            found = None if kind in lacking else pool.seat(job)
            if found is None:
                lacking.add(kind)
                if skip:
                    continue
                break
            job.start_s = now_s
            waiting.remove(job)
            heapq.heappush(ends, (now_s + job.duration_s, id(job), job, found))
    return [job.start_s - job.submit_s for job in jobs]
