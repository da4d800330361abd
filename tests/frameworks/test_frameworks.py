"""Unmodified programs of PyTorch and Ray over two hosts: the examples, as they are."""

import os
import re
from pathlib import Path

import pytest

import topmast
from tests.support.live import eventually, live
from topmast import Client
from topmast.client import document_of
from topmast.model.views import JobView

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FLEET = """
regions:
  here:
    clusters:
      here-1: {hosts: [{count: 3, gpu: H100, gpus: 2}]}
"""
PATIENCE_S = 400.0


def submitted(client: Client, file: str, **envs: str) -> str:
    document, folder = document_of(EXAMPLES / file)
    document.setdefault("envs", {}).update(envs)
    return client.submit(document, workdir=folder).id


def output(client: Client, job: str, tasks: int = 2) -> str:
    [ended] = client.wait(job, timeout_s=PATIENCE_S)
    said = "".join(chunk.text for task in range(tasks) for chunk in client.logs(job, task=task))
    assert ended.state == "SUCCEEDED", said
    return said


@pytest.fixture(params=["local", "ssh", "slurm"])
def place(request: pytest.FixtureRequest) -> str:
    """A fleet of two hosts or more, of each kind that needs no image."""
    if request.param == "local":
        return FLEET
    found: str = request.getfixturevalue(f"{request.param}_fleet")
    return found


def path(place: str) -> dict[str, str]:
    """Hosts of other kinds have not the path of our server.

    Those behind SSH have a network of their own too, and the name of this machine, which is that
    of its loopback: Gloo takes that for its address unless it is told the interface.
    """
    envs = {} if place == FLEET else {"PATH": os.environ["PATH"]}
    return envs | ({"GLOO_SOCKET_IFNAME": "eth0"} if '"engine": "ssh"' in place else {})


@pytest.mark.parametrize(("file", "tasks"), [("ddp/job.yaml", 2), ("ddp/ranks.yaml", 4)])
def test_data_parallel_training_runs_on_two_hosts(
    tmp_path: Path, place: str, file: str, tasks: int
) -> None:
    """Four ranks on two hosts find one another, and end with the same weights."""
    with live(tmp_path, place) as (_, client):
        job = submitted(client, file, **path(place))
        said = output(client, job, tasks)
        hosts = client.job(job).hosts
    assert len(hosts) == 2
    ends = re.findall(r"rank (\d) of 4: loss (\S+), weights alike on all ranks", said)
    assert sorted(rank for rank, _ in ends) == ["0", "1", "2", "3"], said
    assert all(float(loss) < 0.5 for _, loss in ends), said


def test_a_program_without_any_framework_runs_on_two_hosts(tmp_path: Path, place: str) -> None:
    """By what Topmast says of the gang in the environment alone, as programs with MPI do without it."""
    with live(tmp_path, place) as (_, client):
        job = submitted(client, "multinode/job.yaml", **path(place))
        said = output(client, job, 4)
        assert len(client.job(job).hosts) == 2
    told = re.findall(r"task (\d) of 4 on (\S+): the mean is (0\.\d+)", said)
    assert sorted(rank for rank, *_ in told) == ["0", "1", "2", "3"], said
    assert len({mean for *_, mean in told}) == 1
    assert len({host for _, host, _ in told}) == 2


def test_data_parallel_training_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """Drained in the middle, it runs elsewhere and begins where it stopped."""

    def saved(client: Client, job: str) -> JobView | None:
        view = client.job(job)
        return view if any((tmp_path / "state").rglob("last.pt")) else None

    with live(tmp_path, FLEET) as (_, client):
        job = submitted(client, "ddp/job.yaml", STEPS="1500")
        first = eventually(lambda: saved(client, job), "a checkpoint", PATIENCE_S)
        client.drain(first.hosts[0])
        said = output(client, job)
        outcomes = [attempt.outcome for attempt in client.story(job).attempts]
    assert outcomes == ["preempted", "succeeded"], said
    assert "weights alike" in said


def test_a_language_model_gives_way_and_goes_on(tmp_path: Path) -> None:
    """Stopped for a job of a higher band, it ends with the weights of a run that was not stopped."""
    small = {
        "SIZE": "--width 32 --layers 1 --batch 4 --save-every 20", "STEPS": "200",
        "PYTHONPATH": str(Path(topmast.__file__).parents[1]),
    }  # fmt: skip
    one_gpu = "regions: {here: {clusters: {c: {hosts: [{count: 1, gpu: H100, gpus: 1}]}}}}"
    urgent = {"run": "echo mine", "priority": "high", "resources": {"accelerators": 1}}
    settings = {"min_runtime_s": "0", "restart_cost_s": "0"}
    with live(tmp_path, one_gpu, settings) as (_, client):
        whole = output(client, submitted(client, "lm/job.yaml", **small), 1)
        job = submitted(client, "lm/job.yaml", **small)
        eventually(lambda: (client.job(job).step or 0) >= 20, "some steps", PATIENCE_S)
        client.wait(client.submit(urgent).id, timeout_s=PATIENCE_S)
        said = output(client, job, 1)
        outcomes = [attempt.outcome for attempt in client.story(job).attempts]
    assert outcomes == ["preempted", "succeeded"], said
    assert re.findall(r"goes on from step \d+", said)
    assert re.findall("done: .*", said) == re.findall("done: .*", whole) != []


def test_a_ray_program_runs_on_a_cluster_of_the_jobs_own(tmp_path: Path, place: str) -> None:
    """Its parts are computed on both hosts; afterwards nothing of Ray is left."""
    with live(tmp_path, place) as (_, client):
        said = output(client, submitted(client, "ray/job.yaml", **path(place)))
    assert "pi is about 3.1" in said
    assert "on 2 nodes" in said


def test_a_ray_program_that_fails_fails_its_job(tmp_path: Path) -> None:
    """The exit status of the command is that of task 0."""
    with live(tmp_path, FLEET) as (_, client):
        document, folder = document_of(EXAMPLES / "ray" / "job.yaml")
        document |= {"envs": {"DRAWS": "many"}, "max_restarts": 0}
        job = client.submit(document, workdir=folder).id
        [ended] = client.wait(job, timeout_s=PATIENCE_S)
        said = "".join(chunk.text for chunk in client.logs(job, task=0))
    assert ended.state == "FAILED"
    assert "invalid literal for int() with base 10: 'many'" in said
