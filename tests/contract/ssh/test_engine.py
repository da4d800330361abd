"""The contract of engines, kept by hosts behind SSH: the same tests as for every other engine."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract import test_engine as contract
from tests.contract.engines import HOSTS, Rig, opened, site_of
from tests.support.sshlab import SshLab
from topmast.adapters.engines.far.ssh import SshEngine, SshOptions
from topmast.adapters.engines.registry import read_options
from topmast.model.fleet import ClusterSpec, HostSpec

NUMBERS = itertools.count()
globals().update({name: it for name, it in vars(contract).items() if name.startswith("test_")})


@pytest.fixture
def rig(plain_lab: SshLab, tmp_path: Path) -> Iterator[Rig]:
    """An open engine."""
    given = {**plain_lab.options, "folder": f".t{next(NUMBERS)}", "poll_s": "0.2", "lease_s": "60"}
    options = read_options(given, SshOptions, engine="ssh", field="options")
    hosts = tuple(HostSpec(name, "H100", 8) for name in HOSTS)
    cluster = ClusterSpec("east-1", hosts, "ssh", given)

    def make(rig: Rig) -> SshEngine:
        return SshEngine(cluster, rig.folder / "engine", site_of(rig), options)

    with opened(make, tmp_path) as rig:
        yield rig
