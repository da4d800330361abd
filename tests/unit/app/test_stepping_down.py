"""A process that begins again as a candidate: at once if it lost the lead, else after a pause."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import fcntl, os, sys, time
from topmast.adapters.store import LeadershipLost
from topmast.app import standby
from topmast.app.server import bind, keep
standby.PAUSE_S = 1.5
runs, lock = sys.argv[1:3]
listener = bind("127.0.0.1", 0)
with open(runs, "a") as file:
    print(os.getpid(), time.monotonic(), listener.getsockname()[1], listener.get_inheritable(), file=file)
if len(open(runs).readlines()) == 1:
    held = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    fcntl.flock(held, fcntl.LOCK_EX)
    standby.step_down({error}, lambda: keep({"--host": listener}))
"""
TAKE = "import fcntl, sys; fcntl.flock(open(sys.argv[1], 'a'), fcntl.LOCK_EX)"


@pytest.mark.parametrize(
    ("error", "want_pause"),
    [("LeadershipLost('another leads')", False), ("KeyError('a bug')", True)],
    ids=["the lead is lost", "an error that may come back"],
)
def test_it_begins_again_and_lets_go_of_all_meanwhile(
    tmp_path: Path, error: str, want_pause: bool
) -> None:
    runs, lock = tmp_path / "runs", tmp_path / "lock"
    lock.touch()
    words = [sys.executable, "-c", PROGRAM.replace("{error}", error), str(runs), str(lock)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not runs.exists() or not runs.read_text():
        time.sleep(0.01)
    time.sleep(0.3)
    subprocess.run([sys.executable, "-c", TAKE, str(lock)], check=True, timeout=30)
    free_s = time.monotonic()
    assert process.wait(60) == 0
    lines = [line.split() for line in runs.read_text().splitlines()]
    pids, times_s, ports, inheritable = zip(*lines, strict=True)
    assert [int(pid) for pid in pids] == [process.pid] * 2
    assert (ports[0] == ports[1]) is not want_pause, "its port is open all the time"
    assert inheritable == ("False", "False"), "what it starts has no part in it"
    if want_pause:
        assert float(times_s[1]) - float(times_s[0]) > 1.5
        assert free_s < float(times_s[1])
