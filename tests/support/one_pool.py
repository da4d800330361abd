"""2D-LAS on one pool of GPUs in a few lines of plain Python: no topology, no queue machine, no journal.

``Pool`` hands out GPUs anew at each event, in order, passing over what does not fit. The orders inside a queue are
ours and, to compare with, that of the public simulator of Tiresias, with its mistake of units or without.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

HAIR = 1e-3


@dataclass
class Job:
    """``since_s``: since when it waits; ``place``: its place in the public code's list."""

    number: int
    submit_s: float
    duration_s: float
    gpus: int
    left_s: float = 0.0
    ran_s: float = 0.0
    queue: int = 0
    running: bool = False
    start_s: float = math.inf
    since_s: float = 0.0
    place: int = 0


Key = Callable[[Job], tuple[float, ...]]


def ours(job: Job) -> tuple[float, ...]:
    """Who runs, by first start; then who waits, by since when."""
    since_s = job.start_s if job.running else job.since_s
    return (job.queue, not job.running, since_s, job.submit_s, job.number)


def first_start(job: Job) -> tuple[float, ...]:
    """By first start, running or not."""
    return (job.queue, job.start_s, job.submit_s, job.number)


def as_listed(job: Job) -> tuple[float, ...]:
    """As the public code lists them: who comes into a queue comes last, who runs moves to the front."""
    return (job.queue, job.place)


@dataclass
class Pool:
    """``in_seconds``: the public code's mistake, the next to sink sought with seconds for GPU-seconds.

    ``rounds_s``: GPUs are handed out at multiples of it only.
    """

    gpus: int
    ends_gpu_s: Sequence[float]
    key: Key = ours
    in_seconds: bool = False
    rounds_s: float | None = None
    now_s: float = 0.0
    jobs: list[Job] = field(default_factory=list)
    jct_s: dict[int, float] = field(default_factory=dict)
    attempts: list[tuple[int, float, float]] = field(default_factory=list)
    began_s: dict[int, float] = field(default_factory=dict)
    entered: int = 0

    def run(self, arrivals: Sequence[Job]) -> float:
        """The mean JCT of all jobs."""
        coming = sorted(arrivals, key=lambda job: (job.submit_s, job.number))
        for job in coming:
            job.left_s = job.duration_s
        while coming or self.jobs:
            self._go_to(min(self._next_s(), coming[0].submit_s if coming else math.inf))
            while coming and coming[0].submit_s <= self.now_s:
                self._enter(coming.pop(0))
            self._end()
            self._sink()
            if self.rounds_s is None or self.now_s % self.rounds_s == 0.0:
                self._hand_out()
        return sum(self.jct_s.values()) / len(self.jct_s)

    def _next_s(self) -> float:
        running = [job for job in self.jobs if job.running]
        ends = [self.now_s + job.left_s for job in running]
        if self.rounds_s is not None and self.jobs:
            ends.append((self.now_s // self.rounds_s + 1.0) * self.rounds_s)
        return min([*ends, *(self._sinks_s(job) for job in running)], default=math.inf)

    def _sinks_s(self, job: Job) -> float:
        if job.queue == len(self.ends_gpu_s):
            return math.inf
        end = self.ends_gpu_s[job.queue]
        if self.in_seconds:
            return max(self.now_s + 1.0, self.now_s + math.ceil((end - job.ran_s) / job.gpus))
        return self.now_s + max(0.0, end - job.ran_s * job.gpus) / job.gpus

    def _go_to(self, at_s: float) -> None:
        for job in self.jobs:
            if job.running:
                job.left_s -= at_s - self.now_s
                job.ran_s += at_s - self.now_s
        self.now_s = at_s

    def _enter(self, job: Job) -> None:
        job.since_s, self.entered = self.now_s, self.entered + 1
        job.place = self.entered
        self.jobs.append(job)

    def _end(self) -> None:
        for job in [j for j in self.jobs if j.running and j.left_s <= 1e-6]:
            self.jobs.remove(job)
            self.jct_s[job.number] = self.now_s - job.submit_s
            self._stop(job)

    def _sink(self) -> None:
        ends = self.ends_gpu_s
        for job in [j for j in self.jobs if j.running]:
            # The public code lets a job sink by one queue at each event.
            while job.queue < len(ends) and job.ran_s * job.gpus >= ends[job.queue] - HAIR:
                job.queue, self.entered = job.queue + 1, self.entered + 1
                job.place = self.entered

    def _hand_out(self) -> None:
        free = self.gpus
        order = sorted(self.jobs, key=self.key)
        for job in order:
            fits = job.gpus <= free
            free -= job.gpus if fits else 0
            if fits and not job.running:
                job.start_s = min(job.start_s, self.now_s)
                self.began_s[job.number], job.running = self.now_s, True
            elif job.running and not fits:
                job.since_s = self.now_s
                self._stop(job)
        for job in sorted(order, key=lambda j: not j.running):
            self.entered += 1
            job.place = self.entered

    def _stop(self, job: Job) -> None:
        job.running = False
        self.attempts.append((job.number, self.began_s[job.number], self.now_s))
