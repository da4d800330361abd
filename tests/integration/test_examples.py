"""The example of real training: drained, robbed of its host, and none the worse for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.live import eventually, kill, live
from topmast import Client
from topmast.client import document_of
from topmast.model.views import JobView

TRAIN = Path(__file__).resolve().parents[2] / "examples" / "train"
FLEET = """
regions:
  here:
    clusters:
      here-1: {hosts: [{count: 3, gpu: H100, gpus: 1}]}
"""
SHORT = {"STEPS": "1500", "CHECKPOINT_EVERY": "50", "HIDDEN": "48"}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The last line of the training run by hand, without Topmast."""
    environment = {**os.environ, **SHORT, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, TRAIN / "train.py"],
        cwd=tmp_path_factory.mktemp("alone"),
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.splitlines()[-1]


def test_training_ends_alike_however_often_it_is_moved(tmp_path: Path, undisturbed: str) -> None:
    """A drained host and a killed one cost the job two attempts, and not one step."""
    with live(tmp_path, FLEET) as (_, client):
        document, folder = document_of(TRAIN / "job.yaml")
        document["envs"] |= SHORT
        job = client.submit(document, workdir=folder).id

        first = eventually(lambda: _safe(client, job, attempt=1), "a checkpoint")
        client.drain(first.hosts[0])
        second = eventually(lambda: _safe(client, job, attempt=2), "it went on elsewhere")
        agent = {host.name: host.agent_pid for host in client.hosts()}[second.hosts[0]]
        assert agent is not None
        kill(agent)

        [ended] = client.wait(job, timeout_s=60)
        output = "".join(chunk.text for chunk in client.logs(job))
        outcomes = [attempt.outcome for attempt in client.story(job).attempts]
    assert ended.state == "SUCCEEDED"
    assert outcomes == ["preempted", "host_lost", "succeeded"]
    assert ended.resumed_from_step is not None
    assert output.splitlines()[-1] == undisturbed


def _safe(client: Client, job: str, attempt: int) -> JobView | None:
    """The job once an attempt has saved a checkpoint of its own."""
    story = client.story(job)
    placed = [i for i, line in enumerate(story.history) if line.kind == "placed"]
    if len(placed) < attempt:
        return None
    saved = any(line.kind == "checkpointed" for line in story.history[placed[attempt - 1] :])
    return story.job if saved and story.job.state == "RUNNING" else None
