"""Data in buckets, with Slurm in one region and hosts behind SSH in another."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.support import slurmlab, sshlab
from tests.support.live import eventually, live, until_state
from tests.support.s3 import S3, SECRET, s3_server
from tests.support.slurmlab import slurm_cluster
from tests.support.sshlab import ssh_lab
from topmast import Client
from topmast.adapters.kernels import load_kernels

PATIENCE_S = 240.0
RUN = """
cd $TOPMAST_CHECKPOINT_DIR
at=$(cat step 2>/dev/null || echo 0)
echo "in $TOPMAST_REGION from step $at with $(cat $TOPMAST_DATASET_WORDS/text)"
trap 'exit 0' TERM
while [ $at -lt 1000 ]; do
    at=$((at + 1)); echo $at > new; mv new step
    echo '{"step": '$at', "checkpoint": true}' >> $TOPMAST_PROGRESS_FILE
    sleep 0.5
done
"""
pytestmark = [
    pytest.mark.slurm, pytest.mark.ssh, pytest.mark.slow, pytest.mark.timeout(900),
]  # fmt: skip


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[tuple[str, S3]]:
    """The fleet file, and the bucket's server, which all hosts reach."""
    if reason := slurmlab.missing() or sshlab.missing():
        pytest.skip(reason)
    load_kernels()
    parameters = ("SchedulerParameters=batch_sched_delay=1",)
    with (
        slurm_cluster("a", nodes=1, parameters=parameters) as slurm,
        ssh_lab(tmp_path / "ssh", "b0") as hosts,
        s3_server(f"{hosts.hosts['b0'].address.rpartition('.')[0]}.1") as s3,
    ):
        s3.bucket("data")
        regions = {
            "east": {
                "store": "s3://data/east",
                "clusters": {
                    "slurm": _cluster(
                        "slurm", slurm.hosts[0], tmp_path,
                        {"conf": str(slurm.conf), "gpu.H100": slurm.gpu_type},
                    ),
                },
            },
            "west": {
                "store": "s3://data/west",
                "clusters": {"ssh": _cluster("ssh", "b0", tmp_path, dict(hosts.options))},
            },
        }  # fmt: skip
        links = [{"from": "east", "to": "west", "gbps": 10}]
        yield yaml.safe_dump({"regions": regions, "links": links}), s3


def _cluster(engine: str, host: str, folder: Path, options: dict[str, object]) -> dict[str, object]:
    own = {"lease_s": 30, "poll_s": 1, "cache": str(folder / f"cache-{engine}")}
    hosts = [{"names": [host], "gpu": "H100", "gpus": 8}]
    return {"engine": engine, "hosts": hosts, "options": {**own, **options}}


def job(name: str, run: str, *datasets: str, priority: str) -> dict[str, object]:
    return {
        "name": name, "priority": priority, "datasets": list(datasets), "run": run,
        "resources": {"accelerators": {"H100": 8}}, "checkpoint": {"grace": "20s"},
    }  # fmt: skip


def log(client: Client, name: str, attempt: int) -> str:
    return "".join(chunk.text for chunk in client.logs(name, attempt=attempt))


def test_a_job_preempted_on_one_engine_goes_on_from_its_checkpoint_on_another(
    fleet: tuple[str, S3], tmp_path: Path
) -> None:
    """With its dataset, which came to both regions' buckets, and from there to the hosts."""
    text, s3 = fleet
    for name in ("words", "pinned"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "text").write_text(f"the {name}")
    arguments = ("--checkpoints", "s3://data/checkpoints")
    settings = {"min_runtime_s": "0"}
    with live(tmp_path, text, settings, arguments) as (_, client):
        client.add_dataset("words", "east", source=tmp_path / "words")
        client.replicate("words", "west")
        eventually(lambda: _complete(client, "words") == 2, "two replicas", PATIENCE_S)
        low = client.submit(job("low", RUN, "words", priority="low")).id
        eventually(lambda: (client.job(low).step or 0) >= 3, "three steps", PATIENCE_S)
        saved = f"checkpoints/{low}/saved/1.json"
        eventually(lambda: saved in s3.keys("data"), "a checkpoint", PATIENCE_S)
        first = client.job(low)
        client.add_dataset(
            "pinned", str(first.region), source=tmp_path / "pinned", allowed=[str(first.region)]
        )
        high = client.submit(job("high", "sleep 1000", "pinned", priority="high")).id
        until_state(client, high, "RUNNING", patience_s=PATIENCE_S)
        eventually(partial(_again, client, low), "a second attempt elsewhere", PATIENCE_S)
        second = client.job(low)
        assert second.region != first.region
        eventually(lambda: "from step" in log(client, low, 2), "its log", PATIENCE_S)
        before, after = log(client, low, 1), log(client, low, 2)
        client.cancel(low)
        client.cancel(high)
        until_state(client, low, "CANCELLED", patience_s=PATIENCE_S)
        until_state(client, high, "CANCELLED", patience_s=PATIENCE_S)
    assert before.startswith(f"in {first.region} from step 0 with the words")
    assert after.startswith(f"in {second.region} from step ")
    step = int(after.split("from step ")[1].split()[0])
    assert step >= (first.step or 0), "what it saved when it was told to stop is there"
    assert after.split("with ")[1].startswith("the words")
    for file in (tmp_path / "state").rglob("*"):
        if file.is_file() and not file.is_symlink():
            content = file.read_bytes()
            assert not [word for word in (b"X-Amz-Sig", SECRET.encode()) if word in content], file


def _complete(client: Client, name: str) -> int:
    found = next(one for one in client.datasets() if one.name == name)
    return sum(replica.state == "complete" for replica in found.replicas)


def _again(client: Client, name: str) -> bool:
    view = client.job(name)
    return view.state == "RUNNING" and view.attempts == 2
