"""Task files of SkyPilot as job files."""

import subprocess
from collections import Counter

from topmast.importers.skypilot import import_skypilot
from topmast.model.files.jobfile import parse_job

TASK = b"""\
name: train
resources:
  infra: aws/us-east-1
  accelerators: {H100: 8, A100: null}
  cpus: 32+
  memory: 4x
  image_id: docker:pytorch:2
  job_recovery: {strategy: FAILOVER, max_restarts_on_errors: 3}
  labels: {team: vision}
  any_of:
    - accelerators: L4:1
      zone: b
num_nodes: 2
workdir: .
file_mounts:
  /data: s3://bucket
envs:
  LR: 1.50e-3
  WHERE:
secrets: {HF_TOKEN: hunter2}
setup: pip install torch
run: |
  torchrun --nnodes $SKYPILOT_NUM_NODES train.py
unheard: 3
"""


def test_a_task_becomes_a_job() -> None:
    """All that is lost is named at once; the value of a secret is not repeated."""
    found = import_skypilot(TASK, "task.yaml")
    job = dict(found.job)
    assert "pip install torch" in job.pop("setup")
    assert job.pop("run").endswith("torchrun --nnodes $SKYPILOT_NUM_NODES train.py\n")
    assert job == {
        "name": "train", "num_nodes": 2, "workdir": ".", "image": "pytorch:2", "max_restarts": 3,
        "labels": {"team": "vision"},
        "resources": {"accelerators": ["H100:8", "A100:1", "L4:1"], "cpus": "32+"},
        "envs": {"LR": "1.50e-3"}, "secrets": {"HF_TOKEN": "env:HF_TOKEN"},
    }  # fmt: skip
    parse_job(found.job)
    assert [(note.line, note.field) for note in found.notes] == [
        (3, "resources.infra"), (6, "resources.memory"), (12, "resources.any_of[0].zone"),
        (15, "file_mounts"), (19, "envs.WHERE"), (20, "secrets.HF_TOKEN"), (24, "unheard"),
    ]  # fmt: skip
    assert "hunter2" not in str(found)
    (secret,) = [note for note in found.notes if note.field == "secrets.HF_TOKEN"]
    assert "engine local gives tasks no such variables" in str(secret)


def test_the_variables_of_skypilot_are_there() -> None:
    """In a real shell that is as strict as the one of tasks."""
    script = "run: |\n  false\n  echo $SKYPILOT_NODE_RANK $SKYPILOT_NUM_NODES $SKYPILOT_TASK_ID\n"
    script += '  echo "$SKYPILOT_NODE_IPS" | head -n1\n'
    run = import_skypilot(script.encode(), "x").job["run"]
    envs = {
        "RANK": "1", "WORLD_SIZE": "2", "TOPMAST_JOB_ID": "j7", "TOPMAST_HOSTS": "a,b",
        "TOPMAST_GPUS_PER_TASK": "8", "PATH": "/usr/bin:/bin",
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", run],
        env=envs,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["1 2 j7", "a"]


PIPELINE = b"""\
name: nightly
---
name: train
resources: {accelerators: H100:8, infra: aws}
run: python train.py
---
# what it made is judged
run: python eval.py
---
resources: {infra: gcp}
run: python publish.py
"""


def test_a_pipeline_becomes_jobs_that_wait_for_one_another() -> None:
    """As SkyPilot runs its tasks one after another; each note has its line of the whole file."""
    found = import_skypilot(PIPELINE, "p.yaml")
    jobs = (found.job, *found.more)
    assert [(job["name"], job.get("depends_on")) for job in jobs] == [
        ("train", None), ("task-2", ["train"]), ("task-3", ["task-2"]),
    ]  # fmt: skip
    assert [job["run"].splitlines()[-1] for job in jobs] == [
        "python train.py", "python eval.py", "python publish.py",
    ]  # fmt: skip
    assert [(note.line, note.field) for note in found.notes] == [
        (1, "name"), (4, "resources.infra"), (10, "resources.infra"),
    ]  # fmt: skip
    before = Counter[str]()
    for job in jobs:
        parse_job(job, before=before)
        before[job["name"]] += 1


def test_tasks_that_run_at_once_do_not_wait() -> None:
    """That is said of the line; names that are the same are told apart."""
    text = b"name: g\nexecution: parallel\n---\nname: a\nrun: x\n---\nname: a\nrun: y\n"
    found = import_skypilot(text, "g.yaml")
    assert [job["name"] for job in (found.job, *found.more)] == ["a-1", "a-2"]
    assert all("depends_on" not in job for job in (found.job, *found.more))
    assert (2, "execution") in [(note.line, note.field) for note in found.notes]
