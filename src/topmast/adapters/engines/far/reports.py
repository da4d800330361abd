"""What running tasks report of themselves, as news."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from topmast.adapters.engines.local.tail import Tail
from topmast.model import messages as m
from topmast.ports import Post

TELL_S = 2.0
"""How often a task may have a checkpoint journalled; in between, only the last is remembered."""
Key = tuple[str, int, int]
"""Job, epoch and rank."""


@dataclass
class _Followed:
    """One running task."""

    tail: Tail
    resumed: int | None = None
    """From which step it went on, as far as that was not posted yet."""
    checkpoint: tuple[int, float] | None = None
    """Its last checkpoint that was not posted yet: step and time."""
    told_s: float = float("-inf")


class Reports:
    """Follows the progress files of running tasks. Belongs to one thread."""

    def __init__(self, file: Callable[[str, int, int, str], Path], post: Post) -> None:
        self._file = file
        self._post = post
        self._followed: dict[Key, _Followed] = {}

    def hear(self, message: m.Message, now_s: float) -> None:
        """Begin with a task that started; tell the last of one before its end is told."""
        match message:
            case m.TaskStarted(job=job, epoch=epoch, rank=rank):
                if (job, epoch, rank) not in self._followed:
                    tail = Tail(self._file(job, epoch, rank, "progress"))
                    self._followed[job, epoch, rank] = _Followed(tail)
            case m.TaskExited() | m.TaskLost() | m.TaskEvicted():
                key = (message.job, message.epoch, message.rank)
                task = self._followed.pop(key, None)
                if task is not None:
                    self._read(key, task, now_s, whole=True)
                    self._tell(key, task, now_s)

    def poll(self, now_s: float) -> None:
        """Post what was reported since the last time."""
        for key, task in self._followed.items():
            self._read(key, task, now_s, whole=False)

    def progress(self, job: str, epoch: int, now_s: float) -> None:
        """Post a `ProgressReport` with the last step of an attempt, if it reported any."""
        steps = []
        for key, task in self._followed.items():
            if key[:2] == (job, epoch):
                self._read(key, task, now_s, whole=True)
                steps.append(task.tail.report.step or 0)
        if any(steps):
            self._post(m.ProgressReport(job, epoch, max(steps), now_s))

    def _read(self, key: Key, task: _Followed, now_s: float, *, whole: bool) -> None:
        news = task.tail.read(now_s, whole=whole)
        if news is not None:
            if news.progress:
                report = task.tail.report
                self._post(m.Progress(*key, report.step, dict(report.metrics), now_s))
            task.resumed = task.resumed if news.resumed is None else news.resumed
            task.checkpoint = news.checkpoint or task.checkpoint
        if now_s - task.told_s >= TELL_S:
            self._tell(key, task, now_s)

    def _tell(self, key: Key, task: _Followed, now_s: float) -> None:
        """Post what is journalled of a report. A task may write many: the last one counts."""
        if task.resumed is not None:
            self._post(m.Resumed(*key[:2], task.resumed))
            task.resumed, task.told_s = None, now_s
        if task.checkpoint is not None:
            self._post(m.Checkpointed(*key[:2], *task.checkpoint))
            task.checkpoint, task.told_s = None, now_s
