"""What doctor finds of hosts behind SSH where nothing answers; on real hosts see tests/contract."""

from pathlib import Path

from topmast.adapters.engines.far.ssh import SshEngine, SshOptions
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.ports import Level


def test_a_cluster_of_which_no_host_answers_is_one_fault(tmp_path: Path) -> None:
    """Each host with its reason, and nothing is said to answer."""
    known, key = tmp_path / "known_hosts", tmp_path / "key"
    known.touch()
    hosts = (HostSpec("gpu-1", "H100", 8), HostSpec("gpu-2", "H100", 8))
    options = SshOptions(
        identity=str(key), known_hosts=str(known), connect_s=5.0, port=1,
        address={"gpu-1": "127.0.0.1", "gpu-2": "127.0.0.2"},
    )  # fmt: skip
    (fault,) = SshEngine.examine(ClusterSpec("metal", hosts, "ssh"), options)
    assert (fault.level, fault.what) == (Level.FAULT, "reach it")
    assert fault.detail.startswith("no host is left: gpu-1: ")
    assert "; gpu-2: " in fault.detail
