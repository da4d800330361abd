"""Which attempts are remembered: their logs, their ends, and their existence."""

from __future__ import annotations

import os
import shutil
import threading

from topmast.adapters.engines.local import files
from topmast.adapters.engines.local.files import Layout
from topmast.adapters.engines.local.tasks import Tasks


class Memory:
    """Keeps the newest attempts that ended, and of all others one line: that they cannot start.

    What keeps an attempt from a second start is the claims of its tasks. Before they are deleted,
    the file ``forgotten`` says durably ``JOB EPOCH``, and no epoch up to that one starts any more:
    the epochs of a job only rise.
    """

    def __init__(self, layout: Layout, keep_attempts: int) -> None:
        self._layout = layout
        self._keep_attempts = keep_attempts
        self._epochs = files.forgotten_in(layout)
        self._tidy()
        names = [folder.name for folder in layout.attempts.iterdir()]
        half_deleted = [n for n in names if files.is_attempt(n) and self.is_forgotten(n)]
        self._delete_folders(half_deleted)

    def _tidy(self) -> None:
        """Write the file anew if it says more than one line for each job, or what is none."""
        text = "".join(f"{job} {epoch}\n" for job, epoch in self._epochs.items()).encode()
        file = self._layout.forgotten
        if not os.path.lexists(file) or files.read_bytes(file) == text:
            return
        if file.is_dir() and not file.is_symlink():
            shutil.rmtree(file)  # only a task can have made it
        files.write_file(file, text)

    def is_forgotten(self, attempt: str) -> bool:
        """Whether the attempt ran, and all about it was deleted."""
        job, epoch = files.split_attempt(attempt)
        return epoch <= self._epochs.get(job, -1)

    def forget_old(self, tasks: Tasks) -> None:
        """Delete the oldest ended attempts beyond the number that is kept."""
        ended = tasks.ended_attempts()
        old = [attempt for _, attempt in ended[: max(0, len(ended) - self._keep_attempts)]]
        if not old:
            return
        self._write_down(old)
        for attempt in old:
            for task in tasks.of_attempt(attempt):
                # The claim goes first: an end without a claim is no task, and harmless.
                self._layout.claim(task.name).unlink(missing_ok=True)
                self._layout.end(task.name).unlink(missing_ok=True)
            tasks.forget(attempt)
        self._delete_folders(old)

    def _write_down(self, attempts: list[str]) -> None:
        text = ""
        for attempt in attempts:
            job, epoch = files.split_attempt(attempt)
            self._epochs[job] = max(epoch, self._epochs.get(job, 0))
            text += f"{job} {epoch}\n"
        fd = os.open(self._layout.forgotten, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            files.write_all(fd, text.encode())
            os.fsync(fd)
        finally:
            os.close(fd)
        files.sync_folder(self._layout.root)

    def _delete_folders(self, attempts: list[str]) -> None:
        """In the background: a work folder can hold a hundred thousand files."""
        folders = [self._layout.attempt(attempt) for attempt in attempts]

        def delete() -> None:
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)

        if folders:
            threading.Thread(target=delete, name="delete old attempts", daemon=True).start()
