"""What the engine knows of its tasks, and the news it posts of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from msgspec import UNSET

from topmast.adapters.engines.local import files
from topmast.adapters.engines.local.files import Json, Layout
from topmast.adapters.engines.local.room import Room
from topmast.adapters.engines.local.tail import Tail
from topmast.model.messages import (
    Checkpointed,
    Progress,
    Resumed,
    TaskExited,
    TaskLost,
    TaskReport,
    TaskStarted,
    TruthTask,
)
from topmast.ports import Clock, Post

TELL_S = 2.0
"""How often a task may have a checkpoint journalled; in between, only the last is remembered."""


@dataclass
class Task:
    """One task that was claimed, or that a host was asked to start."""

    name: str
    host: str
    started_s: float | None = None
    end: Json | None = None
    tail: Tail | None = None
    resumed: int | None = None
    """From which step it went on, as far as that was not posted yet."""
    checkpoint: tuple[int, float] | None = None
    """Its last checkpoint that was not posted yet: step and time."""
    told_s: float = -math.inf
    """When something of these was posted last."""

    @property
    def attempt(self) -> str:
        """The name of its attempt."""
        return files.split_task(self.name)[0]

    @property
    def key(self) -> tuple[str, int, int]:
        """Job, epoch and rank."""
        attempt, rank = files.split_task(self.name)
        return (*files.split_attempt(attempt), rank)


class Tasks:
    """Every task that is not forgotten. Belongs to the engine's thread."""

    def __init__(self, layout: Layout, clock: Clock, post: Post, room: Room) -> None:
        self._layout = layout
        self._room = room
        self._clock = clock
        self._post = post
        self._known: dict[str, Task] = {}
        self._running: dict[str, Task] = {}

    def load(self) -> None:
        """Read the claims and ends on disk, and post the ends: they may not have been delivered."""
        for file in sorted(self._layout.tasks.iterdir()):
            if not files.is_task(file.name):
                continue
            note = files.read_json(file)
            if note is None and not file.lstat().st_size:
                continue  # created, never claimed: it may still be started
            task = self.know(file.name, str((note or {}).get("host", "")))
            task.end = files.read_end(self._layout, file.name)
            if task.end is not None:
                self.post_end(task)

    def know(self, name: str, host: str) -> Task:
        """The task of this name, from now on known."""
        task = self._known.get(name)
        if task is None:
            task = self._known[name] = Task(name, host)
        return task

    def get(self, name: str) -> Task | None:
        """A known task."""
        return self._known.get(name)

    def forget(self, attempt: str) -> None:
        """Drop all tasks of an attempt that is over."""
        for task in self.of_attempt(attempt):
            del self._known[task.name]

    def of_attempt(self, attempt: str) -> list[Task]:
        """The known tasks of one attempt."""
        return [task for task in self._known.values() if task.attempt == attempt]

    def alive_on(self, host: str) -> list[Task]:
        """Tasks of a host without a known end."""
        return [t for t in self._known.values() if t.host == host and t.end is None]

    def claimed(self, task: Task) -> bool:
        """Whether a supervisor has taken the task on: it may run."""
        return files.read_json(self._layout.claim(task.name)) is not None

    def ended_attempts(self) -> list[tuple[float, str]]:
        """Attempts with no task alive, by the time of their last end."""
        last: dict[str, float] = {}
        for task in self._known.values():
            at_s = float("inf") if task.end is None else task.end["at_s"]
            last[task.attempt] = max(at_s, last.get(task.attempt, 0.0))
        return sorted((at_s, name) for name, at_s in last.items() if at_s != float("inf"))

    @property
    def running(self) -> bool:
        """Whether any task may report progress."""
        return bool(self._running)

    def started(self, task: Task, at_s: float) -> None:
        """The script runs: say so, and follow what it reports."""
        if task.end is not None:
            return
        task.started_s = at_s
        if task.tail is None:
            task.tail = Tail(self._layout.progress(task.name))
            self._running[task.name] = task
        self._post(TaskStarted(*task.key, at_s=at_s))

    def finish(self, task: Task, error: str) -> bool:
        """Nothing of the task is left: post its recorded end, or that it is lost for `error`.

        False when its supervisor lives after all.
        """
        if task.end is None:
            now = self._clock.now()
            try:
                end = files.bury(self._layout, task.name, error, now)
            except OSError as failure:  # a full disk does not make it any less lost
                self._room.failed(failure)
                text = files.clean_text(f"{error}; not recorded: {failure}")
                end = {
                    "code": None,
                    "at_s": now,
                    "error": text,
                    "step": None,
                    "metrics": {},
                    "stopped": False,
                }
            if end is None:
                return False
            task.end = {**end, "blameless": bool(self._room.why)}
            if task.tail is not None:
                self._read(task, task.tail, whole=True)
                self._tell(task, now)
                task.tail = None
            self._running.pop(task.name, None)
        self.post_end(task)
        return True

    def post_end(self, task: Task) -> None:
        """Report how an ended task ended; a repetition is harmless."""
        assert task.end is not None
        code, error = task.end["code"], task.end["error"]
        if code is None:
            blameless = True if task.end.get("blameless") else UNSET
            self._post(TaskLost(*task.key, error=error, blameless=blameless))
        else:
            at_s, report = task.end["at_s"], _report(task.end)
            stopped = task.end["stopped"] or UNSET
            self._post(TaskExited(*task.key, code, at_s, report, error, stopped))

    def poll(self) -> None:
        """Post what the running tasks have reported since the last time."""
        for task in self._running.values():
            if task.tail is not None:
                self._read(task, task.tail, whole=False)

    def _read(self, task: Task, tail: Tail, *, whole: bool) -> None:
        now = self._clock.now()
        news = tail.read(now, whole=whole)
        if news is not None:
            job, epoch, rank = task.key
            if news.progress:
                metrics = dict(tail.report.metrics)
                self._post(Progress(job, epoch, rank, tail.report.step, metrics, now))
            task.resumed = task.resumed if news.resumed is None else news.resumed
            task.checkpoint = news.checkpoint or task.checkpoint
        if now - task.told_s >= TELL_S:
            self._tell(task, now)

    def _tell(self, task: Task, now: float) -> None:
        """Post what is journalled of a report. A task may write many: the last one counts."""
        job, epoch, _ = task.key
        if task.resumed is not None:
            self._post(Resumed(job, epoch, task.resumed))
            task.resumed, task.told_s = None, now
        if task.checkpoint is not None:
            self._post(Checkpointed(job, epoch, *task.checkpoint))
            task.checkpoint, task.told_s = None, now

    def step_of(self, task: Task) -> int | None:
        """The last step of a running task, whatever it wrote until now."""
        if task.tail is None:
            return None
        self._read(task, task.tail, whole=True)
        return task.tail.report.step

    def truth(self) -> tuple[TruthTask, ...]:
        """What runs and what ended, by name; not what a host was asked for and has not begun."""
        return tuple(
            _truth(task)
            for _, task in sorted(self._known.items())
            if task.end or task.started_s or files.read_json(self._layout.claim(task.name))
        )


def _truth(task: Task) -> TruthTask:
    end = task.end
    if end is None:
        return TruthTask(*task.key, running=True, at_s=task.started_s or 0.0)
    return TruthTask(
        *task.key, running=False, code=end["code"], at_s=end["at_s"], report=_report(end),
        stopped=end["stopped"] or UNSET,
    )  # fmt: skip


def _report(end: Json) -> TaskReport:
    return TaskReport(step=end["step"], metrics=end["metrics"])
