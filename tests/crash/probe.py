"""One task of the crash test: a small program that leaves proof of what happened to it.

For as long as anything of it lives it holds a lock named after its job and rank, and locks on the GPUs
that it was given; and of each attempt it leaves a file that is made once. So a second copy, or another
task on the same GPU, cannot but notice. It appends what it does to one file, a line in a single write,
and goes on from the step at which an earlier attempt was told to stop. Standard library only: it
starts often.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

STEP_S = 0.05
GANG_PATIENCE_S = 60.0
DIGESTS = "digests.json"
"""The file of a dataset that names the SHA-256 of each of the others."""
FAILED, ALONE, DOUBLE = 3, 5, 6
PARTS = 4
"""A GPU is shared by quarters: each has a lock of its own."""
DAEMON_S = 600.0


class Probe:
    """Proof goes to ``folder``; the job is called ``name``, and ends after ``steps`` as ``mode`` says.

    ``share``: how much of each of its GPUs it was given.
    """

    def __init__(self, folder: Path, name: str, mode: str, steps: int, share: float) -> None:
        self.folder = folder
        self.name = name
        self.mode = mode
        self.steps = steps
        self.share = share
        self.host = os.environ["TOPMAST_HOST"]
        self.slots = [slot for slot in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if slot]
        self.job = os.environ["TOPMAST_JOB_ID"]
        self.epoch = int(os.environ["TOPMAST_EPOCH"])
        self.rank = int(os.environ["TOPMAST_RANK"])
        self.size = int(os.environ["TOPMAST_WORLD_SIZE"])
        self.own = Path(os.environ["TOPMAST_CHECKPOINT_DIR"])
        self.told = False

    def run(self) -> int:
        """Work; the exit status."""
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        broken = self.not_alone()
        if broken:
            self.say(broken)
            return DOUBLE
        self.say("start")
        if self.mode == "daemon":
            self.leave_a_daemon()
        self.read_data()
        if self.size > 1 and not self.meet():
            if self.told:
                return self.stop(0)
            self.say("alone")
            return ALONE
        return self.work()

    def not_alone(self) -> str:
        """Take all locks; what there is of another copy, or of another on the same GPU."""
        attempt = self.folder / "attempts" / f"{self.job}.{self.epoch}.{self.rank}"
        try:
            os.close(os.open(attempt, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return "again"
        if not self.lock(f"{self.name}.{self.rank}"):
            return "double"
        for slot in self.slots:
            left = round(self.share * PARTS)
            for part in range(PARTS):
                left -= left > 0 and self.lock(f"gpu.{self.host}.{slot}.{part}")
            if left:
                return "crowded"
        return ""

    def lock(self, name: str) -> bool:
        """Hold a lock until the end of this process and its children; False when it is held."""
        lock = os.open(self.folder / "locks" / name, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        return True

    def leave_a_daemon(self) -> None:
        """A child in a session of its own that holds the same locks and stays when its parent ends."""
        if os.fork() == 0:
            os.setsid()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            time.sleep(DAEMON_S)
            os._exit(0)

    def read_data(self) -> None:
        """Where there is a dataset, there is all of it."""
        for variable, value in os.environ.items():
            if variable.startswith("TOPMAST_DATASET_"):
                place = Path(value)
                for file, digest in json.loads((place / DIGESTS).read_bytes()).items():
                    if hashlib.sha256((place / file).read_bytes()).hexdigest() != digest:
                        self.say("damaged")

    def meet(self) -> bool:
        """Wait until the whole gang runs: a gang that starts in part never gets past this."""
        place = self.folder / "gangs" / f"{self.job}.{self.epoch}"
        place.mkdir(exist_ok=True)
        (place / str(self.rank)).touch()
        deadline_s = time.monotonic() + GANG_PATIENCE_S
        while len(list(place.iterdir())) < self.size:
            if self.told_to_stop(0.01) or time.monotonic() > deadline_s:
                return False
        return True

    def work(self) -> int:
        """Step by step, until all is done or somebody wants it to stop."""
        for step in range(self.resume(), self.steps):
            self.report(step=step)
            if self.told_to_stop(STEP_S):
                return self.stop(step)
        failed = self.own / f"failed.{self.rank}"
        if self.mode == "fail" or (self.mode == "fail-once" and not failed.exists()):
            failed.touch()
            self.say("failed")
            return FAILED
        self.say("done")
        return 0

    def told_to_stop(self, wait_s: float) -> bool:
        """Whether SIGTERM came, waiting a moment for it."""
        if not self.told:
            self.told = signal.sigtimedwait([signal.SIGTERM], wait_s) is not None
        return self.told

    def stop(self, step: int) -> int:
        """Write a checkpoint, and go."""
        if step:
            new = self.own / f"new.{self.rank}"
            new.write_text(str(step))
            new.replace(self.own / f"step.{self.rank}")
            self.report(step=step, checkpoint=True)
        self.say("stopped")
        return 128 + signal.SIGTERM

    def resume(self) -> int:
        """The step to begin with."""
        file = self.own / f"step.{self.rank}"
        if not file.exists():
            return 0
        step = int(file.read_text())
        self.report(step=step, resumed_from=step)
        return step

    def say(self, kind: str) -> None:
        """Append one line of proof."""
        line = {
            "kind": kind, "name": self.name, "job": self.job, "epoch": self.epoch,
            "rank": self.rank, "pid": os.getpid(), "at_s": time.monotonic(),
            "host": self.host, "size": self.size,
        }  # fmt: skip
        append(self.folder / "proof", line)

    def report(self, **news: object) -> None:
        """Tell Topmast."""
        with contextlib.suppress(OSError):  # its disk may be full
            append(Path(os.environ["TOPMAST_PROGRESS_FILE"]), {"at_s": time.time(), **news})


def append(file: Path, line: dict[str, object]) -> None:
    """Add a line to a file that others append to as well: whole, by a single write."""
    data = json.dumps(line).encode() + b"\n"
    fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        if os.write(fd, data) != len(data):
            raise OSError("only a part was written")
    finally:
        os.close(fd)


if __name__ == "__main__":
    _, where, who, how, much, part = sys.argv
    sys.exit(Probe(Path(where), who, how, int(much), float(part)).run())
