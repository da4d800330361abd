"""What the local engine keeps on disk, and how records become durable.

Standard library only: agents and supervisors, which must be small, use this module.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import re
import stat
from pathlib import Path
from typing import Any

PROGRESS_TAIL_BYTES = 1 << 20
METRICS_MAX = 64
METRIC_NAME_MAX = 128
EXIT_CODE_MAX = 255
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})
"""What a disk says that may take the same bytes later."""
UNWRITABLE = NO_ROOM | {errno.EROFS}
"""The same of file systems; one is often made read-only after an error of its disk."""
PROBE_BYTES = 1 << 16

READ_MAX_BYTES = 1 << 30
"""No file of ours is larger; a task can make one that fits into no memory."""

_NUMBER = r"(?:0|[1-9][0-9]{0,11})"
"""As Topmast writes numbers, and small enough for a column: a task can make files of any name."""
_ATTEMPT = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]*\.{_NUMBER}")
_TASK = re.compile(rf"{_ATTEMPT.pattern}\.{_NUMBER}")

Json = dict[str, Any]


class Layout:
    """Where things are in the folder of one cluster. A task is named JOB.EPOCH.RANK."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tasks = root / "tasks"
        self.attempts = root / "attempts"
        self.hosts = root / "hosts"
        self.forgotten = root / "forgotten"

    def claim(self, task: str) -> Path:
        """The file that a supervisor locks; its content says that this has ever happened."""
        return self.tasks / task

    def end(self, task: str) -> Path:
        """The record of how a task ended."""
        return self.tasks / f"{task}.end"

    def attempt(self, attempt: str) -> Path:
        """The folder of an attempt: its plan, orders, scripts, logs and work folders."""
        return self.attempts / attempt

    def plan(self, attempt: str) -> Path:
        """Everything that is needed to run the attempt's tasks."""
        return self.attempts / attempt / "plan.json"

    def stop(self, attempt: str) -> Path:
        """The order to stop; while it is there, nothing of the attempt starts."""
        return self.attempts / attempt / "stop.json"

    def suspended(self, attempt: str) -> Path:
        """The order to halt, for as long as the file exists."""
        return self.attempts / attempt / "suspended"

    @property
    def exec_socket(self) -> Path:
        """Where what keeps a command beside a task is heard."""
        return self.root / "exec.sock"

    def exec(self, attempt: str, rank: int, id: str) -> Path:
        """The order to run a command beside a task."""
        return self.execs(attempt) / f"{rank}.{id}"

    def execs(self, attempt: str) -> Path:
        """The folder of such orders."""
        return self.attempts / attempt / "execs"

    def log(self, task: str) -> Path:
        """What the task wrote to stdout and stderr."""
        attempt, rank = split_task(task)
        return self.attempts / attempt / f"{rank}.log"

    def progress(self, task: str) -> Path:
        """What the task reported, one JSON object a line."""
        attempt, rank = split_task(task)
        return self.attempts / attempt / f"{rank}.progress"

    def work(self, attempt: str, host: str) -> Path:
        """The folder that the attempt's tasks on one host share."""
        return self.attempts / attempt / "hosts" / host

    def host(self, host: str) -> Path:
        """The folder of a host agent: its lock, socket and record."""
        return self.hosts / host


def is_attempt(name: str) -> bool:
    """Whether a file may be named after an attempt: other things may lie about."""
    return _ATTEMPT.fullmatch(name) is not None


def is_task(name: str) -> bool:
    """Whether a file may be named after a task."""
    return _TASK.fullmatch(name) is not None


def split_task(task: str) -> tuple[str, int]:
    """The attempt and the rank in the name of a task."""
    attempt, _, rank = task.rpartition(".")
    return attempt, int(rank)


def split_attempt(attempt: str) -> tuple[str, int]:
    """The job and the epoch in the name of an attempt."""
    job, _, epoch = attempt.rpartition(".")
    return job, int(epoch)


def epochs_in(layout: Layout) -> dict[str, int]:
    """The newest epoch of each job of which there is a trace, whatever became of it."""
    found: dict[str, int] = {}

    def note(attempt: str) -> None:
        job, epoch = split_attempt(attempt)
        found[job] = max(epoch, found.get(job, 0))

    for name in _names_in(layout.tasks):
        if is_task(name):
            note(split_task(name)[0])
    for name in _names_in(layout.attempts):
        if is_attempt(name):
            note(name)
    for job, epoch in forgotten_in(layout).items():
        found[job] = max(epoch, found.get(job, 0))
    return found


def forgotten_in(layout: Layout) -> dict[str, int]:
    """The newest forgotten epoch of each job. Lines that do not name one are left out."""
    found: dict[str, int] = {}
    # A torn last line names nothing that was deleted.
    for line in (read_bytes(layout.forgotten) or b"").split(b"\n")[:-1]:
        attempt = line.decode(errors="replace").replace(" ", ".")
        if is_attempt(attempt):
            job, epoch = split_attempt(attempt)
            found[job] = max(epoch, found.get(job, 0))
    return found


def _names_in(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()] if folder.is_dir() else []


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, for our eyes only."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_file(file: Path, content: bytes, *, durable: bool = True) -> None:
    """Put a file in its place whole, or not at all."""
    new = file.with_name(f".{file.name}.{os.getpid()}")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        write_all(fd, content)
        if durable:
            os.fsync(fd)
        new.replace(file)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
    if durable:
        sync_folder(file.parent)


def write_fault(folder: Path) -> OSError | None:
    """Why no file of some size can be made in a folder; None: it can."""
    file = folder / f".probe.{os.getpid()}"
    try:
        make_folder(folder)
        write_file(file, bytes(PROBE_BYTES), durable=False)
        file.unlink()
    except OSError as error:
        return error
    return None


def write_all(fd: int, content: bytes) -> None:
    """Write every byte; the kernel may take a part at a time."""
    while content:
        content = content[os.write(fd, content) :]


def write_json(file: Path, value: Json, *, durable: bool = True) -> None:
    """`write_file` for a JSON object."""
    write_file(file, json.dumps(value).encode(), durable=durable)


def read_bytes(file: Path) -> bytes | None:
    """What is in a file; None when it is missing, or is what no file of ours is."""
    try:
        # Not to wait for ever if a task put a named pipe in its place.
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_size > READ_MAX_BYTES:
            return None
        with open(fd, "rb", closefd=False) as content:
            return content.read()
    except OSError:
        return None
    finally:
        os.close(fd)


def read_json(file: Path) -> Json | None:
    """The object in a file; None when there is no file, or no object in it."""
    try:
        value = json.loads(read_bytes(file) or b"")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def try_lock(file: Path) -> int | None:
    """An open file with its exclusive lock; None when another process has it."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except BaseException:
        os.close(fd)
        raise
    return fd


def is_locked(file: Path) -> bool:
    """Whether a living process has the lock."""
    if not file.is_file():
        return False
    fd = try_lock(file)
    if fd is not None:
        os.close(fd)
    return fd is None


def claim(file: Path, note: Json) -> int | None:
    """Take a task for this process, for good: None if it was ever taken.

    The note is durable when this returns, so that not even a crash of the machine lets the task be
    taken again. The lock lasts as long as the descriptor.
    """
    fd = try_lock(file)
    if fd is None:
        return None
    if os.fstat(fd).st_size:
        os.close(fd)
        return None
    write_all(fd, json.dumps(note).encode())
    os.fsync(fd)
    sync_folder(file.parent)
    return fd


def bury(layout: Layout, task: str, error: str, now: float) -> Json | None:
    """Record that a task is lost unless its end is recorded; returns the record.

    None when its supervisor lives. A task that was never taken can never be taken afterwards.
    """
    end = read_end(layout, task)
    if end is not None:
        return end
    fd = try_lock(layout.claim(task))
    if fd is None:
        return None
    try:
        end = read_end(layout, task)
        if end is not None:
            return end
        if not os.fstat(fd).st_size:
            write_all(fd, json.dumps({"refused": error}).encode())
            os.fsync(fd)
        report = last_report(layout.progress(task))
        return record_end(layout, task, None, now, error, report)
    finally:
        os.close(fd)


def record_end(
    layout: Layout, task: str, code: int | None, at_s: float, error: str, report: Report,
    *, stopped: bool = False,
) -> Json:  # fmt: skip
    """Write how a task ended; `code` None: lost; `stopped`: it had been told to stop."""
    end = {
        "code": code,
        "at_s": at_s,
        "error": clean_text(error),
        "step": report.step,
        "metrics": report.metrics,
        "stopped": stopped,
    }
    write_json(layout.end(task), end)
    return end


def read_end(layout: Layout, task: str) -> Json | None:
    """The valid part of the record of a task's end, if there is one.

    A task can write here, and earlier versions wrote what could not be read again.
    """
    found = read_json(layout.end(task))
    if found is None:
        return None
    code = whole_number(found.get("code"))
    report = Report()
    report.note(found)
    return {
        "code": code if code is not None and code <= EXIT_CODE_MAX else None,
        "at_s": finite_number(found.get("at_s")) or 0.0,
        "error": clean_text(str(found.get("error", ""))),
        "step": report.step,
        "metrics": report.metrics,
        "stopped": found.get("stopped") is True,  # supervisors of earlier versions do not say
    }


class Report:
    """What a task has said so far: the last step, the last value of each metric."""

    def __init__(self) -> None:
        self.step: int | None = None
        self.metrics: dict[str, float] = {}

    def take(self, line: bytes) -> Json | None:
        """Take in one line of a progress file; None when it is not one. Anything may be in it."""
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            return None
        if not isinstance(value, dict):
            return None
        self.note(value)
        return value

    def note(self, value: Json) -> None:
        """Take in the step and the metrics of an object, as far as they are such."""
        step = whole_number(value.get("step"))
        if step is not None:
            self.step = step
        metrics = value.get("metrics")
        for name, number in metrics.items() if isinstance(metrics, dict) else ():
            known = name in self.metrics or len(self.metrics) < METRICS_MAX
            found = finite_number(number)
            if found is not None and known and len(name) <= METRIC_NAME_MAX and is_text(name):
                self.metrics[name] = found


def is_text(value: str) -> bool:
    """Whether a string can be written anywhere: JSON can escape half a character, UTF-8 cannot."""
    return clean_text(value) == value


def clean_text(value: str) -> str:
    """A string without what cannot be written: half characters (in names of files), and NUL."""
    return value.encode(errors="replace").decode().replace("\0", "?")


def whole_number(value: object) -> int | None:
    """An integer from 0 that every reader of JSON takes for the same one, or None."""
    return value if type(value) is int and 0 <= value < 1 << 53 else None


def finite_number(value: object) -> float | None:
    """A number that is one, or None; an integer may be too large for a float."""
    if type(value) is int and abs(value) < 1 << 1000:
        return float(value)
    return value if type(value) is float and math.isfinite(value) else None


def last_report(progress: Path) -> Report:
    """What the end of a progress file says."""
    report = Report()
    try:
        # Not to wait for ever if a task put a named pipe in its place.
        fd = os.open(progress, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            start = max(0, os.fstat(fd).st_size - PROGRESS_TAIL_BYTES)
            content = os.pread(fd, PROGRESS_TAIL_BYTES, start)
        finally:
            os.close(fd)
    except OSError:
        return report
    for line in content.split(b"\n"):
        report.take(line)
    return report
