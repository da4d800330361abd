"""The hosts of `topmast demo --engines`: what is started, and the fleet file that names them."""

from pathlib import Path

import pytest

from topmast.adapters.engines.registry import with_engines
from topmast.demo.lab import slurm, ssh
from topmast.demo.machines import Machines, RealMachines
from topmast.model.errors import InvalidInput
from topmast.model.files.fleetfile import read_fleet
from topmast.model.fleet import Fleet
from topmast.policies.registry import load_profile


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is told; nothing is started."""
    monkeypatch.setattr(slurm, "lacking", list)
    monkeypatch.setattr(slurm.SlurmCluster, "start", lambda self: None)
    monkeypatch.setattr(ssh, "missing", str)
    monkeypatch.setattr(ssh.SshLab, "start", lambda self: None)
    return []


def fleet_of(machines: Machines, folder: Path, told: list[str]) -> Fleet:
    return read_fleet(machines.start(folder, told.append))


def test_without_slurm_it_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is started."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(slurm, "PROGRAMS", ("sbatch-of-nowhere",))
    with pytest.raises(InvalidInput) as caught:
        RealMachines()
    assert caught.value.field == "--engines"
    assert "sbatch-of-nowhere not found" in str(caught.value)
    for package in ("slurmctld", "slurmd", "slurm-client", "munge"):
        assert package in caught.value.remedy


def test_three_regions_have_three_engines(tmp_path: Path, told: list[str]) -> None:
    """And else the hosts, links and quotas are those of the demo."""
    machines = RealMachines()
    fleet = fleet_of(machines, tmp_path, told)
    usual = fleet_of(Machines(), tmp_path, told)
    assert machines.engines == {"east-1": "slurm", "east-2": "slurm", "north-1": "ssh"}
    found = {c.name: c for region in fleet.regions for c in region.clusters}
    assert {name: c.engine for name, c in found.items()} == {
        "east-1": "slurm", "east-2": "slurm", "west-1": "local", "west-2": "local",
        "north-1": "ssh",
    }  # fmt: skip
    for region in usual.regions:
        for cluster in region.clusters:
            hosts = found[cluster.name].hosts
            assert [(h.model, h.gpus, h.rack) for h in hosts] == [
                (h.model, h.gpus, h.rack) for h in cluster.hosts
            ]
    assert (fleet.links, fleet.tenants) == (usual.links, usual.tenants)


def test_the_engines_take_the_fleet_file(tmp_path: Path, told: list[str]) -> None:
    """Each option is one that they know, and each host is Slurm's, or has an address."""
    fleet = with_engines(fleet_of(RealMachines(), tmp_path, told), load_profile("mast"))
    names = [host.name for c in fleet.regions[0].clusters for host in c.hosts]
    assert names == ["east0", "east1", "east2", "east3"]


def test_without_root_the_ssh_hosts_are_local(
    tmp_path: Path, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it says why."""
    monkeypatch.setattr(ssh, "missing", lambda: "namespaces are made only by root")
    machines = RealMachines()
    fleet = fleet_of(machines, tmp_path, told)
    assert set(machines.engines.values()) == {"slurm"}
    assert fleet.regions[2].clusters[0].engine == "local"
    assert any("made only by root" in line for line in told)
    assert not machines.halt("north-1-0")


def test_a_folder_in_which_no_socket_can_be_is_refused(tmp_path: Path, told: list[str]) -> None:
    """Slurm would say that its authentication fails."""
    with pytest.raises(InvalidInput, match="too long for a socket"):
        fleet_of(RealMachines(), tmp_path / ("x" * 100), told)


def test_slurm_has_the_types_of_the_hosts(tmp_path: Path) -> None:
    """Each host says what its GPUs are, in both files."""
    cluster = slurm.SlurmCluster(tmp_path, "t", nodes=2, gpus=4, gpu_types=("h100", "a100"))
    cluster._write()
    conf, gres = (tmp_path / "slurm.conf").read_text(), (tmp_path / "gres.conf").read_text()
    for host, kind in (("t0", "h100"), ("t1", "a100")):
        assert f"NodeName={host} Name=gpu Type={kind} " in gres
        assert any(
            line.startswith(f"NodeName={host} ") and line.endswith(f"Gres=gpu:{kind}:4")
            for line in conf.splitlines()
        )
