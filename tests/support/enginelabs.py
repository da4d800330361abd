"""`topmast bench engines` over one laboratory of each kind on this machine.

    python -m tests.support.enginelabs [--only slurm,ssh] [OPTIONS OF THE BENCH]

As root; what of it cannot be made here is left out, and said. The result is on stdout.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import yaml

from tests.support import slurmlab, sshlab
from tests.support.kubelab import lab as kubelab
from tests.support.kubelab.image import NAME
from tests.support.kubelab.programs import missing as no_kubernetes

Cluster = dict[str, object]
FAST = ("SchedulerParameters=batch_sched_delay=1",)
"""Slurm looks for work a second after it came; by default it takes three."""


@contextmanager
def slurm(_folder: Path) -> Iterator[Cluster]:
    """Four hosts."""
    with slurmlab.slurm_cluster("bench", nodes=4, parameters=FAST) as lab:
        options = {"conf": str(lab.conf), "gpu.H100": lab.gpu_type}
        yield _cluster("slurm", lab.hosts, options)


@contextmanager
def kubernetes(_folder: Path) -> Iterator[Cluster]:
    """Two nodes."""
    with kubelab.Lab(nodes=2) as lab:
        assert lab.nodes is not None
        options = {"kubeconfig": str(lab.kubeconfig), "listen": f"{lab.address}:0"}
        nodes = tuple(node.name for node in lab.nodes.all)
        yield {**_cluster("kubernetes", nodes, options), "image": NAME}


@contextmanager
def ssh(folder: Path) -> Iterator[Cluster]:
    """Three hosts."""
    with sshlab.ssh_lab(folder) as lab:
        yield _cluster("ssh", tuple(lab.hosts), dict(lab.options))


@contextmanager
def local(_folder: Path) -> Iterator[Cluster]:
    """Two hosts that are processes here."""
    yield _cluster("local", ("local0", "local1"), {})


LABS: Mapping[str, tuple[Callable[[], str], Callable[[Path], object]]] = {
    "local": (lambda: "", local),
    "slurm": (slurmlab.missing, slurm),
    "kubernetes": (lambda: no_kubernetes(nodes=True), kubernetes),
    "ssh": (sshlab.missing, ssh),
}
"""Of each kind of cluster: why it cannot be made here, and what makes it."""


def _cluster(engine: str, hosts: tuple[str, ...], options: Mapping[str, object]) -> Cluster:
    host = {"names": list(hosts), "gpu": "H100", "gpus": 8}
    # A host of a site has its interpreter where it is called, and no wrapper in its place.
    python = {} if engine == "local" else {"python": "/usr/bin/python3"}
    return {"engine": engine, "hosts": [host], "options": {**python, **options}}


def main(arguments: list[str]) -> int:
    """Run; see above."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(LABS))
    given, bench = parser.parse_known_args(arguments)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="topmast-labs-")))
        clusters: dict[str, Cluster] = {}
        for name in given.only.split(","):
            reason, lab = LABS[name]
            if why := reason():
                print(f"{name} is left out: {why}", file=sys.stderr)
            else:
                clusters[name] = stack.enter_context(lab(folder / name))  # type: ignore[arg-type]
        fleet = folder / "fleet.yaml"
        fleet.write_text(yaml.safe_dump({"regions": {"here": {"clusters": clusters}}}))
        command = [sys.executable, "-m", "topmast.app", "bench", "engines", "--fleet", str(fleet)]
        return subprocess.run([*command, *bench], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
