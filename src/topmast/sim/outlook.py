"""What becomes of a forked system within a time: the figures of one future."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from topmast.fast.queue import facts as f
from topmast.fast.region import AllocationPhase
from topmast.model import messages as m
from topmast.model.job import MILLI
from topmast.model.states import TERMINAL, WAITING, JobState, Outcome
from topmast.policies.options import Profile
from topmast.sim.loop import Hear
from topmast.sim.settings import Settings
from topmast.sim.summary import distribution
from topmast.sim.whatif import LIVE, StateSnapshot, WhatIf

STEPS_PER_LOOK = 256
"""After so many steps progress is told."""
Tell = Callable[[int, int, float], None]
"""Shown now and then: jobs that are over, jobs in all, seconds looked ahead."""


class _Job(Struct):
    """A job that was not over in the snapshot. ``since_s``: of its running attempt."""

    tenant: str
    gpus: float
    submit_s: float
    waits: bool
    since_s: float | None = None
    started_s: float | None = None
    finish_s: float | None = None
    state: JobState | None = None
    preemptions: int = 0
    held_gpu_s: float = 0.0


class Outlook:
    """A what-if run that is watched for ``for_s`` from its snapshot on."""

    def __init__(
        self, state: StateSnapshot, profile: Profile, for_s: float, settings: Settings = LIVE
    ) -> None:
        self.from_s = state.at_s
        self.until_s = state.at_s + for_s
        self._jobs: dict[str, _Job] = {}
        hears: dict[type[m.Message], Hear] = {
            m.LaunchGang: self._launched,
            m.AttemptEnded: self._ended,
        }
        self.whatif = WhatIf(state, profile, settings, hears, self._open)

    # --- the books --------------------------------------------------------------------------------

    def _open(self, whatif: WhatIf) -> None:
        """Everything that is not over, before anything happens to it. O(jobs)."""
        for record in whatif.machines.queue.jobs.records.values():
            if not record.finished:
                gpus = record.spec.gpus_milli() / MILLI
                waits = record.state in WAITING
                self._jobs[record.id] = _Job(record.spec.tenant, gpus, record.submit_s, waits)
        for placer in whatif.machines.placers.values():
            for held in placer.state.allocations.values():
                job = self._jobs.get(held.job)
                if held.hold is not AllocationPhase.CLAIMED and job is not None:
                    job.since_s = self.from_s

    def _launched(self, to: str, event: Any, facts: Sequence[Struct], now: float) -> None:
        job = self._jobs.get(event.job)
        if facts and job is not None:
            job.since_s = now
            job.started_s = now if job.started_s is None else job.started_s

    def _ended(self, to: str, event: Any, facts: Sequence[Struct], now: float) -> None:
        for fact in facts:
            job = self._jobs.get(event.job)
            if isinstance(fact, f.Ended) and job is not None:
                self._stop_clock(job, now)
                job.preemptions += event.outcome is Outcome.PREEMPTED
                if fact.to in TERMINAL:
                    job.finish_s, job.state = now, fact.to

    def _stop_clock(self, job: _Job, now: float) -> None:
        if job.since_s is not None:
            job.held_gpu_s += job.gpus * (now - job.since_s)
            job.since_s = None

    # --- the run ----------------------------------------------------------------------------------

    def run(self, tell: Tell | None = None, named: Iterable[str] = ()) -> dict[str, Any]:
        """Look ahead, and return the figures; those of each job that is ``named`` too."""
        jobs = self._jobs

        def look() -> bool:
            if tell is not None and self.whatif.steps % STEPS_PER_LOOK == 0:
                over = sum(job.finish_s is not None for job in jobs.values())
                tell(over, len(jobs), self.whatif.clock.now_s - self.from_s)
            return False

        self.whatif.run(self.until_s, give_up=look)
        for job in jobs.values():
            self._stop_clock(job, self.until_s)
        own = {name: self._own(jobs[name]) for name in named if name in jobs}
        return {**self._figures(), "changed_jobs": own}

    def starts(self) -> dict[str, float | None]:
        """When each job that waited at first started in this future; None: not in it. O(jobs)."""
        return {name: job.started_s for name, job in self._jobs.items() if job.waits}

    def _own(self, job: _Job) -> dict[str, Any]:
        """Of one job; it holds what it holds from before the look."""
        start_s = job.started_s if job.waits else self.from_s
        return {
            "start_s": start_s, "finish_s": job.finish_s, "preemptions": job.preemptions,
            "held_gpu_s": job.held_gpu_s,
        }  # fmt: skip

    def _figures(self) -> dict[str, Any]:
        jobs = list(self._jobs.values())
        present = self._present_gpus()
        length_s = self.until_s - self.from_s
        held = sum(job.held_gpu_s for job in jobs)
        tenants = sorted({job.tenant for job in jobs})
        return {
            **self._part(jobs),
            "gpus": present,
            "allocation_rate": held / (present * length_s) if present and length_s else None,
            "tenants": {
                name: self._part([job for job in jobs if job.tenant == name]) for name in tenants
            },
        }

    def _present_gpus(self) -> float:
        """GPUs that may be used at the end of the look."""
        return float(
            sum(
                int(placer.columns.gpus[placer.columns.available].sum())
                for placer in self.whatif.machines.placers.values()
            )
        )

    def _part(self, jobs: Iterable[_Job]) -> dict[str, Any]:
        """The figures of some of the jobs. One that does not start in time has waited all of it."""
        listed = list(jobs)
        waited = [job for job in listed if job.waits]
        started = [job for job in waited if job.started_s is not None]
        ended = [j for j in listed if j.state is JobState.SUCCEEDED and j.finish_s is not None]
        starts = (self.until_s if j.started_s is None else j.started_s for j in waited)
        wait_s = [start_s - self.from_s for start_s in starts]
        jct_s = [(j.finish_s or 0.0) - j.submit_s for j in ended]
        return {
            "jobs": len(listed),
            "waiting": len(waited),
            "started": len(started),
            "still_waiting": len(waited) - len(started),
            "finished": len(ended),
            "wait_s": distribution(np.array(wait_s)),
            "jct_s": distribution(np.array(jct_s)),
            "preemptions": sum(job.preemptions for job in listed),
            "held_gpu_s": sum(job.held_gpu_s for job in listed),
        }
