"""A testbed with Gavel's rounds on GPUs of one model, in plain Python: shares, priorities and starts, with no queue machine.

As the public scheduler of Gavel (Narayanan et al., OSDI '20) hands out rounds: each job has a share of the time, its priority is
that share over the part of all time that it received, and each round goes down the list and takes what fits. Shares are computed anew when
jobs came or ended, at most every ``recompute_s``, and received time is forgotten then. What ends within a round is idle until the next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from tests.support.testbed import Job


@dataclass
class Run:
    """How one job went."""

    job: Job
    received_s: float
    """Since shares were computed last; half a round to begin with."""
    share: float = 0.0
    behind_s: float = 0.0
    """What it should have received, less what it did."""
    held_s: float = 0.0
    starts: int = 0
    first_start_s: float = math.inf
    running: bool = False


@dataclass
class GavelBed:
    """``policy``: max-min-fairness, finish-time-fairness or makespan."""

    SHARES: ClassVar[dict[str, str]] = {
        "max-min-fairness": "_equal", "finish-time-fairness": "_by_finish", "makespan": "_by_end",
    }  # fmt: skip

    gpus: int
    round_s: float
    recompute_s: float
    startup_s: float
    policy: str
    now_s: float = 0.0
    runs: list[Run] = field(default_factory=list)
    finish_s: dict[int, float] = field(default_factory=dict)
    ended: list[Run] = field(default_factory=list)
    computed_s: float = -math.inf
    changed: bool = False

    def run(self, arrivals: Sequence[Job]) -> None:
        """Until every job has ended: when, is in ``finish_s``."""
        coming = sorted(arrivals, key=lambda job: (job.submit_s, job.number))
        for job in coming:
            job.left_s, job.ran_s = job.duration_s, 0.0
        while coming or self.runs:
            if not self.runs:
                self.now_s = math.ceil(coming[0].submit_s / self.round_s) * self.round_s
            while coming and coming[0].submit_s <= self.now_s:
                self.runs.append(Run(coming.pop(0), self.round_s / 2))
                self.changed = True
            if self.changed and self.now_s - self.computed_s >= self.recompute_s:
                self._compute()
            self._round()

    def _compute(self) -> None:
        passed_s = 0.0 if math.isinf(self.computed_s) else self.now_s - self.computed_s
        for run in self.runs:
            run.behind_s += run.share * passed_s - (run.received_s - self.round_s / 2)
            run.received_s = self.round_s / 2
        shares = getattr(self, self.SHARES[self.policy])()
        for run, share in zip(self.runs, shares, strict=True):
            run.share = share
        self.computed_s, self.changed = self.now_s, False

    def _filled(self, shares: list[float]) -> list[float]:
        """What is left of the GPUs goes to all alike, in parts of what each has not."""
        sizes = [run.job.gpus for run in self.runs]
        left = self.gpus - sum(s * x for s, x in zip(sizes, shares, strict=True))
        more = sum(s * (1 - x) for s, x in zip(sizes, shares, strict=True))
        part = min(1.0, left / more) if more > 0 else 0.0
        return [x + part * (1 - x) for x in shares]

    def _equal(self) -> list[float]:
        """GPUs times time are the same for each job, as much as can be of the least."""
        least = min(run.job.gpus for run in self.runs)
        level = min(float(least), self.gpus / len(self.runs))
        return self._filled([level / run.job.gpus for run in self.runs])

    def _alone(self, run: Run) -> float:
        """Its share of an n-th part of the GPUs."""
        return min(1.0, self.gpus / len(self.runs) / run.job.gpus)

    def _by_finish(self) -> list[float]:
        """The greatest ratio of the time until its end to that on an n-th part of the GPUs is as small as can be."""

        def shares(ratio: float) -> list[float]:
            found = []
            for run in self.runs:
                left_s, passed_s = run.job.left_s, self.now_s - run.job.submit_s
                fair_s = passed_s + left_s / self._alone(run)
                room_s = ratio * fair_s - passed_s
                found.append(left_s / room_s if room_s > 0 else math.inf)
            return found

        low, high = 0.0, 100.0
        for _ in range(60):
            ratio = (low + high) / 2
            wanted = shares(ratio)
            used = sum(r.job.gpus * x for r, x in zip(self.runs, wanted, strict=True))
            if max(wanted) <= 1.0 and used <= self.gpus:
                high = ratio
            else:
                low = ratio
        return self._filled([min(1.0, x) for x in shares(high)])

    def _by_end(self) -> list[float]:
        """All end at once, if they can."""
        work_s = sum(run.job.gpus * run.job.left_s for run in self.runs)
        end_s = max(work_s / self.gpus, *(run.job.left_s for run in self.runs), 0.0)
        return self._filled([run.job.left_s / end_s for run in self.runs])

    def _round(self) -> None:
        received_s = sum(run.received_s for run in self.runs)
        order = sorted(
            self.runs,
            key=lambda r: (r.share * received_s / r.received_s, r.behind_s, r.share),
            reverse=True,
        )
        free = self.gpus
        for run in order:  # a list of its own: who ends leaves the other one
            fits = run.job.gpus <= free
            free -= run.job.gpus if fits else 0
            startup_s = 0.0 if run.running else self.startup_s
            if fits and not run.running:
                run.starts += 1
                run.first_start_s = min(run.first_start_s, self.now_s)
            run.running = fits
            if fits:
                self._work(run, startup_s)
        self.now_s += self.round_s

    def _work(self, run: Run, startup_s: float) -> None:
        """A round of one job, which begins with its start, if it did not run before."""
        job, works_s = run.job, self.round_s - startup_s
        ran_s = min(works_s, job.left_s)
        job.left_s -= ran_s
        job.ran_s += ran_s
        run.received_s += startup_s + ran_s
        run.held_s += startup_s + ran_s
        if job.left_s <= 1e-9:
            self.finish_s[job.number] = self.now_s + startup_s + ran_s
            self.ended.append(run)
            self.runs.remove(run)
            self.changed = True
