"""The job of the closed loop: it takes the time it should, and goes on where it was stopped."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = Path(__file__).parents[3] / "src" / "topmast" / "bench" / "sleeper.py"


def start(folder: Path, work_s: float, speed: float = 1.0) -> subprocess.Popen[bytes]:
    words = [str(x) for x in (work_s, 0.4, 0.1, 0.1, 0.1)]
    environment = {
        "TOPMAST_CLUSTER": "here", "TOPMAST_RANK": "0", "TOPMAST_CHECKPOINT_DIR": str(folder),
        "TOPMAST_PROGRESS_FILE": str(folder / "progress"), "PATH": os.defpath,
    }  # fmt: skip
    command = [sys.executable, "-I", "-S", str(PROGRAM), *words, f"here={speed}"]
    return subprocess.Popen(command, env=environment)


def test_a_faster_gpu_does_its_work_sooner(tmp_path: Path) -> None:
    """1.2 s of work at twice the speed: 0.6 s, with a start, and a checkpoint after 0.4 s."""
    begun_s = time.monotonic()
    assert start(tmp_path, 1.2, 2.0).wait(30) == 0
    assert time.monotonic() - begun_s >= 0.8
    assert float((tmp_path / "rank-0").read_text()) <= 0.4 + 0.01
    assert '"checkpoint":true' in (tmp_path / "progress").read_text()


def test_a_stopped_job_goes_on_where_it_was(tmp_path: Path) -> None:
    """What is left is on disk when it has ended, and the next attempt does no more than that."""
    job = start(tmp_path, 600.0)
    while not (tmp_path / "rank-0").exists():
        assert job.poll() is None
        time.sleep(0.02)
    job.send_signal(signal.SIGTERM)
    assert job.wait(30) == 143
    left_s = float((tmp_path / "rank-0").read_text())
    assert 590.0 < left_s < 600.0 - 0.4 + 0.001
    (tmp_path / "rank-0").write_text("0.2")
    begun_s = time.monotonic()
    assert start(tmp_path, 600.0).wait(30) == 0
    assert 0.4 <= time.monotonic() - begun_s < 30.0
