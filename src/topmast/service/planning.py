"""A cadence of the slow path, driven by a thread beside the running system.

One thread checks every second what is due, another waits for the planner. The machines are read in
small portions between their commits. Only the first thread changes what is known. Others read it
through one reference, so that no reader waits for a lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import structlog

from topmast.fast.queue import GlobalQueue
from topmast.model.messages import Message
from topmast.ports import Audit, Clock, HistoryRow
from topmast.runtime.loop import Runtime
from topmast.runtime.planning.cadence import Cadence, Report, Solver
from topmast.service.event_stream import EventStream

POLL_S = 1.0
"""How often it is seen what is due."""
ANSWER_S = 30.0
"""How long a machine may take to answer before that counts as an error."""

T = TypeVar("T")
Problem_contra = TypeVar("Problem_contra", contravariant=True)

log = structlog.get_logger(__name__)


class OwnProcess(Solver[Problem_contra], Protocol[Problem_contra]):
    """A planner that can be stopped."""

    def close(self) -> None:
        """Stop, also in the middle of a problem."""
        ...


class LiveSystem:
    """The machines of a runtime, for a thread that may wait."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @property
    def queue(self) -> GlobalQueue:
        """To be read within `ask` alone."""
        return self._runtime.machines.queue

    def ask(self, question: Callable[[], T]) -> T:
        """Read the machines between two commits."""
        return self._runtime.ask(question).result(ANSWER_S)

    def order(self, to: str, message: Message) -> None:
        """Have a machine handle a message. Raises TopmastError for one that it refuses."""
        self._runtime.call(to, message).result(ANSWER_S)


class PlanningThread:
    """Drives a cadence; `open` begins, `close` ends it. Without ``every_s`` it plans nothing.

    ``solver`` makes the planner.
    """

    def __init__(
        self,
        cadence: Cadence[Any, Any, Any],
        runtime: Runtime,
        clock: Clock,
        event_stream: EventStream,
        solver: Callable[[], OwnProcess[Any]],
    ) -> None:
        self._cadence = cadence
        self._runtime, self._clock, self._event_stream = runtime, clock, event_stream
        self._make_solver = solver
        self._solver: OwnProcess[Any] | None = None
        self._stop = threading.Event()
        self._threads = ThreadPoolExecutor(2, f"topmast-{cadence.kind}s")

    def open(self) -> None:
        """Begin; the first plan is due one period from now."""
        if self._cadence.every_s is None:
            return
        solver = self._solver = self._make_solver()

        def solve(request: Any) -> Future[Any]:
            return self._threads.submit(self._cadence.solve, solver, request)

        self._cadence.begin(self._clock.now(), solve)
        self._threads.submit(self._run)

    def close(self) -> None:
        """End both threads, and the planner."""
        self._stop.set()
        if self._solver is not None:
            self._solver.close()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _run(self) -> None:
        while not self._stop.wait(POLL_S):
            try:
                report = self._cadence.step(self._clock.now())
            except Exception as error:  # whatever it is, the last plan stays, and people hear of it
                if self._stop.is_set():
                    return
                log.exception("a planner's cadence went wrong", kind=self._cadence.kind)
                why = f"{type(error).__name__}: {error}"
                report = self._cadence.fail(why, self._clock.now())
            if report is not None:
                self._tell(report)

    def _tell(self, report: Report) -> None:
        log.info(report.text)
        kind = self._cadence.kind if report.applied else f"{self._cadence.kind}-failed"
        row = HistoryRow(self._clock.now(), "", kind, report.text)
        self._runtime.journal.append([], Audit((row,)))  # events are numbered by what is written
        self._event_stream.publish([row])
