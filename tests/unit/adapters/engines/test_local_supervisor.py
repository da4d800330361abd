"""A supervisor that is halted at the worst moment: a real one, in a process of its own."""

import subprocess
import sys
from pathlib import Path

from topmast.adapters.engines.local import files
from topmast.adapters.engines.local.files import Layout

REPO = Path(__file__).resolve().parents[4]
STORY = """
import os, signal, sys
from pathlib import Path
from tests.contract.engines import order
from topmast.adapters.clock import SystemClock
from topmast.adapters.engines.local import files
from topmast.adapters.engines.local.files import Layout
from topmast.adapters.engines.local.plan import make_plan
from topmast.adapters.engines.local.supervisor import BLOCKED, Supervisor
from topmast.model.fleet import ClusterSpec
from topmast.ports import Site

folder = Path(sys.argv[1])
layout = Layout(folder / "engine")
files.make_folder(layout.tasks)
site = Site(SystemClock(), lambda *_: None, lambda _: None, folder / "checkpoints")
plan = make_plan(order("j1", f"echo ran > {folder}/ran"), layout, site, ClusterSpec("east-1", ()))
claim = files.claim

def claim_and_wait(file, note):
    lock = claim(file, note)
    if sys.argv[2] == "stop":
        files.write_json(layout.stop("j1.1"), {"grace_s": 20.0})
    return lock

files.claim = claim_and_wait
reader, writer = os.pipe()
agent = os.getpid()
signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)
pid = os.fork()
if pid == 0:
    Supervisor(layout, plan, 0, agent, writer).run()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""


def supervise(folder: Path, then: str) -> tuple[files.Json | None, bool]:
    """Run a supervisor with something that happens after its claim: the record, and whether the task ran."""
    subprocess.run(
        [sys.executable, "-c", STORY, folder, then],
        cwd=REPO,
        env={"PYTHONPATH": f"{REPO}:{REPO / 'src'}", "PATH": "/usr/bin:/bin"},
        timeout=60,
        check=True,
    )
    return files.read_end(Layout(folder / "engine"), "j1.1.0"), (folder / "ran").exists()


def test_a_stop_that_comes_between_the_claim_and_the_start_is_found(tmp_path: Path) -> None:
    """Who ordered it saw no claim, or signalled nobody; so the supervisor looks, and starts nothing."""
    end, ran = supervise(tmp_path, "stop")
    assert end is not None
    assert (end["code"], end["error"], ran) == (None, "stopped before it started", False)


def test_without_an_order_it_starts(tmp_path: Path) -> None:
    """The story above is one in which the task would have run."""
    end, ran = supervise(tmp_path, "go on")
    assert end is not None
    assert (end["code"], ran) == (0, True)
