"""A job that takes time as training does, and does nothing else: it starts, works, and saves.

It needs the standard library alone: `python -I -S sleeper.py WORK_S INTERVAL_S START_S SAVE_S
RESTORE_S [CLUSTER=SPEED ...]`. Work is in seconds at speed 1. It saves when it is stopped.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from topmast.report import progress

STOPPED = 143
NEXT_TO_NOTHING_S = 1e-6


class Job:
    """One attempt of one task."""

    def __init__(self, work_s: float, speed: float, save_s: float, file: Path) -> None:
        self._left_s = work_s
        self._speed = speed
        self._save_s = save_s
        self._file = file

    def load(self, restore_s: float) -> None:
        """Take up what an earlier attempt saved."""
        if self._file.exists():
            self._left_s = float(self._file.read_text("ascii"))
            _sleep(restore_s)

    def work(self, interval_s: float) -> None:
        """Work until nothing is left, and save after each interval but the last."""
        while self._left_s > NEXT_TO_NOTHING_S:
            begun_s = time.monotonic()
            stopped = _is_stopped_in(min(interval_s, self._left_s / self._speed))
            self._left_s -= (time.monotonic() - begun_s) * self._speed
            if stopped or self._left_s > NEXT_TO_NOTHING_S:
                self._save()
            if stopped:
                sys.exit(STOPPED)

    def _save(self) -> None:
        time.sleep(self._save_s)
        fresh = self._file.with_suffix(".new")
        fresh.write_text(repr(self._left_s), "ascii")
        fresh.replace(self._file)
        progress(step=round(time.monotonic()), checkpoint=True)


def _is_stopped_in(length_s: float) -> bool:
    """Wait so long, or until SIGTERM comes, or at once if it came while this was not waiting."""
    return signal.sigtimedwait([signal.SIGTERM], length_s) is not None


def _sleep(length_s: float) -> None:
    """Wait where there is nothing to save."""
    if _is_stopped_in(length_s):
        sys.exit(STOPPED)


def main(arguments: list[str]) -> None:
    """Run the attempt that the environment is about."""
    work_s, interval_s, start_s, save_s, restore_s = (float(word) for word in arguments[:5])
    speeds = dict(word.split("=") for word in arguments[5:])
    speed = float(speeds.get(os.environ["TOPMAST_CLUSTER"], "1"))
    file = Path(os.environ["TOPMAST_CHECKPOINT_DIR"]) / f"rank-{os.environ['TOPMAST_RANK']}"
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    _sleep(start_s)
    job = Job(work_s, speed, save_s, file)
    job.load(restore_s)
    job.work(interval_s)


if __name__ == "__main__":
    main(sys.argv[1:])
