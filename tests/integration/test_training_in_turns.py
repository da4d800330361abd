"""Real training on GPUs that are over-subscribed, under the profile `gandiva` with short turns.

The jobs are the example that trains on two spirals, three on the same two virtual GPUs. A mini-batch takes 20 ms there, however busy the
machine is. What stands for GPU memory holds one model: who finds another's there brings back its own, which takes 80 ms more.
"""

import sys
from pathlib import Path

from tests.support.live import eventually, live, until_state
from topmast import Client

FLEET = """
regions:
  east:
    clusters:
      east-a: {hosts: [{count: 1, gpu: H100, gpus: 2}]}
"""
SHORT = {
    "slices.quantum_s": "1", "pack_trial_s": "2", "rebalancing.retry_s": "600",
    "restart_cost_s": "1", "min_runtime_s": "0",
}  # fmt: skip
EXAMPLE = Path(__file__).parents[2] / "examples" / "train"
STEPS = 500
PATIENCE_S = 90.0
TRAINS = f"""
import os, pathlib, sys, time
sys.path.insert(0, {str(EXAMPLE)!r})
import topmast, train, numpy as np

train.BATCH = 256
memory, mine = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
learn = train.train_step

def on_gpu(state, step):
    ready_s = time.monotonic() + 0.02
    if not memory.exists() or memory.read_text() != str(os.getpid()):
        np.savez(mine, **state)
        with np.load(mine) as saved:
            state.update(saved)
        ready_s += 0.08
        memory.write_text(str(os.getpid()))
    learnt = learn(state, step)
    time.sleep(max(0.0, ready_s - time.monotonic()))
    topmast.progress(step=step)
    return learnt

train.train_step = on_gpu
train.main()
"""


def submitted(client: Client, folder: Path, name: str) -> str:
    """A job that trains; its steps and losses are its own reports."""
    (folder / "trains.py").write_text(TRAINS)
    document = {
        "name": name,
        "run": f"exec {sys.executable} {folder}/trains.py {folder}/memory {folder}/{name}.npz",
        "resources": {"accelerators": "H100:2"},
        "envs": {"STEPS": str(STEPS), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        "checkpoint": {"grace": 5},
    }
    return client.submit(document).id


def test_three_trainings_learn_in_turns_and_not_side_by_side(tmp_path: Path) -> None:
    """All have early losses before any ends; two tried together slow down, and are parted; all end with the same numbers."""
    with live(tmp_path, FLEET, SHORT, ("--profile", "gandiva")) as (_, client):
        jobs = [submitted(client, tmp_path, f"training-{i}") for i in range(3)]

        def seen(job: str, kind: str) -> list[str]:
            return [row.text for row in client.story(job).history if row.kind == kind]

        def early(job: str) -> bool:
            view = client.job(job)
            assert view.state != "SUCCEEDED"
            return (view.step or 0) >= 100 and "loss" in view.metrics

        eventually(lambda: all(early(job) for job in jobs), "a hundred mini-batches of each")
        assert all(seen(job, "SUSPENDED") for job in jobs)
        eventually(
            lambda: any("taken back" in text for job in jobs for text in seen(job, "unpacked")),
            "a pair is tried, measured, and parted",
            PATIENCE_S,
        )
        assert not any("kept" in text for job in jobs for text in seen(job, "packed")), [
            text for job in jobs for text in seen(job, "packed")
        ]
        for job in jobs:
            until_state(client, job, "SUCCEEDED", patience_s=PATIENCE_S)
        ends = {"".join(chunk.text for chunk in client.logs(job)).splitlines()[-1] for job in jobs}
        assert len(ends) == 1, "turns and halts changed nothing that was computed"
        assert ends.pop().startswith("done: loss")
