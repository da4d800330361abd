"""Elastic jobs on real processes: they grow into idle GPUs, shrink for another job, and end with their work whole."""

import json
from dataclasses import dataclass
from pathlib import Path

from tests.support.live import eventually, live, until_state
from topmast import Client

FLEET = """
regions:
  north: {clusters: {small: {hosts: [{count: 2, gpu: ELASTIC, gpus: 2}]}}}
"""
SETTINGS = {
    "min_runtime_s": "0", "restart_cost_s": "0.1", "elastic.every_s": "0.2", "elastic.settle_s": "1",
    "elastic.gain": "1",
}  # fmt: skip
TRAIN = """
import json, os, pathlib, signal, time
import topmast

home = pathlib.Path(os.environ["TOPMAST_CHECKPOINT_DIR"])
saved, over, told = home / "saved.json", home / "over", home / "told.jsonl"
rank, tasks = int(os.environ["RANK"]), int(os.environ["TOPMAST_WORLD_SIZE"])
done = json.loads(saved.read_text()) if saved.exists() else 0
since, stop = done, []
signal.signal(signal.SIGTERM, lambda *_: stop.append(True))

def save():
    (home / "new.json").write_text(json.dumps(done))
    (home / "new.json").rename(saved)
    topmast.progress(step=done, checkpoint=True)

while not stop and not over.exists():
    time.sleep(0.02)
    if rank == 0:
        done += tasks
        if (home / "enough").exists():
            save()
            over.touch()
        elif done // tasks % 10 == 0:
            save()
if rank == 0:
    if not over.exists():
        save()
    with told.open("a") as story:
        story.write(json.dumps([int(os.environ["TOPMAST_EPOCH"]), tasks, since, done]) + chr(10))
raise SystemExit(0 if over.exists() else 143)
"""


@dataclass(frozen=True)
class Stretch:
    """What one attempt says of itself: its size, and what was done before and after it."""

    epoch: int
    tasks: int
    since: int
    done: int


def stretches(home: Path) -> list[Stretch]:
    """The attempts that have ended, in order."""
    return [Stretch(*json.loads(line)) for line in (home / "told.jsonl").read_text().splitlines()]


def test_a_job_grows_and_shrinks_and_ends_with_its_work_whole(tmp_path: Path) -> None:
    """One task has room at first; then all four GPUs are idle; then another job needs two of them."""
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    with live(tmp_path, FLEET, SETTINGS) as (server, client):
        filler = client.submit(
            {"name": "filler", "run": "exec sleep 600", "num_nodes": 3, "preemptible": False,
             "resources": {"accelerators": "ELASTIC:1"}}
        ).id  # fmt: skip
        until_state(client, filler, "RUNNING")
        job = client.submit(
            {"name": "train", "run": f"exec $TOPMAST_PYTHON {script}", "num_nodes": 2, "min_nodes": 1,
             "max_nodes": 4, "expected_duration": "1h", "resources": {"accelerators": "ELASTIC:1"}}
        ).id  # fmt: skip
        view = until_state(client, job, "RUNNING")
        assert (view.tasks, view.min_tasks, view.max_tasks) == (1, 1, 4)

        def has(tasks: int) -> bool:
            now = client.job(job)
            return (now.state, now.tasks) == ("RUNNING", tasks)

        client.cancel(filler)
        eventually(lambda: has(4), "it has grown into the idle GPUs")
        assert "it runs with 4 tasks, and may have from 1 to 4" in client.explain(job).summary
        eventually(lambda: (client.job(job).step or 0) > 100, "it works")
        other = client.submit(
            {"name": "other", "run": "exec sleep 600", "resources": {"accelerators": "ELASTIC:2"}}
        ).id
        until_state(client, other, "RUNNING")
        eventually(lambda: has(2), "it goes on with what is left")
        assert client.job(other).preemptions == 0
        home = server.state / "checkpoints" / job
        eventually(lambda: (home / "saved.json").exists(), "there is a checkpoint")
        (home / "enough").touch()
        view = until_state(client, job, "SUCCEEDED")
        told = stretches(home)
        assert [(s.epoch, s.tasks) for s in told] == [(1, 1), (2, 4), (3, 2)]
        assert [s.since for s in told] == [0, *(s.done for s in told[:-1])], "nothing was lost"
        assert (view.resizes, view.preemptions, view.restarts) == (2, 2, 0)
        story = " ".join(line.text for line in client.story(job).history)
        assert "grows from 1 to 4 tasks" in story
        assert f"shrinks from 4 to 2 tasks for {other}" in story
        gpus = [attempt.gpus for attempt in client.story(job).attempts]
        assert gpus == [1.0, 4.0, 2.0]


TURNS = {
    **SETTINGS, "slices.quantum_s": "1", "elastic.settle_s": "2", "elastic.gain": "0.1",
    "rebalancing.migrate_after_s": "600",
}  # fmt: skip


def test_a_gang_that_takes_turns_grows_and_gives_way(tmp_path: Path) -> None:
    """It grows onto GPUs that nobody has; another is laid over it, has its turn at once, and then GPUs of its own.

    The server is killed while the two take turns.
    """
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    up = live(tmp_path, FLEET, TURNS, ("--profile", "gandiva"))
    with up as (server, _), Client(state=server.state) as client:
        job = client.submit(
            {"name": "train", "run": f"exec $TOPMAST_PYTHON {script}", "num_nodes": 2, "min_nodes": 2,
             "max_nodes": 4, "resources": {"accelerators": "ELASTIC:1"}}
        ).id  # fmt: skip

        def has(tasks: int) -> bool:
            return client.job(job).tasks == tasks

        eventually(lambda: has(4), "it has grown onto the idle GPUs")
        until_state(client, job, "RUNNING")
        before = client.job(job).step or 0
        eventually(lambda: (client.job(job).step or 0) > before + 100, "it works with four")
        other = client.submit(
            {"name": "other", "run": "exec sleep 600", "resources": {"accelerators": "ELASTIC:2"}}
        ).id
        until_state(client, other, "RUNNING")
        server.kill()
        with server.up():
            eventually(lambda: has(2), "it has given way")
            until_state(client, job, "RUNNING")
            until_state(client, other, "RUNNING")
            assert not set(client.job(job).hosts) & set(client.job(other).hosts)
            assert client.job(other).preemptions == 0
            home = server.state / "checkpoints" / job
            (home / "enough").touch()
            view = until_state(client, job, "SUCCEEDED")
            told = stretches(home)
            assert [s.tasks for s in told] == [2, 4, 2]
            assert [s.since for s in told] == [0, *(s.done for s in told[:-1])], "nothing was lost"
            assert (view.resizes, view.restarts) == (2, 0)
            story = " ".join(line.text for line in client.story(job).history)
            assert "grows from 2 to 4 tasks" in story
            assert f"shrinks from 4 to 2 tasks, so that it and {other} have GPUs" in story
            client.cancel(other)
