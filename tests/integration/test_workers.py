"""Processes that run simulations end with the one that started them, even if that is killed."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.support.live import eventually, is_alive

STARTS = """
import os, time
from topmast.experiments.workers import worker_pool

if __name__ == "__main__":
    with worker_pool(2) as pool:
        both = [pool.submit(os.getpid) for _ in range(2)]
        print(*{run.result() for run in both}, flush=True)
        pool.submit(time.sleep, 600).result()
"""


def test_workers_of_a_killed_process_end(tmp_path: Path) -> None:
    """One waits for work, one works; both are gone soon after a SIGKILL that nobody can tell them of."""
    script = tmp_path / "starts.py"
    script.write_text(STARTS)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = [int(pid) for pid in parent.stdout.readline().split()]
        assert workers
        assert all(is_alive(pid) for pid in workers)
        parent.send_signal(signal.SIGKILL)
    eventually(lambda: not any(is_alive(pid) for pid in workers), "no worker is left")
