"""What is shown but never journalled: steps and metrics, what starts wait for, bytes of copies."""

from __future__ import annotations

import threading
from collections import Counter

from msgspec import Struct

from topmast.model.history_views import CurveView
from topmast.model.messages import CopyProgress, Message, Progress, TaskPreparing
from topmast.service.curves import Curves

REASONS_SHOWN = 3


class Steps(Struct):
    """The latest report of a running attempt."""

    epoch: int
    step: int | None = None
    """The furthest step of any rank."""
    metrics: dict[str, float] = {}
    """Those of rank 0, or else of the first rank that reported any."""
    preparing: dict[int, str] = {}
    """What tasks that did not compute yet waited for, by rank."""
    begun: bool = False
    """Whether that is while they hold their GPUs."""

    def preparing_text(self) -> str:
        """Each thing that tasks waited for last, once, with how many did."""
        counts = Counter(self.preparing.values())
        told = [why if count == 1 else f"{why} ({count} tasks)" for why, count in counts.items()]
        return "; ".join(told[:REASONS_SHOWN])


class LiveProgress:
    """Written by engines' threads, read by requests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, Steps] = {}
        self._copies: dict[str, int] = {}
        self._curves = Curves()

    def note(self, message: Message) -> bool:
        """Take a message that is only shown to people; False for any other."""
        if isinstance(message, Progress):
            self._note_step(message)
        elif isinstance(message, TaskPreparing):
            with self._lock:
                if steps := self._steps_of(message.job, message.epoch):
                    if message.begun and not steps.begun:
                        steps.preparing, steps.begun = {}, True
                    steps.preparing[message.rank] = message.why
                    if not message.why:
                        del steps.preparing[message.rank]
        elif isinstance(message, CopyProgress):
            with self._lock:
                self._copies[message.copy] = message.bytes
        else:
            return False
        return True

    def _note_step(self, message: Progress) -> None:
        with self._lock:
            steps = self._steps_of(message.job, message.epoch)
            if steps is None:
                return
            if message.step is not None:
                steps.step = max(steps.step or 0, message.step)
            if message.metrics and (message.rank == 0 or not steps.metrics):
                steps.metrics = message.metrics
            if message.metrics and message.rank == 0 and message.step is not None:
                self._curves.add(message.job, message.step, message.metrics)

    def _steps_of(self, job: str, epoch: int) -> Steps | None:
        """What is known of an attempt; None for one that is over."""
        steps = self._jobs.get(job)
        if steps is None or steps.epoch < epoch:
            steps = self._jobs[job] = Steps(epoch)
        return steps if steps.epoch == epoch else None

    def of_job(self, job: str, epoch: int) -> Steps | None:
        """The latest report of an attempt."""
        steps = self._jobs.get(job)
        return steps if steps is not None and steps.epoch == epoch else None

    def curves_of(self, job: str) -> tuple[CurveView, ...]:
        """What a job reported of its metrics since the server's start, also if it is over."""
        with self._lock:
            return self._curves.of(job)

    def of_copy(self, copy: str) -> int:
        """Bytes of a copy so far."""
        return self._copies.get(copy, 0)

    def forget(self, job: str) -> None:
        """A job is over; its last step is in the journal."""
        with self._lock:
            self._jobs.pop(job, None)
