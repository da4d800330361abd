"""A planner in a process of its own: it may be slow, run out of memory, or crash.

The process lives on between plans, so that each starts from what the last has learned. A process
that takes too long is killed; the next plan starts another.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from topmast.model.errors import TopmastError, Unavailable
from topmast.slow.capacity import planner as capacity
from topmast.slow.capacity.problem import Problem as CapacityProblem
from topmast.slow.data.planner import Options, Planner
from topmast.slow.data.problem import Problem

PATIENCE_S = 30.0
"""So much longer than its time limit a plan may take, compiling kernels and sending included."""
NICE = 10
"""The planner gives way to everything else on the machine."""


Asked = TypeVar("Asked")
Solve = Callable[[Any], dict[str, Any]]


class PlannerProcess(Generic[Asked]):
    """Solves one problem at a time; for one thread, but for `close`.

    ``make`` is called in the process, for what then solves one problem after the other.
    """

    def __init__(
        self, make: Callable[[], Solve], time_limit_s: float, patience_s: float = PATIENCE_S
    ) -> None:
        self._make = make
        self._time_limit_s = time_limit_s
        self._patience_s = patience_s
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        self._lock = threading.Lock()
        self._closed = False

    def plan(self, problem: Asked) -> dict[str, Any]:
        """The answer. Raises Unavailable if the process dies or is slow, or its TopmastError."""
        pipe = self._started()
        limit_s = self._time_limit_s + self._patience_s
        try:
            pipe.send(problem)
            if not pipe.poll(limit_s):
                raise Unavailable(f"the planner took longer than {limit_s:g} s, and was stopped")
            answer = pipe.recv()
        except (EOFError, OSError):
            raise Unavailable(f"the planner's process died{self._how()}") from None
        except Unavailable:
            self._kill()
            raise
        if isinstance(answer, str):
            raise TopmastError(answer)
        found: dict[str, Any] = answer
        return found

    def close(self) -> None:
        """End the process, whatever it does."""
        self._closed = True
        self._kill()

    def _started(self) -> Connection:
        with self._lock:
            if self._closed:
                raise Unavailable("the planner is closed")
            if self._pipe is not None and self._process is not None and self._process.is_alive():
                return self._pipe
            # Spawned, not forked: a fork would copy threads' locks in whatever state they are.
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(
                target=_serve, args=(theirs, self._make), name="topmast-planner", daemon=True
            )
            self._process.start()
            theirs.close()
            return self._pipe

    def _how(self) -> str:
        """How the process ended."""
        process = self._process
        if process is None:
            return ""
        process.join(1.0)
        code = process.exitcode
        if code is None:
            return ""
        return f" (signal {-code})" if code < 0 else f" (exit code {code})"

    def _kill(self) -> None:
        with self._lock:
            process, self._process = self._process, None
            pipe, self._pipe = self._pipe, None
        if process is not None:
            process.kill()
            process.join()
        if pipe is not None:
            pipe.close()


def data_planner(options: Options, patience_s: float = PATIENCE_S) -> PlannerProcess[Problem]:
    """A process that plans where data lies."""
    return PlannerProcess(partial(_data, options), options.time_limit_s, patience_s)


def capacity_planner(
    time_limit_s: float, patience_s: float = PATIENCE_S
) -> PlannerProcess[CapacityProblem]:
    """A process that assigns hosts to clusters, region by region."""
    return PlannerProcess(partial(_capacity, time_limit_s), time_limit_s, patience_s)


def _data(options: Options) -> Solve:
    return Planner(options, time.monotonic).plan


def _capacity(time_limit_s: float) -> Solve:
    return lambda problem: capacity.plan(problem, time_limit_s, time.monotonic)


def _serve(pipe: Connection, make: Callable[[], Solve]) -> None:
    """What the process does: problems in, answers out, until no more problems come."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICE)
    solve = make()
    while True:
        try:
            problem = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(solve(problem))
        except TopmastError as error:
            pipe.send(str(error))
