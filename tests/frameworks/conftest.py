"""Where PyTorch and Ray are: in an environment of their own, as a user's are."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.support import slurmlab, sshlab

FRAMEWORKS = "TOPMAST_TEST_FRAMEWORKS"
"""The variable with the `bin` folder of an environment that has PyTorch and Ray."""
ENOUGH_S = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests here are of the suite `make test-frameworks`."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.frameworks)
            item.add_marker(pytest.mark.timeout(ENOUGH_S))


@pytest.fixture(autouse=True)
def frameworks(monkeypatch: pytest.MonkeyPatch) -> str:
    """`torchrun`, `ray` and a `python3` that has both are first on the path of servers."""
    folder = programs()
    if not all((Path(folder) / program).is_file() for program in ("torchrun", "ray")):
        pytest.skip(f"no frameworks: {FRAMEWORKS} names no folder with `torchrun` and `ray`")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def programs() -> str:
    """The folder of the frameworks' programs."""
    return os.environ.get(FRAMEWORKS, "")


@pytest.fixture(scope="module")
def ssh_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two hosts behind SSH, each with a network of its own."""
    if reason := sshlab.missing():
        pytest.skip(reason)
    with sshlab.ssh_lab(tmp_path_factory.mktemp("lab"), "ssh0", "ssh1", own_home=False) as lab:
        yield fleet("ssh", lab.options, lab.names)


@pytest.fixture(scope="module")
def slurm_fleet() -> Iterator[str]:
    """Two nodes of a Slurm."""
    if reason := slurmlab.missing():
        pytest.skip(reason)
    with slurmlab.slurm_cluster("fw", nodes=2) as lab:
        options = {"conf": str(lab.conf), "gpu.H100": lab.gpu_type, "cpus_per_gpu": "1"}
        yield fleet("slurm", options, lab.hosts)


def fleet(engine: str, options: Mapping[str, str], names: Sequence[str]) -> str:
    """A fleet file of one cluster, two GPUs on each host."""
    hosts = [{"names": list(names), "gpu": "H100", "gpus": 2}]
    cluster = {"engine": engine, "options": dict(options), "hosts": hosts}
    return json.dumps({"regions": {"here": {"clusters": {"here-1": cluster}}}})
