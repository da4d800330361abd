"""Real processes take turns on the same GPUs: over-subscribed, suspended, resumed, and ended.

Each test tells what the kernel and the jobs' own steps show.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.held import Held
from tests.support.live import eventually, is_alive, live
from topmast import Client
from topmast.adapters.engines.local import processes

FLEET = """
regions:
  east:
    clusters:
      east-a: {hosts: [{count: 1, gpu: H100, gpus: 2}]}
"""
TURNS = {
    "slices.layers": "3", "slices.quantum_s": "1", "reserve_after_s": "null",
    "elastic.grow": "false", "elastic.shrink": "false",
    "restart_cost_s": "1", "min_runtime_s": "0",
}  # fmt: skip


def is_stopped(pid: int) -> bool:
    """Whether a process stands still by SIGSTOP."""
    stat = (processes.PROC / str(pid) / "stat").read_bytes()
    return stat[stat.rindex(b")") + 2 :][:1] == b"T"


def steps(client: Client, job: Held) -> int:
    """How far a job says that it has come."""
    return client.job(job.id).step or 0


def looks(count: int) -> Iterator[int]:
    """So many looks, 50 ms apart."""
    for look in range(count):
        time.sleep(0.05)
        yield look


def test_three_gangs_share_two_gpus_in_turns(tmp_path: Path) -> None:
    """Nobody waits for the first to end: all come to steps early, and only one has the GPUs."""
    three_gangs_share(tmp_path, FLEET)


def three_gangs_share(folder: Path, fleet: str) -> None:
    """Three gangs on a host of two GPUs, whose processes this machine sees."""
    with live(folder, fleet, TURNS) as (_, client):
        jobs = [Held(client, folder, "H100", 2, name=f"job-{i}") for i in range(3)]
        pids = [job.started().pid for job in jobs]
        eventually(lambda: all(steps(client, job) > 5 for job in jobs), "everybody has early steps")
        assert {client.job(job.id).state for job in jobs} <= {"RUNNING", "SUSPENDED"}
        running = [sum(not is_stopped(pid) for pid in pids) for _ in looks(40)]
        assert running.count(1) >= 30, "but for the moments of a change"
        before = [steps(client, job) + 5 for job in jobs]
        pairs = list(zip(jobs, before, strict=True))
        eventually(lambda: all(steps(client, job) > had for job, had in pairs), "turns go round")
        for job in jobs:
            job.end()
        kinds = [row.kind for row in client.story(jobs[0].id).history]
        assert kinds.count("SUSPENDED") >= 2


def test_a_suspended_job_can_be_cancelled(tmp_path: Path) -> None:
    """It is woken to save its work, as one that runs; the other has the GPUs for good then."""
    with live(tmp_path, FLEET, {**TURNS, "slices.quantum_s": "600"}) as (_, client):
        first = Held(client, tmp_path, "H100", 2, name="first")
        pid = first.started().pid
        first.until("RUNNING")
        second = Held(client, tmp_path, "H100", 2, name="second")
        second.started()
        first.until("SUSPENDED")
        eventually(lambda: is_stopped(pid), "its process stands still")
        client.cancel(first.id)
        first.until("CANCELLED")
        assert not is_alive(pid)
        second.until("RUNNING")
        assert second.end().state == "SUCCEEDED"


def test_turns_survive_the_server(tmp_path: Path) -> None:
    """Who stands still does so while the server is away, and turns go on when it is back."""
    turns_survive(tmp_path, FLEET)


def turns_survive(folder: Path, fleet: str) -> None:
    """Two gangs on a host of two GPUs; the server is killed and comes back."""
    with live(folder, fleet, TURNS) as (server, _), Client(state=server.state) as client:
        jobs = [Held(client, folder, "H100", 2, name=f"job-{i}") for i in range(2)]
        pids = [job.started().pid for job in jobs]
        eventually(lambda: any(is_stopped(pid) for pid in pids), "one waits for its turn")
        server.kill()
        with server.up():
            before = [steps(client, job) + 5 for job in jobs]
            pairs = list(zip(jobs, before, strict=True))
            eventually(lambda: all(steps(client, job) > had for job, had in pairs), "turns go on")
            for job in jobs:
                assert len(job.starts()) == 1
                job.end()


WORKS = """
import os, sys, time, pathlib
told = open(os.environ["TOPMAST_PROGRESS_FILE"], "a", buffering=1)
mine, shared, slower = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), float(sys.argv[3])
for step in range(1, 100_000):
    mine.touch()
    now = time.time()
    others = [f for f in shared.iterdir() if f != mine and now - f.stat().st_mtime < 0.2]
    time.sleep(0.02 * (slower if others else 1.0))
    print('{"step":%d}' % step, file=told)
"""
"""Counts steps of 20 ms; while another is at work in the folder, they take longer."""
PACKS = {
    **TURNS, "pack": "greedy", "rebalance": "introspective", "pack_trial_s": "2",
    "slices.quantum_s": "2", "rebalancing.retry_s": "600",
}  # fmt: skip


@pytest.mark.parametrize(
    ("slower", "verdict"),
    [(4.0, "taken back"), (1.0, "kept")],
    ids=["in one another's way", "not in one another's way"],
)
def test_a_trial_on_the_same_gpus_is_judged_by_measured_speed(
    tmp_path: Path, slower: float, verdict: str
) -> None:
    """Two take turns, are tried together, and stay together only if their own steps say that it pays."""
    tried_together(tmp_path, FLEET, slower, verdict)


def tried_together(folder: Path, fleet: str, slower: float, verdict: str) -> None:
    """Two gangs on a host of two GPUs, of which each is so much slower beside the other."""
    shared = folder / "shared"
    shared.mkdir()
    script = folder / "works.py"
    script.write_text(WORKS)
    with live(folder, fleet, PACKS) as (_, client):
        jobs = [
            client.submit(
                {
                    "name": f"job-{i}",
                    "run": f"exec python3 {script} {shared}/{i} {shared} {slower}",
                    "resources": {"accelerators": "H100:2"},
                    "checkpoint": {"grace": 1},
                }
            ).id
            for i in range(2)
        ]

        def told() -> list[str]:
            rows = [row for job in jobs for row in client.story(job).history]
            return [row.text for row in rows if row.kind in ("packed", "unpacked")]

        eventually(lambda: any("on trial" in text for text in told()), "they are tried together")
        eventually(lambda: any(verdict in text for text in told()), f"the pair is {verdict}")
        wrong = {"kept": "taken back", "taken back": "kept"}[verdict]
        assert not any(wrong in text for text in told())
        if verdict == "kept":
            seen = [{client.job(job).state for job in jobs} for _ in looks(20)]
            assert seen.count({"RUNNING"}) == 20, "nobody is suspended any more"
        else:
            eventually(
                lambda: {client.job(job).state for job in jobs} == {"RUNNING", "SUSPENDED"},
                "they take turns again",
            )
        for job in jobs:
            client.cancel(job)


WHERE = """
import os, sys, time, topmast
for step in range(1, 100_000):
    time.sleep(0.2 if os.environ["TOPMAST_HOST"] == sys.argv[1] else 0.02)
    topmast.progress(step=step)
"""
"""Counts steps of 20 ms; on one host they take ten times as long."""
HOSTS = """
regions:
  east:
    clusters:
      east-a: {hosts: [{count: 2, gpu: H100, gpus: 2}]}
"""
JUDGED = {
    **PACKS, "pack": "none", "slices.quantum_s": "1", "rebalancing.migrate": "true",
    "rebalancing.migrate_after_s": "3", "restart_cost_s": "0.1",
}  # fmt: skip


def test_a_move_to_a_slow_host_is_taken_back(tmp_path: Path) -> None:
    """Two share a host; another comes free, on which steps take ten times as long: who goes there comes back."""
    script = tmp_path / "where.py"
    script.write_text(WHERE)
    with live(tmp_path, HOSTS, JUDGED) as (_, client):
        first = Held(client, tmp_path, "H100", 2, name="first")
        first.started()
        (slow,) = client.job(first.id).hosts
        jobs = [
            client.submit(
                {
                    "name": f"job-{i}",
                    "run": f"exec {sys.executable} {script} {slow}",
                    "resources": {"accelerators": "H100:2"},
                    "checkpoint": {"grace": 1},
                    "priority": "normal",
                }
            ).id
            for i in range(3)
        ]
        eventually(
            lambda: all(
                (client.job(job).step or 0) > 100 for job in jobs if on_fast(client, job, slow)
            ),
            "those beside the first have run for a while",
        )
        for job in jobs:
            if not on_fast(client, job, slow):
                client.cancel(job)
        first.end()

        def causes() -> list[str]:
            return [row.text for job in jobs for row in client.story(job).history]

        eventually(lambda: any("moved to idle GPUs" in t for t in causes()), "one goes there")
        eventually(lambda: any("moved back" in t for t in causes()), "and comes back")
        for job in jobs:
            client.cancel(job)


def on_fast(client: Client, job: str, slow: str) -> bool:
    """Whether a job sits where steps are short."""
    hosts = client.job(job).hosts
    return bool(hosts) and slow not in hosts
