"""A testbed that decides in rounds, in plain Python: SRTF, SRSF and 2D-LAS on hosts, with no queue machine.

As the public testbed of Muri (Zhao et al., SIGCOMM '22) does it: at each round every job is placed anew, in order, on the first
host with room, one that is larger than a host on whole hosts and the rest of another; what ends within a round is idle
until the next. A job sinks to a lower queue when a round begins, and goes behind all that are there; those that run move to the front.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

SIZES, ODDS = (1, 2, 4, 8, 16, 32), (45, 15, 20, 14, 4, 2)
"""GPUs of jobs, as in Philly."""


@dataclass
class Job:
    """``queue``: its number, 0 on top; ``place``: where it stands in it, the first in front."""

    number: int
    submit_s: float
    duration_s: float
    gpus: int
    left_s: float = 0.0
    ran_s: float = 0.0
    queue: int = 0
    place: int = 0
    running: bool = False


@dataclass
class Testbed:
    """``order``: srtf, srsf or las."""

    __test__ = False  # no class of tests, whatever its name begins with

    hosts: int
    gpus_per_host: int
    rounds_s: float
    order: str
    ends_gpu_s: Sequence[float] = (3_250.0, 7_200.0)
    now_s: float = 0.0
    jobs: list[Job] = field(default_factory=list)
    finish_s: dict[int, float] = field(default_factory=dict)
    entered: int = 0

    def run(self, arrivals: Sequence[Job]) -> None:
        """Until every job has ended: when, is in ``finish_s``."""
        coming = sorted(arrivals, key=lambda job: (job.submit_s, job.number))
        for job in coming:
            job.left_s = job.duration_s
        while coming or self.jobs:
            if not self.jobs:
                self.now_s = math.ceil(coming[0].submit_s / self.rounds_s) * self.rounds_s
            while coming and coming[0].submit_s <= self.now_s:
                self._enter(coming[0])
                self.jobs.append(coming.pop(0))
            self._sink()
            self._hand_out()
            self._work()

    def _enter(self, job: Job) -> None:
        self.entered += 1
        job.place = self.entered

    def _sink(self) -> None:
        for job in self.jobs:
            before = job.queue
            while (
                job.queue < len(self.ends_gpu_s)
                and job.ran_s * job.gpus >= self.ends_gpu_s[job.queue]
            ):
                job.queue += 1
            if job.queue > before:
                self._enter(job)

    def _key(self, job: Job) -> tuple[float, ...]:
        if self.order == "las":
            return (job.queue, job.place)
        left = job.left_s * (job.gpus if self.order == "srsf" else 1)
        return (left, job.submit_s, job.number)

    def _hand_out(self) -> None:
        free = [self.gpus_per_host] * self.hosts
        order = sorted(self.jobs, key=self._key)
        for job in order:
            job.running = self._place(free, job.gpus)
        for job in sorted(order, key=lambda job: not job.running):
            self._enter(job)

    def _place(self, free: list[int], need: int) -> bool:
        whole, rest = divmod(need, self.gpus_per_host)
        taken = [host for host, left in enumerate(free) if left == self.gpus_per_host][:whole]
        last = next((h for h, left in enumerate(free) if h not in taken and left >= rest), None)
        if len(taken) < whole or (rest and last is None):
            return False
        for host in taken:
            free[host] = 0
        if rest and last is not None:
            free[last] -= rest
        return True

    def _work(self) -> None:
        """A round goes by."""
        for job in [job for job in self.jobs if job.running]:
            if job.left_s <= self.rounds_s + 1e-9:
                self.finish_s[job.number] = self.now_s + job.left_s
                self.jobs.remove(job)
            job.left_s -= self.rounds_s
            job.ran_s += self.rounds_s
        self.now_s += self.rounds_s


def drawn(seed: int, count: int, gpus: int, load: float, sizes: Sequence[int] = SIZES) -> list[Job]:
    """Jobs of an hour in the median that ask for ``load`` times so many GPUs while they come; the first comes at 0."""
    rng = random.Random(seed)
    odds = [ODDS[SIZES.index(size)] for size in sizes]
    shapes = [
        (
            rng.choices(sizes, odds)[0],
            round(min(86_400.0, rng.lognormvariate(math.log(3_600.0), 1.0)), 3),
        )
        for _ in range(count)
    ]
    window_s = sum(size * length_s for size, length_s in shapes) / (gpus * load)
    times_s = sorted(round(rng.uniform(0.0, window_s), 3) for _ in range(count))
    return [
        Job(number, at_s - times_s[0], length_s, size)
        for number, (at_s, (size, length_s)) in enumerate(zip(times_s, shapes, strict=True))
    ]
