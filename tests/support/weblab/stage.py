"""A real server with a little of everything on it: what the pages are looked at with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.live import Server, eventually, until_state
from topmast.client import Client
from topmast.demo import cast
from topmast.demo.digits import export

FLEET = "topmast/demo/fleet.yaml"
COMPILED_S = 900.0
HOSTILE = "<script>alert(1)</script>" + "x" * 150
TRAINS = """
for step in $(seq 1 3600); do
  echo "{\\"step\\": $step, \\"metrics\\": {\\"loss\\": $((1000 / step))}}" >> "$TOPMAST_PROGRESS_FILE"
  echo "step $step"; sleep 1
done
"""
JOBS: dict[str, dict[str, Any]] = {
    "trains": {"tenant": "vision", "resources": {"accelerators": "H100:8"}, "run": TRAINS},
    "pair": {
        "tenant": "robotics", "num_nodes": 2, "resources": {"accelerators": "H200:4"}, "run": "sleep 3600",
    },
    "borrower": {"tenant": "vision", "resources": {"accelerators": "H100:8"}, "run": "sleep 3600"},
    "fills": {
        "tenant": "robotics", "num_nodes": 2, "resources": {"accelerators": "A100:8"}, "run": "sleep 3600",
        "time_limit": "25m",
    },
    "fills-too": {
        "tenant": "vision", "num_nodes": 2, "resources": {"accelerators": "A100:8"}, "run": "sleep 3600",
        "time_limit": "40m",
    },
    "waits": {
        "tenant": "speech", "num_nodes": 2, "resources": {"accelerators": "A100:4"}, "run": "sleep 3600",
    },
    "reads": {
        "tenant": "robotics", "resources": {"accelerators": "H200:4"}, "run": "sleep 3600",
        "datasets": [cast.DATASET],
    },
    "impossible": {
        "tenant": "robotics", "num_nodes": 4, "resources": {"accelerators": "A100:8"}, "run": "true",
        "topology": {"required": "rack"},
    },
    "over-quota": {"tenant": "speech", "resources": {"accelerators": "A100:16"}, "run": "true"},
    "reclaimer": {"tenant": "speech", "resources": {"accelerators": "H100:8"}, "run": "sleep 3600"},
    "good": {"tenant": "vision", "resources": {"accelerators": "L4:1"}, "run": "echo done"},
    "bad": {"tenant": "vision", "resources": {"accelerators": "L4:1"}, "run": "echo no >&2; exit 3"},
    "dropped": {"tenant": "robotics", "resources": {"accelerators": "L4:1"}, "run": "sleep 3600"},
    "kept-back": {"tenant": "robotics", "resources": {"accelerators": "L4:2"}, "run": "sleep 3600"},
    "evaluates": {
        "tenant": "vision", "resources": {"accelerators": "L4:1"}, "run": "true",
        "labels": {"team": "vision", "stage": "eval"}, "depends_on": ["j1"],
    },
    "rates": {
        "tenant": "vision", "resources": {"accelerators": "L4:1"}, "max_restarts": 0,
        "sweep": {"matrix": {"RATE": [0.1, 0.01], "SEED": [1, 2, 3]}, "max_parallel": 1},
        "run": "test $SEED != 2 && sleep $((300 * (SEED / 3)))",
    },
}  # fmt: skip
"""By name. One job more has a hostile user."""


class Stage:
    """The server and its jobs."""

    def __init__(self, server: Server, client: Client, jobs: dict[str, str]) -> None:
        self.server = server
        self.client = client
        self.jobs = jobs
        """Ids by name."""

    @property
    def url(self) -> str:
        """Where the dashboard is."""
        return self.server.url


def install_wheel(folder: Path) -> Path:
    """Build the wheel and unpack it into a folder of its own; where Python finds it."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--no-deps"]
    place = folder / "installed"
    subprocess.run([*uv, "--target", str(place), str(wheel)], check=True, capture_output=True)
    share_kernels(Path("src").absolute(), place)
    return place


def share_kernels(source: Path, place: Path) -> None:
    """Give modules of the wheel what was compiled of the same modules in the source.

    Compiled kernels serve a file of the same size and time of change.
    """
    for module in source.rglob("*.py"):
        same = place / module.relative_to(source)
        compiled = list((module.parent / "__pycache__").glob(f"{module.stem}.*.nb[ic]"))
        if not compiled or same.read_bytes() != module.read_bytes():
            continue
        times = module.stat()
        os.utime(same, ns=(times.st_atime_ns, times.st_mtime_ns))
        kept = same.parent / "__pycache__"
        kept.mkdir(exist_ok=True)
        for file in compiled:
            shutil.copy(file, kept)


@contextmanager
def stage(folder: Path, *, wheel: bool = True, hostile: bool = True) -> Iterator[Stage]:
    """A server, by default of the installed wheel, with the fleet of the demo."""
    place = install_wheel(folder) if wheel else Path("src").absolute()
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(place)  # before what is installed in an editable way
    server = Server(folder / "state", place / FLEET, {"min_runtime_s": "1"})
    try:
        server.start()
        with Client(server.wait_ready(COMPILED_S), user="ann") as client:
            yield Stage(server, client, _play(folder, client, HOSTILE if hostile else "bob"))
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
        server.end()


def _play(folder: Path, client: Client, other_user: str) -> dict[str, str]:
    export(folder / "state" / "staging" / cast.DATASET)
    client.add_dataset(cast.DATASET, cast.HOME, source=folder / "state" / "staging" / cast.DATASET)
    jobs: dict[str, str] = {}
    for name, document in JOBS.items():
        if name == "reclaimer":  # it takes back what its tenant lent
            until_state(client, jobs["borrower"], "RUNNING")
        jobs[name] = client.submit({"name": name, **document}).id
    client.hold([jobs["kept-back"]], reason="the reviewer is away")
    until_state(client, jobs["dropped"], "RUNNING")
    client.cancel(jobs["dropped"])
    hostile = {
        "name": "guest" if other_user != HOSTILE else "hostile" + "-with-a-long-name" * 7,
        "tenant": "speech",
        "run": "sleep 3600",
    }
    with Client(client.url, user=other_user) as other:
        jobs["hostile"] = other.submit({**hostile, "resources": {"accelerators": "L4:1"}}).id
    for name, state in (("trains", "RUNNING"), ("pair", "RUNNING"), ("hostile", "RUNNING")):
        until_state(client, jobs[name], state)
    for name, state in (("good", "SUCCEEDED"), ("bad", "FAILED"), ("dropped", "CANCELLED")):
        eventually(lambda name=name, state=state: client.job(jobs[name]).state == state, name)  # type: ignore[misc]
    hosts = {host.name: host for host in client.hosts()}
    now_s = time.time()
    client.reserve(
        cluster="north-1", from_s=now_s + 86_400.0, until_s=now_s + 100_800.0, reason="new firmware"
    )
    client.cordon(next(name for name, host in sorted(hosts.items()) if host.cluster == "west-2"))
    return jobs
