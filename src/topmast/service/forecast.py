"""The expected start of jobs: copies of the system, run ahead in a thread of their own.

The runtime's thread only takes the snapshots. One copy runs at a time, for at most `PATIENCE_S`.
The last one is kept for a while, so that questions about other jobs continue where it stopped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import msgspec
import structlog

from topmast.adapters.handing import handed
from topmast.model.job import JobSpec
from topmast.model.reason import HOPELESS
from topmast.model.views import ExpectedStart, Explanation
from topmast.ports import Clock
from topmast.runtime.loop import Runtime
from topmast.runtime.machines import RegionState
from topmast.service.regions import Regions
from topmast.sim.forecast import Forecast, forecast_start
from topmast.sim.settings import Settings, read_foreseen
from topmast.sim.whatif import StateSnapshot, state_snapshot_of

FORESEEN = "foreseen"
"""The option of the journal with what `topmast up --set sim.KEY=VALUE` said of starts and GPUs."""

PATIENCE_S = 0.8
"""How long a copy may run for one question; what is beyond is estimated by list scheduling."""
SAME_S = 10.0
"""How long a forecast serves while nothing was decided."""
FRESH_S = 1.0
"""How long it serves in any case."""
LISTED_S = 15.0
"""How long it serves for lists."""
LIST_WAITS_S = 0.3
"""How long a list waits for a forecast at most that was begun for it."""
MOST_LISTED = 20_000
"""With more jobs than these, no forecast is made for a list."""
MOST_COPIED_BYTES = 512 * 1024 * 1024
"""Of the text of all jobs: a copy takes several times as much memory."""
T = TypeVar("T")
log = structlog.get_logger(__name__)


class Forecasts:
    """Estimates when jobs will start; without an estimate it answers nothing."""

    def __init__(
        self,
        runtime: Runtime,
        regions: Regions,
        clock: Clock,
        option: Callable[[str], str | None],
    ) -> None:
        """``option``: what is kept in the journal."""
        self._runtime = runtime
        self._option = option
        self._regions = regions
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "forecast")
        self._last: Forecast | None = None
        self._made_s = 0.0
        self._making: asyncio.Task[None] | None = None

    async def of_job(self, job: str) -> ExpectedStart | None:
        """When a waiting job will start."""
        state = None
        if not self._serves(job):
            state = await self._snapshot()
            if state is None:
                return None
        return await self._on_thread(partial(self._look_up, job, state))

    async def _on_thread(self, work: Callable[[], T]) -> T:
        """On a thread of its own: those of all requests do not wait for one another's forecasts."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def ends(self) -> Mapping[str, float]:
        """When running jobs will be over, as far as the last forecast was run ahead."""
        last = self._last
        return {} if last is None else dict(last.ended_s)

    async def of_list(self, jobs: Sequence[str]) -> dict[str, float | None]:
        """When waiting jobs will start, as far as the last forecast knows; None: it sees no start.

        A new one is begun when the last is old or was made before one of the jobs; the list waits
        for it a moment at most, and the next list has the rest.
        """
        idle = self._making is None or self._making.done()
        few = len(self._runtime.machines.queue.jobs.records) <= MOST_LISTED
        if jobs and idle and few and self._is_old(jobs):
            self._making = asyncio.create_task(self._foresee(jobs))
            await asyncio.wait({self._making}, timeout=LIST_WAITS_S)
        last = self._last
        if last is None:
            return {}
        found: dict[str, float | None] = {job: None for job in jobs if last.sees_none(job)}
        return found | {job: last.starts[job][0] for job in jobs if job in last.starts}

    def _is_old(self, jobs: Sequence[str]) -> bool:
        """Whether a list asks for a new forecast."""
        last, age_s = self._last, time.monotonic() - self._made_s
        if last is None or age_s > LISTED_S:
            return True
        known = last.whatif.machines.queue.jobs.records
        return age_s > FRESH_S and any(job not in known for job in jobs)

    async def _foresee(self, jobs: Sequence[str]) -> None:
        """Run a new copy until it has started all these jobs, or for as long as one may run."""
        state = await self._snapshot()
        if state is not None:
            await self._on_thread(partial(self._run_on, jobs, state))

    def _run_on(self, jobs: Sequence[str], state: StateSnapshot) -> None:
        try:
            profile = self._runtime.machines.profile
            last = self._last = Forecast(state, profile, self._settings())
            self._made_s = time.monotonic()
            known, give_up = last.whatif.machines.queue.jobs.records, patience()
            for job in jobs:
                if job in known and not give_up():
                    last.start_of(job, give_up)
        except Exception:
            self._last = None
            log.exception("no forecast", jobs=len(jobs))

    async def of_spec(self, spec: JobSpec) -> ExpectedStart | None:
        """When a job would start if it were submitted now."""
        state = await self._snapshot()
        if state is None:
            return None
        return await self._on_thread(partial(self._try, state, spec))

    async def _snapshot(self) -> StateSnapshot | None:
        """The machines one after the other, between which decisions go on; None: too much to copy.

        The queue is last: what it has learned of a region meanwhile is news on its way there, as
        it is with a region of another process (see `WhatIf`).
        """
        runtime, states = self._runtime, dict[str, RegionState]()
        if await handed(runtime.ask(self._letters)) > MOST_COPIED_BYTES:
            return None
        for region in await handed(runtime.ask(lambda: sorted(self._regions.placers))):
            state = await handed(runtime.ask(partial(self._regions.state, region)))
            if state is not None:
                states[region] = state

        def question() -> StateSnapshot:
            queue = runtime.machines.queue
            return state_snapshot_of(queue, states, self._clock.now(), runtime.seq)

        return await handed(runtime.ask(question))

    def _letters(self) -> int:
        jobs = self._runtime.machines.queue.jobs
        return jobs.weights.letters(len(jobs.records))

    def _settings(self) -> Settings:
        return read_foreseen(foreseen(self._option(FORESEEN)), "up")

    def _serves(self, job: str) -> bool:
        """Whether the last forecast still tells about a job."""
        last, age_s = self._last, time.monotonic() - self._made_s
        if last is None or job not in last.whatif.machines.queue.jobs.records:
            return False
        return age_s < FRESH_S or (age_s < SAME_S and last.seq == self._runtime.seq)

    def _look_up(self, job: str, state: StateSnapshot | None) -> ExpectedStart | None:
        try:
            give_up = patience()
            if state is not None or self._last is None:
                if state is None:
                    return None
                profile = self._runtime.machines.profile
                self._last = Forecast(state, profile, self._settings())
                self._made_s = time.monotonic()
            return self._last.start_of(job, give_up)
        except Exception:
            self._last = None
            log.exception("no forecast", job=job)
            return None

    def _try(self, state: StateSnapshot, spec: JobSpec) -> ExpectedStart | None:
        try:
            profile = self._runtime.machines.profile
            return forecast_start(state, profile, spec, self._settings(), patience())
        except Exception:
            log.exception("no forecast", job=spec.name)
            return None


def foreseen(kept: str | None) -> dict[str, str]:
    """The options `sim.KEY` that the journal keeps; none if nothing is kept."""
    return {} if kept is None else msgspec.json.decode(kept, type=dict[str, str])


def patience() -> Callable[[], bool]:
    """True when a copy has run for long enough."""
    end_s = time.monotonic() + PATIENCE_S
    return lambda: time.monotonic() >= end_s


def with_start(explanation: Explanation, start: ExpectedStart | None) -> Explanation:
    """An explanation with the start that is expected."""
    reasons, until_s = (explanation.reason, *explanation.also), explanation.until_s
    if start is None or any(reason in HOPELESS for reason in reasons):
        return explanation
    if start.at_s is not None and until_s is not None and start.at_s > until_s:
        start = ExpectedStart(None, None, None, "no expected event lets it start in time")
    return msgspec.structs.replace(
        explanation, expected_start_s=start.at_s, basis=start.basis, expected_start=start
    )
