"""From a cluster that is there to jobs that ran on it: discover, `topmast up`, submit, read logs."""

import subprocess
import sys
from pathlib import Path

import yaml

from tests.support.kubelab.image import NAME
from tests.support.kubelab.lab import Lab
from tests.support.live import eventually, live, until_state

GANG = """
name: two-hosts
image: {image}
num_nodes: 2
resources: {{accelerators: "NVIDIA:8"}}
run: echo rank $RANK of $WORLD_SIZE on $TOPMAST_HOST
"""


def test_a_cluster_is_discovered_and_runs_what_is_submitted(lab: Lab, tmp_path: Path) -> None:
    fleet = tmp_path / "found.yaml"
    listen = f"listen={lab.address}:0"
    done = subprocess.run(
        [sys.executable, "-m", "topmast.app", "fleet", "discover", "kubernetes", "--region", "east",
         "--namespace", "default", "--set", f"kubeconfig={lab.kubeconfig}", "--set", listen,
         "--out", str(fleet)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "2 hosts, 16 NVIDIA" in done.stdout
    text = fleet.read_text()
    cluster = yaml.safe_load(text)["regions"]["east"]["clusters"]["lab"]
    assert cluster["engine"] == "kubernetes"
    with live(tmp_path, text) as (_, client):
        job = client.submit(yaml.safe_load(GANG.format(image=NAME))).id
        until_state(client, job, "SUCCEEDED")
        for rank in range(2):
            said = "".join(str(chunk.text) for chunk in client.logs(job, rank))
            assert f"rank {rank} of 2 on h" in said
        waits = client.submit(yaml.safe_load(GANG.format(image="127.0.0.1:1/none:1"))).id
        eventually(lambda: "ImagePull" in client.job(waits).preparing, "the reason is shown")
        client.cancel(waits)
        until_state(client, waits, "CANCELLED")
